// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/sdk/guest/link"
)

// numbered makes an open file that holds its number.
func numbered(dir string, i uint32) (*os.File, error) {
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, binary.BigEndian.AppendUint32(nil, i), 0o600); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return f, os.Remove(name)
}

// descriptors counts what this process has open below a directory.
func descriptors(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && len(to) > len(dir) && to[:len(dir)] == dir {
			n++
		}
	}
	return n
}

// closed waits until nothing below a directory is open.
func closed(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); ; <-tick.C {
		n := descriptors(t, dir)
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d files are still open", n)
		}
	}
}

// Every message comes once, with its own file, however often the connection is cut; and no file stays open.
func TestFilesOverCuts(t *testing.T) {
	const files = 400
	dir := t.TempDir()
	f := listen(t, func(s *link.Stream, _ []byte) {
		for i := range uint32(files) {
			for !s.PassesFiles() {
				// Between two connections: here it is to be tried, a server would send the content instead.
				select {
				case <-s.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
			file, err := numbered(dir, i)
			if err != nil {
				t.Error(err)
				break
			}
			if _, err := s.SendFile(s.Context(), 9, binary.BigEndian.AppendUint32(nil, i), file); err != nil {
				t.Error(err)
				break
			}
		}
		s.Finish(nil)
	})
	var mu sync.Mutex
	var now net.Conn
	p := connect(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := f.dial(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		now = c.(net.Conn)
		return c, nil
	})
	s, err := p.Open([]byte("files"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	cuts := 0
	for want := uint32(0); ; want++ {
		m, err := s.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == link.End {
			if want != files {
				t.Errorf("%d messages", want)
			}
			break
		}
		if r.IntN(20) == 0 {
			mu.Lock()
			now.Close()
			mu.Unlock()
			cuts++
		}
		if got := binary.BigEndian.Uint32(m.Body); got != want || m.Sub != 9 || m.Kind != link.Control {
			t.Fatalf("message %d is %d", want, got)
		}
		var b [5]byte
		if m.File == nil {
			t.Fatalf("message %d came without its file", want)
		}
		if n, err := m.File.ReadAt(b[:], 0); n != 4 || binary.BigEndian.Uint32(b[:]) != want {
			t.Fatalf("message %d has the file %d (%v)", want, binary.BigEndian.Uint32(b[:]), err)
		}
		m.Release()
	}
	s.Close()
	if cuts < 10 {
		t.Errorf("only %d cuts: this proved nothing", cuts)
	}
	closed(t, dir)
}

// Files that nobody receives are closed when the stream is.
func TestFilesNobodyWants(t *testing.T) {
	dir := t.TempDir()
	sent := make(chan struct{})
	f := listen(t, func(s *link.Stream, _ []byte) {
		defer close(sent)
		for i := range uint32(10) {
			file, err := numbered(dir, i)
			if err == nil {
				_, err = s.SendFile(s.Context(), 9, []byte("x"), file)
			}
			if err != nil {
				t.Error(err)
			}
		}
		s.Finish(nil)
	})
	p := connect(t, f.dial)
	s, err := p.Open([]byte("files"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Release()
	<-sent
	s.Close()
	closed(t, dir)
}
