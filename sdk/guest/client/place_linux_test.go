// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/link"
)

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{2}).Read(b)
	return b
}

// held gives the files below a directory that this process has open.
func held(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			names = append(names, to)
		}
	}
	return names
}

// only waits until a directory holds these names and nothing else: what was abandoned is removed a little later.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range all {
			got = append(got, e.Name())
		}
		if slices.Equal(got, names) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s holds %v, not %v", dir, got, names)
		}
	}
}

// observed is content that calls back after each piece of at most 64 KiB.
type observed struct {
	r    io.Reader
	read int
	each func(read int) error
}

func (o *observed) Read(p []byte) (int, error) {
	n, err := o.r.Read(p[:min(len(p), 64<<10)])
	o.read += n
	if e := o.each(o.read); e != nil {
		return n, e
	}
	return n, err
}

// A large file is written to the guest's descriptor over a socket and sent over other streams; the file is the same, and
// a program that was written can be executed at once.
func TestWriteLarge(t *testing.T) {
	g := begin(t, nil)
	other := begin(t, nil)
	direct := g.connect(t)
	for where, c := range map[*running]*client.Client{g: direct, other: connect(t, client.Options{Key: key, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := other.dial(ctx)
		return struct{ io.ReadWriteCloser }{c}, err
	}})} {
		for _, size := range []int{0, 1, 128 << 10, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1 << 20, 5<<20 + 3} {
			b := random(size)
			passed := false
			r := &observed{r: bytes.NewReader(b), each: func(int) error {
				passed = passed || len(held(t, where.root)) > 0
				return nil
			}}
			res, err := c.Write(t.Context(), "f", driver.WriteOptions{Mode: 0o640}, r)
			if err != nil {
				t.Fatal(size, err)
			}
			got, err := os.ReadFile(filepath.Join(where.root, "f"))
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("%d bytes of %d, or others: %v", len(got), size, err)
			}
			if res.SHA256 != sha256.Sum256(b) || res.Info.Size != uint64(size) || res.Info.Mode != 0o640 {
				t.Errorf("%d: %+v", size, res)
			}
			if passed != (where == g && size >= 256<<10) {
				t.Errorf("%d: written here: %t", size, passed)
			}
		}
		only(t, where.root, "f")
	}
	for i := range 20 {
		script := []byte("#!/bin/sh\nexit 7\n" + strings.Repeat("#", 1<<20))
		if _, err := direct.Write(t.Context(), "run", driver.WriteOptions{Mode: 0o755}, bytes.NewReader(script)); err != nil {
			t.Fatal(err)
		}
		if exit, err := direct.Run(t.Context(), &driver.Command{Argv: []string{"./run"}}, driver.Streams{}); err != nil || exit.Code != 7 {
			t.Fatalf("%d: %+v %v", i, exit, err)
		}
	}
	if left := held(t, g.root); len(left) > 0 {
		t.Errorf("open: %v", left)
	}
}

