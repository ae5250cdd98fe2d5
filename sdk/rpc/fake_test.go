// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/adapter"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

// fake is a driver in memory. Its sandboxes have what wrap gives them.
type fake struct {
	wrap   func(*box) driver.Sandbox // nil = nothing but Run
	create func(context.Context, *driver.CreateRequest) error
	desc   driver.Description

	mu      sync.Mutex
	boxes   map[string]*box // guarded by mu
	creates int             // guarded by mu
	removed int             // guarded by mu
}

func newFake() *fake {
	return &fake{
		boxes: map[string]*box{},
		desc:  driver.Description{Name: "fake", Version: "1.2.3", StateVersion: 2, StateReadable: []uint32{1}},
	}
}

func (f *fake) Describe() driver.Description { return f.desc }

func (f *fake) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	f.mu.Lock()
	f.creates++
	f.mu.Unlock()
	if f.create != nil {
		if err := f.create(ctx, req); err != nil {
			return nil, err
		}
	}
	b := &box{f: f, id: req.SandboxID, state: driver.State{Version: 2, Data: []byte(req.SandboxID)}, ended: make(chan string, 1000)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boxes[b.id] = b
	return f.wrapped(b), nil
}

func (f *fake) wrapped(b *box) driver.Sandbox {
	if f.wrap == nil {
		return b
	}
	return f.wrap(b)
}

func (f *fake) Resume(_ context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.boxes[string(req.State.Data)]
	if b == nil {
		return nil, errs.New(errs.SandboxGone, "it was removed").With("snapshot", "snap-1")
	}
	return f.wrapped(b), nil
}

func (f *fake) live() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.boxes))
}

// box is a sandbox whose commands are written in Go.
type box struct {
	f     *fake
	id    string
	ended chan string // ids of commands whose context ended

	mu    sync.Mutex
	state driver.State // guarded by mu
}

func (b *box) State() driver.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

func (b *box) Destroy(context.Context) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	delete(b.f.boxes, b.id)
	b.f.removed++
	return nil
}

// pattern is output whose bytes tell their offset.
func pattern(from, to uint64) []byte {
	out := make([]byte, 0, to-from)
	for i := from; i < to; i++ {
		out = append(out, byte(i>>16)^byte(i>>8)^byte(i))
	}
	return out
}

func (b *box) Run(ctx context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	switch cmd.Argv[0] {
	case "missing":
		return driver.Exit{}, errs.New(errs.ExecNotFound, "no such program").With("path", cmd.Argv[0])
	case "panic":
		panic("out of cheese")
	case "leak":
		fmt.Fprint(s.Stdout, "x")
		return driver.Exit{}, errs.New(errs.Internal, "token is %s", cmd.SecretEnv["TOKEN"]).WithHint("use %s", cmd.SecretEnv["TOKEN"])
	}
	s.OnStart(driver.Started{ProcessID: cmd.ID, PID: 42})
	switch cmd.Argv[0] {
	case "echo":
		for i, a := range cmd.Argv[1:] {
			w := s.Stdout
			if i%2 == 1 {
				w = s.Stderr
			}
			io.WriteString(w, a)
		}
	case "cat":
		if s.Stdin == nil {
			return driver.Exit{Code: 9}, nil
		}
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return driver.Exit{}, err
		}
	case "swallow":
		io.Copy(io.Discard, s.Stdin)
	case "flood": // flood BYTES
		n, _ := strconv.ParseUint(cmd.Argv[1], 10, 64)
		for at := uint64(0); at < n; {
			to := min(at+32<<10, n)
			if _, err := s.Stdout.Write(pattern(at, to)); err != nil {
				return driver.Exit{}, err
			}
			at = to
		}
	case "zeros": // zeros BYTES, fast
		n, _ := strconv.Atoi(cmd.Argv[1])
		p := make([]byte, 32<<10)
		for ; n > 0; n -= len(p) {
			s.Stdout.Write(p)
		}
	case "exit":
		n, _ := strconv.Atoi(cmd.Argv[1])
		return driver.Exit{Code: n, Ran: time.Second}, nil
	case "sleep":
		<-ctx.Done()
		b.ended <- cmd.ID
		return driver.Exit{}, context.Cause(ctx)
	case "trap":
		select {
		case sig := <-s.Signals:
			return driver.Exit{Code: 128 + 15, Signal: sig.Name}, nil
		case <-ctx.Done():
			return driver.Exit{}, context.Cause(ctx)
		}
	case "size":
		select {
		case size := <-s.Resize:
			fmt.Fprintf(s.Stdout, "%d %d", size.Rows, size.Cols)
		case <-ctx.Done():
			return driver.Exit{}, context.Cause(ctx)
		}
	case "gap":
		s.Stdout.Write([]byte("ab"))
		s.OnGap(driver.Gap{From: 2, To: 10})
		s.Stdout.Write([]byte("cd"))
	case "crumbs": // crumbs BYTES: write, then wait to be ended
		n, _ := strconv.ParseUint(cmd.Argv[1], 10, 64)
		s.Stdout.Write(pattern(0, n))
		<-ctx.Done()
		return driver.Exit{}, context.Cause(ctx)
	case "step": // one line for each line of input
		buf := make([]byte, 1)
		for {
			if _, err := s.Stdin.Read(buf); err != nil {
				return driver.Exit{}, nil //nolint:nilerr // the end of its input
			}
			s.Stdout.Write(buf)
		}
	}
	return driver.Exit{}, nil
}

// fileBox is a box with files and trees in memory, and ports.
type fileBox struct {
	*box
	files *sync.Map // path → []byte
}

