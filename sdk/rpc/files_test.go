// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve/adapter"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

var sbConfig = schema.Value{JSON: []byte(`{"a":1}`)}

func connectFiles(t testing.TB) driverSandbox {
	f := newFake()
	f.wrap = withFiles
	_, sb := connect(t, f)
	return sb
}

// driverSandbox is what these tests use of a sandbox.
type driverSandbox interface {
	driver.FileSystem
	driver.TreeIO
	driver.PortForwarder
}

func TestFilesKeepEveryByte(t *testing.T) {
	sb := connectFiles(t)
	for _, size := range []int{0, 1, 32<<10 - 1, 32 << 10, 32<<10 + 1, 1<<20 - 64, 1 << 20, 5<<20 + 17} {
		data := pattern(0, uint64(size))
		name := fmt.Sprintf("f%d\xff", size)
		when := time.Unix(1234, 5678).UTC()
		res, err := sb.Write(t.Context(), name, driver.WriteOptions{Mode: 0o640, ModTime: when}, iotest.HalfReader(bytes.NewReader(data)))
		if err != nil || res.SHA256 != sha256.Sum256(data) || res.Info.Size != uint64(size) || res.Info.Mode != 0o640 || !res.Info.ModTime.Equal(when) {
			t.Fatalf("write %d: %+v, %v", size, res.Info, err)
		}
		info, r, err := sb.Open(t.Context(), name, driver.ReadOptions{})
		if err != nil || info.Path != name || info.Size != uint64(size) {
			t.Fatalf("open %d: %+v, %v", size, info, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("read %d: %d bytes, %v", size, len(got), err)
		}
		r.Close()
		if size < 10 {
			continue
		}
		_, r, err = sb.Open(t.Context(), name, driver.ReadOptions{Offset: 5, Length: uint64(size) - 7})
		if err != nil {
			t.Fatal(err)
		}
		var part bytes.Buffer
		if _, err := io.Copy(&part, r); err != nil || !bytes.Equal(part.Bytes(), data[5:size-2]) {
			t.Errorf("read a part of %d: %d bytes, %v", size, part.Len(), err)
		}
		r.Close()
	}
}

func TestOpenFails(t *testing.T) {
	_, _, err := connectFiles(t).Open(t.Context(), "no", driver.ReadOptions{})
	var e *errs.Error
	if !errors.Is(err, errs.FileNotFound) || !errors.As(err, &e) || e.Context["path"] != "no" || e.Op != "files.read" {
		t.Errorf("got %v", err)
	}
}

// A reader that is closed early, and one whose context ends, end the transfer at the other end too: their places are
// free for the next ones.
func TestReadersThatAreLeft(t *testing.T) {
	sb := connectFiles(t)
	for range 20 {
		_, r, err := sb.Open(t.Context(), "endless", driver.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, r, err := sb.Open(ctx, "endless", driver.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel(errors.New("enough"))
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, errs.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Two transfers of a sandbox run; the third waits for its turn and for no longer than its context.
func TestTransfersAreBounded(t *testing.T) {
	sb := connectFiles(t)
	var open []io.Closer
	for range 2 {
		_, r, err := sb.Open(t.Context(), "endless", driver.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("too long"))
	defer cancel()
	if _, _, err := sb.Open(ctx, "endless", driver.ReadOptions{}); !errors.Is(err, errs.Canceled) {
		t.Errorf("a third one: %v", err)
	}
	for _, r := range open {
		r.Close()
	}
	_, r, err := sb.Open(t.Context(), "endless", driver.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// A reader that takes nothing loses its place, and is told when it reads on.
func TestStalledTransferEnds(t *testing.T) {
	f := newFake()
	f.wrap = withFiles
	conn, _ := servetest.Serve(t, adapter.Config{Driver: f, StallTimeout: 200 * time.Millisecond})
	sb := create(t, rpc.New(conn, rpc.Config{}), "sb")
	var idle []io.ReadCloser
	for range 6 { // three times as many as there are places
		_, r, err := sb.Open(t.Context(), "endless", driver.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		idle = append(idle, r)
	}
	if _, err := io.Copy(io.Discard, idle[0]); !errors.Is(err, errs.ExecTransport) || !strings.Contains(err.Error(), "nothing was taken") {
		t.Errorf("got %v", err)
	}
}

func TestWriteThatFails(t *testing.T) {
	sb := connectFiles(t)
	// At the other end, in the middle.
	_, err := sb.Write(t.Context(), "full", driver.WriteOptions{}, io.LimitReader(zeros{}, 100<<20))
	if !errors.Is(err, errs.NoSpace) {
		t.Errorf("full disk: %v", err)
	}
	// At this end: the driver must not take it for the end of the data.
	broken := errors.New("broken source")
	_, err = sb.Write(t.Context(), "half", driver.WriteOptions{}, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("broken source: %v", err)
	}
	res, err := sb.Stat(t.Context(), []string{"half"}, driver.StatOptions{})
	if err != nil || !errors.Is(res[0].Err, errs.FileNotFound) {
		t.Errorf("half a file was written: %+v, %v", res, err)
	}
}

func TestStatMany(t *testing.T) {
	sb := connectFiles(t)
	if _, err := sb.Write(t.Context(), "9999", driver.WriteOptions{}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	paths := make([]string, 10_000)
	for i := range paths {
		paths[i] = strconv.Itoa(i)
	}
	res, err := sb.Stat(t.Context(), paths, driver.StatOptions{})
	if err != nil || len(res) != len(paths) {
		t.Fatalf("%d answers, %v", len(res), err)
	}
	if res[9999].Err != nil || res[9999].Info.Size != 1 || !errors.Is(res[3].Err, errs.FileNotFound) {
		t.Errorf("%+v %+v", res[9999], res[3])
	}
}

func TestList(t *testing.T) {
	sb := connectFiles(t)
	n := 0
	var last error
	for info, err := range sb.List(t.Context(), ".", driver.ListOptions{}) {
		if last = err; err == nil {
			if info.Path != strconv.Itoa(n) {
				t.Fatalf("%d is %s", n, info.Path)
			}
			n++
		}
	}
	if n != 10_000 || !errors.Is(last, errs.PermissionDenied) {
		t.Errorf("%d entries, %v", n, last)
	}
	for range sb.List(t.Context(), ".", driver.ListOptions{}) {
		break
	}
}

func TestOtherFileCalls(t *testing.T) {
	sb := connectFiles(t)
	mode, owner := uint32(0o600), "me"
	if err := sb.Mkdir(t.Context(), "d", 0o755, true, ""); err != nil {
		t.Error(err)
	}
	if err := sb.Remove(t.Context(), "d", true, "u"); !errors.Is(err, errs.ReadOnly) || !strings.Contains(err.Error(), "d true u") {
		t.Error(err)
	}
	if err := sb.Move(t.Context(), "no", "b", true, ""); !errors.Is(err, errs.FileNotFound) {
		t.Error(err)
	}
	if err := sb.SetMeta(t.Context(), "f", driver.MetaChange{Mode: &mode, Owner: &owner}); !strings.Contains(err.Error(), "f 600 me") {
		t.Error(err)
	}
}

func TestTrees(t *testing.T) {
	sb := connectFiles(t)
	for _, size := range []uint64{0, 10, 3<<20 + 5} {
		var got bytes.Buffer
		if err := sb.Export(t.Context(), driver.ExportOptions{Path: fmt.Sprint(size)}, &got); err != nil || !bytes.Equal(got.Bytes(), pattern(0, size)) {
			t.Errorf("export %d: %d bytes, %v", size, got.Len(), err)
		}
		res, err := sb.Import(t.Context(), driver.ImportOptions{Path: "p"}, bytes.NewReader(pattern(0, size)))
		if err != nil || res.Bytes != size || res.Skipped[0].Path != "p" {
			t.Errorf("import %d: %+v, %v", size, res, err)
		}
	}
	broken := errors.New("broken sink")
	err := sb.Export(t.Context(), driver.ExportOptions{Path: "5000000"}, writerFunc(func([]byte) (int, error) { return 0, broken }))
	if !errors.Is(err, broken) {
		t.Errorf("broken sink: %v", err)
	}
}

func TestDial(t *testing.T) {
	sb := connectFiles(t)
	c, err := sb.Dial(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 1)
	for i := range byte(100) {
		if _, err := c.Write([]byte{i}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || buf[0] != i+1 {
			t.Fatalf("%d: %d, %v", i, buf[0], err)
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var ne net.Error
	if _, err := c.Read(buf); !errors.As(err, &ne) || !ne.Timeout() {
		t.Errorf("past the deadline: %v", err)
	}
	c.SetReadDeadline(time.Time{})
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "bye" {
		t.Errorf("%q, %v", rest, err)
	}
	if _, err := sb.Dial(t.Context(), 1); !errors.Is(err, errs.PortUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
}

// After all that nothing is left running.
func TestNoGoroutinesAreLeft(t *testing.T) {
	sb := connectFiles(t)
	use := func() {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				c, err := sb.Dial(t.Context(), 80)
				if err != nil {
					t.Error(err)
					return
				}
				c.Close()
				_, r, err := sb.Open(t.Context(), "endless", driver.ReadOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				r.Close()
				if err := sb.Export(t.Context(), driver.ExportOptions{Path: "100"}, io.Discard); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	use()
	before := 0
	waitFor(t, func() bool {
		now := runtime.NumGoroutine()
		settled := now == before
		before = now
		return settled
	})
	for range 5 {
		use()
	}
	waitFor(t, func() bool { return runtime.NumGoroutine() <= before+5 })
}