// A write that does not come to its end leaves what was there, and nothing else.
func TestWriteLargeFails(t *testing.T) {
	g := begin(t, nil)
	c := g.connect(t)
	if _, err := c.Write(t.Context(), "f", driver.WriteOptions{}, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		at   int
		fail error
	}{"while it is gathered": {100 << 10, errTest}, "while it is written": {2 << 20, errTest}, "cut short": {2 << 20, io.ErrUnexpectedEOF}} {
		_, err := c.Write(t.Context(), "f", driver.WriteOptions{}, &observed{r: bytes.NewReader(random(4 << 20)), each: func(read int) error {
			if read >= tc.at {
				return tc.fail
			}
			return nil
		}})
		if !errors.Is(err, tc.fail) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := c.Write(ctx, "f", driver.WriteOptions{}, &observed{r: bytes.NewReader(random(4 << 20)), each: func(read int) error {
		if read >= 2<<20 {
			cancel(errTest)
		}
		return nil
	}})
	if !errors.Is(err, errs.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// The guest's limit holds for what is written for it.
	if err := unix.Prlimit(g.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(t.Context(), "f", driver.WriteOptions{}, bytes.NewReader(random(1<<20))); err != nil {
		t.Errorf("as large as the limit: %v", err)
	}
	if _, err := c.Write(t.Context(), "f", driver.WriteOptions{}, bytes.NewReader(random(1<<20+1))); !errors.Is(err, unix.EFBIG) {
		t.Errorf("past the limit: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(g.root, "f")); err != nil || len(got) != 1<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	only(t, g.root, "f")
}

// However the connection is cut, the file is what was to be written.
func TestWriteLargeOverCuts(t *testing.T) {
	g := begin(t, nil)
	var mu sync.Mutex
	var now net.Conn
	c := connect(t, client.Options{Key: key, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
		rw, err := g.dial(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		now = rw.(net.Conn)
		return rw, nil
	}})
	b := random(2<<20 + 5)
	for at := 0; at <= len(b); at += 64 << 10 {
		cut := false
		_, err := c.Write(t.Context(), "f", driver.WriteOptions{}, &observed{r: bytes.NewReader(b), each: func(read int) error {
			if read >= at && !cut {
				cut = true
				mu.Lock()
				defer mu.Unlock()
				return now.Close()
			}
			return nil
		}})
		if err != nil {
			t.Fatal(at, err)
		}
		if got, err := os.ReadFile(filepath.Join(g.root, "f")); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("cut at %d: %d bytes, or others: %v", at, len(got), err)
		}
	}
	only(t, g.root, "f")
	if left := held(t, g.root); len(left) > 0 {
		t.Errorf("open: %v", left)
	}
}

// impostor is a client of a guest that answers as the test says.
func impostor(t *testing.T, handle func(*link.Stream)) *client.Client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a, err := link.NewAcceptor(link.AcceptorOptions{
		Key: key, Info: func() []byte { return []byte("{}") },
		Handle: func(s *link.Stream, _ []byte) { handle(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go a.Serve(conn, false)
		}
	}()
	return connect(t, client.Options{Key: key, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.Addr().String())
	}})
}

func written(s *link.Stream) {
	s.Finish(api.NewResult(api.WriteResult{Entry: api.AppendEntry(nil, driver.StatResult{Info: driver.FileInfo{Path: "f"}})}, nil))
}

// Nothing is written to what is no new, plain file, whatever it is that the guest passes: the content is sent instead.
func TestWriteTrustsNoDescriptor(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string, flags int) func() int {
		return func() int {
			fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return fd
		}
	}
	precious := file("precious", "precious", 0o600)
	b := random(700 << 10)
	for name, descriptor := range map[string]func() int{
		"a device":                  open("/dev/null", unix.O_WRONLY),
		"a fifo":                    open(fifo, unix.O_RDWR|unix.O_NONBLOCK),
		"a directory":               open(dir, unix.O_RDONLY),
		"a command of the kernel":   open("/proc/self/oom_score_adj", unix.O_WRONLY),
		"a file with content":       open(precious, unix.O_WRONLY),
		"a file to append to":       open(file("append", "", 0o600), unix.O_WRONLY|unix.O_APPEND),
		"a file to read and write":  open(file("both", "", 0o600), unix.O_RDWR),
		"a file to read":            open(file("read", "", 0o600), unix.O_RDONLY),
		"a path":                    open(file("path", "", 0o600), unix.O_PATH),
		"a program of another user": open(file("setuid", "", 0o600|os.ModeSetuid), unix.O_WRONLY),
		"a socket": func() int {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
			}
			unix.Close(pair[1])
			return pair[0]
		},
	} {
		sent := make(chan []byte, 1)
		c := impostor(t, func(s *link.Stream) {
			var got []byte
			for {
				m, err := s.Recv(s.Context())
				if err != nil {
					return
				}
				switch {
				case m.Kind == link.End:
					sent <- got
					written(s)
					return
				case m.Kind == link.Data:
					got = append(got, m.Body...)
				case m.Sub == api.SubLarge:
					if _, err := s.SendFile(s.Context(), api.SubFile, []byte(`{"bytes":1000000000}`), os.NewFile(uintptr(descriptor()), name)); err != nil {
						t.Error(err)
					}
				default:
					t.Errorf("%s: message %d", name, m.Sub)
				}
				m.Release()
			}
		})
		if _, err := c.Write(t.Context(), "f", driver.WriteOptions{}, bytes.NewReader(b)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := <-sent; !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes were sent, or others", name, len(got))
		}
	}
	for name, want := range map[string]string{"precious": "precious", "append": "", "both": "", "setuid": ""} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes were written, %v", name, len(got), err)
		}
	}
}

// A guest that breaks the rules gets an error, not a success that is none.
func TestWriteWithLiar(t *testing.T) {
	file := func() *os.File {
		f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Error(err)
		}
		return f
	}
	most, err := json.Marshal(api.Size{Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		size int // of the content that comes
		lie  func(*link.Stream)
	}{
		"has it all before it came": {300 << 10, written},
		"passes what nobody asked for": {100 << 10, func(s *link.Stream) {
			s.SendFile(s.Context(), api.SubFile, most, file()) // the client may hang up
			<-s.Context().Done()
		}},
		"passes two files": {300 << 10, func(s *link.Stream) {
			for {
				m, err := s.Recv(s.Context())
				if err != nil {
					return
				}
				if m.Kind == link.Control && m.Sub == api.SubLarge {
					s.SendFile(s.Context(), api.SubFile, most, file()) // as above
					s.SendFile(s.Context(), api.SubFile, most, file()) // as above
				}
				m.Release()
			}
		}},
	} {
		c := impostor(t, tc.lie)
		release := make(chan struct{})
		_, err := c.Write(t.Context(), "f", driver.WriteOptions{}, io.MultiReader(bytes.NewReader(random(tc.size)), waiting(release)))
		close(release)
		if !errors.Is(err, errs.ExecTransport) {
			t.Errorf("a guest that %s: %v", name, err)
		}
	}
}

// waiting is content that does not come.
type waiting chan struct{}

func (w waiting) Read([]byte) (int, error) {
	<-w
	return 0, io.EOF
}