func (b fileBox) Stat(_ context.Context, paths []string, _ driver.StatOptions) ([]driver.StatResult, error) {
	out := make([]driver.StatResult, len(paths))
	for i, p := range paths {
		if v, ok := b.files.Load(p); ok {
			out[i].Info = driver.FileInfo{Path: p, Type: driver.TypeRegular, Size: uint64(len(v.([]byte)))}
		} else {
			out[i].Err = errs.New(errs.FileNotFound, "no %s", p)
		}
	}
	return out, nil
}

func (b fileBox) List(context.Context, string, driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		for i := range 10_000 {
			if !yield(driver.FileInfo{Path: strconv.Itoa(i)}, nil) {
				return
			}
		}
		yield(driver.FileInfo{}, errs.New(errs.PermissionDenied, "the last one is closed"))
	}
}

func (b fileBox) Open(_ context.Context, path string, o driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	if path == "endless" {
		return driver.FileInfo{Path: path}, io.NopCloser(zeros{}), nil
	}
	v, ok := b.files.Load(path)
	if !ok {
		return driver.FileInfo{}, nil, errs.New(errs.FileNotFound, "no %s", path).With("path", path)
	}
	data := v.([]byte)
	info := driver.FileInfo{Path: path, Size: uint64(len(data)), Version: "v"}
	data = data[min(o.Offset, uint64(len(data))):]
	if o.Length > 0 {
		data = data[:min(o.Length, uint64(len(data)))]
	}
	return info, io.NopCloser(bytes.NewReader(data)), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func (b fileBox) Write(_ context.Context, path string, o driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	switch path {
	case "full":
		io.CopyN(io.Discard, r, 100_000)
		return driver.WriteResult{}, errs.New(errs.NoSpace, "the disk is full")
	case "null":
		n, err := io.Copy(io.Discard, r)
		return driver.WriteResult{Info: driver.FileInfo{Size: uint64(n)}}, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return driver.WriteResult{}, err
	}
	b.files.Store(path, data)
	return driver.WriteResult{
		Info:   driver.FileInfo{Path: path, Size: uint64(len(data)), Mode: o.Mode, ModTime: o.ModTime},
		SHA256: sha256.Sum256(data),
	}, nil
}

func (b fileBox) Mkdir(context.Context, string, uint32, bool, string) error { return nil }

func (b fileBox) Remove(_ context.Context, path string, recursive bool, user string) error {
	return errs.New(errs.ReadOnly, "%s %v %s", path, recursive, user)
}

func (b fileBox) Move(_ context.Context, from, to string, replace bool, _ string) error {
	v, ok := b.files.LoadAndDelete(from)
	if !ok {
		return errs.New(errs.FileNotFound, "no %s", from)
	}
	b.files.Store(to, v)
	return nil
}

func (b fileBox) SetMeta(_ context.Context, path string, c driver.MetaChange) error {
	return errs.New(errs.InvalidArgument, "%s %o %s", path, *c.Mode, *c.Owner)
}

func (b fileBox) Export(_ context.Context, o driver.ExportOptions, w io.Writer) error {
	n, _ := strconv.ParseUint(o.Path, 10, 64)
	_, err := w.Write(pattern(0, n))
	return err
}

func (b fileBox) Import(_ context.Context, o driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	n, err := io.Copy(io.Discard, r)
	return driver.ImportResult{Bytes: uint64(n), Skipped: []driver.Skipped{{Path: o.Path, Reason: "test"}}}, err
}

// Dial connects to a server that answers each byte with its successor, and says bye at the end.
func (b fileBox) Dial(_ context.Context, port uint16) (net.Conn, error) {
	if port == 1 {
		return nil, errs.New(errs.PortUnavailable, "nobody listens")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 1)
		for {
			if _, err := c.Read(buf); err != nil {
				c.Write([]byte("bye"))
				return
			}
			buf[0]++
			c.Write(buf)
		}
	}()
	return net.Dial("tcp", l.Addr().String())
}

func withFiles(b *box) driver.Sandbox { return fileBox{b, new(sync.Map)} }

// tableBox remembers its processes itself, as the guest does.
type tableBox struct {
	*box
	attached chan uint64
	signals  chan driver.Signal
}

func (b tableBox) Attach(ctx context.Context, id string, offset uint64, s driver.Streams) (driver.Exit, error) {
	b.attached <- offset
	if id != "known" {
		return driver.Exit{}, errs.New(errs.ProcessUnknown, "no %s", id)
	}
	s.OnStart(driver.Started{ProcessID: id, PID: 7, Reattached: true})
	if offset < 5 {
		s.OnGap(driver.Gap{From: offset, To: 5})
		offset = 5
	}
	s.Stdout.Write(pattern(offset, 20))
	return driver.Exit{Code: 4, OutputBytes: 20}, nil
}

func (b tableBox) Signal(_ context.Context, id string, sig driver.Signal) error {
	b.signals <- sig
	return nil
}

func (b tableBox) Processes(context.Context) ([]driver.Process, error) {
	return []driver.Process{{ID: "known", PID: 7, Argv: []string{"a\xff"}, Exit: &driver.Exit{Code: 4}}, {ID: "live"}}, nil
}

// connect serves the driver and makes one sandbox.
func connect(t testing.TB, f *fake) (*rpc.Driver, *rpc.Sandbox) {
	t.Helper()
	conn, _ := servetest.Serve(t, adapter.Config{Driver: f})
	d := rpc.New(conn, rpc.Config{})
	return d, create(t, d, "sb")
}

func create(t testing.TB, d *rpc.Driver, id string) *rpc.Sandbox {
	t.Helper()
	sb, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: id, Workspace: driver.Workspace{Root: "/w"}})
	if err != nil {
		t.Fatal(err)
	}
	return sb.(*rpc.Sandbox)
}
