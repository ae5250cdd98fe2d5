// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
	"github.com/berth-dev/berth/sdk/guest/link"
)

var key = bytes.Repeat([]byte("k"), 32)

// cutter is a connection that breaks after some bytes, in the middle of whatever passes.
type cutter struct {
	net.Conn
	left *atomic.Int64 // of this connection, both directions
	cuts *atomic.Int64
}

var errCut = errors.New("cut")

func (c cutter) spend(n int) int {
	left := c.left.Add(-int64(n))
	if left >= 0 {
		return n
	}
	if left+int64(n) >= 0 {
		c.cuts.Add(1)
	}
	return max(0, n+int(left))
}

func (c cutter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if m := c.spend(n); m < n {
		c.Close()
		return m, errCut
	}
	return n, err
}

func (c cutter) Write(p []byte) (int, error) {
	m := c.spend(len(p))
	n, err := c.Conn.Write(p[:m])
	if err == nil && m < len(p) {
		c.Close()
		return n, errCut
	}
	return n, err
}

type fixture struct {
	acceptor *link.Acceptor
	listener net.Listener
	attached chan bool
}

// listen serves handle on a unix socket.
func listen(t *testing.T, handle func(*link.Stream, []byte)) *fixture {
	t.Helper()
	f := &fixture{attached: make(chan bool, 1000)}
	var err error
	f.acceptor, err = link.NewAcceptor(link.AcceptorOptions{
		Key: key, Handle: handle,
		Info:     func() []byte { return []byte("info") },
		Attached: func(a bool) { f.attached <- a },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.listener, err = net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := f.listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.acceptor.Serve(c, false) })
		}
	})
	t.Cleanup(func() {
		f.listener.Close()
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errors.New("close")) //nolint:usetesting // the test's own context has ended in a cleanup
		defer cancel()
		f.acceptor.Close(ctx)
		all.Wait()
	})
	return f
}

func (f *fixture) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", f.listener.Addr().String())
}

func connect(t *testing.T, dial func(context.Context) (io.ReadWriteCloser, error)) *link.Peer {
	t.Helper()
	p, err := link.Connect(t.Context(), link.Options{Dial: dial, Key: key, ReconnectTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errors.New("close")) //nolint:usetesting // the test's own context has ended in a cleanup
		defer cancel()
		p.Close(ctx)
	})
	return p
}

// echo sends back what it gets and ends with the hash of it.
func echo(s *link.Stream, _ []byte) {
	h := sha256.New()
	for {
		m, err := s.Recv(s.Context())
		if err != nil {
			s.Finish(nil)
			return
		}
		if m.Kind == link.End {
			s.Finish(h.Sum(nil))
			return
		}
		h.Write(m.Body)
		if err := s.Send(s.Context(), m.Sub, m.Body); err != nil {
			s.Finish(nil)
			return
		}
		m.Release()
	}
}

// exchange sends total bytes through an echoing stream and checks every byte that comes back.
func exchange(t *testing.T, p *link.Peer, seed uint64, total int) {
	t.Helper()
	s, err := p.Open([]byte("echo"))
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	sent := make(chan []byte, 1)
	go func() {
		src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
		sizes := rand.New(rand.NewPCG(seed, 1))
		h := sha256.New()
		buf := make([]byte, link.Chunk)
		for left := total; left > 0; {
			n := min(left, 1+sizes.IntN(link.Chunk))
			src.Read(buf[:n])
			h.Write(buf[:n])
			if err := s.Send(t.Context(), 3, buf[:n]); err != nil {
				t.Error(err)
				break
			}
			left -= n
		}
		s.EndInput()
		sent <- h.Sum(nil)
	}()
	back, got := sha256.New(), 0
	for {
		m, err := s.Recv(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		if m.Kind == link.End {
			want := <-sent
			if got != total || !bytes.Equal(want, m.Body) || !bytes.Equal(want, back.Sum(nil)) {
				t.Errorf("stream %d: %d of %d bytes came back, or others", seed, got, total)
			}
			return
		}
		back.Write(m.Body)
		got += len(m.Body)
		m.Release()
	}
}

func TestExactBytesOverCuts(t *testing.T) {
	f := listen(t, echo)
	var cuts atomic.Int64
	r := rand.New(rand.NewPCG(7, 8))
	var mu sync.Mutex
	p := connect(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := f.dial(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		left := new(atomic.Int64)
		left.Store(int64(100 + r.IntN(3<<20)))
		return cutter{c.(net.Conn), left, &cuts}, nil
	})
	var all sync.WaitGroup
	for i := range uint64(8) {
		all.Go(func() { exchange(t, p, i, 8<<20) })
	}
	all.Wait()
	if cuts.Load() < 10 {
		t.Errorf("only %d cuts: this proved nothing", cuts.Load())
	}
	t.Logf("%d cuts", cuts.Load())
}

// opaque is a connection of which nothing is known but that bytes come and go.
type opaque struct{ io.ReadWriteCloser }

// flipper changes one byte of what is read from a connection, once.
type flipper struct {
	io.ReadWriteCloser
	left *atomic.Int64 // until that byte
}

func (f flipper) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	if was := f.left.Load(); was > 0 {
		if f.left.Add(-int64(n)) <= 0 {
			p[was-1] ^= 1
		}
	}
	return n, err
}

// Where one of the ends is no socket within the machine, an error on the way is found and mended.
func TestPayloadsAreChecked(t *testing.T) {
	f := listen(t, echo)
	var left atomic.Int64
	left.Store(3 << 20)
	var dials atomic.Int64
	p := connect(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		dials.Add(1)
		c, err := f.dial(ctx)
		return flipper{c, &left}, err
	})
	exchange(t, p, 1, 8<<20)
	if dials.Load() < 2 || left.Load() > 0 {
		t.Errorf("%d connections, %d bytes before the error", dials.Load(), left.Load())
	}
}

// A conversation goes on when payloads are checked on one connection and not on the next.
func TestChecksChangeOverCuts(t *testing.T) {
	f := listen(t, echo)
	var mu sync.Mutex
	var present net.Conn
	dials := 0
	p := connect(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := f.dial(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		present = c.(net.Conn)
		if dials++; dials%2 == 0 {
			return opaque{c}, nil
		}
		return c, nil
	})
	done := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				mu.Lock()
				present.Close()
				mu.Unlock()
			}
		}
	})
	for i := uint64(0); ; i++ {
		exchange(t, p, i, 8<<20)
		mu.Lock()
		enough := dials > 6
		mu.Unlock()
		if enough || t.Failed() {
			break
		}
	}
	close(done)
	cutting.Wait()
}

// late is a connection whose host gives up when it has sent its proof, which is held back until release.
type late struct {
	net.Conn
	wrote  int
	held   []byte
	proved bool
}

func (l *late) Write(p []byte) (int, error) {
	if l.wrote++; l.wrote == 1 {
		return l.Conn.Write(p) // the hello
	}
	l.held, l.proved = bytes.Clone(p), true
	return len(p), nil
}

func (l *late) Read(p []byte) (int, error) {
	if l.proved {
		return 0, errCut
	}
	return l.Conn.Read(p)
}

func (l *late) Close() error { return nil }

// release lets the proof arrive and waits until the guest has hung up.
func (l *late) release(t *testing.T) {
	t.Helper()
	if _, err := l.Conn.Write(l.held); err != nil {
		t.Error(err)
	}
	if n, err := io.Copy(io.Discard, l.Conn); err != nil || n != 0 {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	l.Conn.Close()
}

// A proof that arrives when its host has come again on a newer connection changes nothing, at the start of a conversation
// as well as later.
func TestLateProof(t *testing.T) {
	f := listen(t, echo)
	var mu sync.Mutex
	var dials int
	var lates []*late
	var present net.Conn
	p := connect(t, func(ctx context.Context) (io.ReadWriteCloser, error) {
		c, err := f.dial(ctx)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if dials++; dials%2 == 1 {
			l := &late{Conn: c.(net.Conn)}
			lates = append(lates, l)
			return l, nil
		}
		present = c.(net.Conn)
		return c, nil
	})
	const rounds = 3
	for i := range rounds {
		exchange(t, p, uint64(i), 1<<20)
		mu.Lock()
		l := lates[i]
		mu.Unlock()
		l.release(t)
		exchange(t, p, uint64(i), 1<<20)
		mu.Lock()
		if p.Err() != nil || len(lates) != i+1 {
			t.Fatalf("%v after %d connections", p.Err(), dials)
		}
		if i < rounds-1 {
			present.Close()
		}
		mu.Unlock()
	}
}

// A stream that nobody reads takes its window and no more, and others go on.
func TestStalledStream(t *testing.T) {
	sent := make(chan int, 1000)
	f := listen(t, func(s *link.Stream, req []byte) {
		if string(req) != "flood" {
			echo(s, req)
			return
		}
		total := 0
		for {
			if err := s.Send(s.Context(), 0, make([]byte, link.Chunk)); err != nil {
				s.Finish(nil)
				close(sent)
				return
			}
			total += link.Chunk
			sent <- total
		}
	})
	p := connect(t, f.dial)
	flood, err := p.Open([]byte("flood"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for total < 1<<20 { // the window
		total = <-sent
	}
	exchange(t, p, 1, 4<<20)
	select {
	case n := <-sent:
		t.Errorf("%d bytes sent to a stream that nobody reads", n)
	default:
	}
	flood.Close()
	for range sent { // until its sender has given up
	}
	exchange(t, p, 2, 1<<20)
}

func TestWrongKey(t *testing.T) {
	f := listen(t, echo)
	other := bytes.Repeat([]byte("x"), 32)
	if _, err := link.Connect(t.Context(), link.Options{Dial: f.dial, Key: other}); !errors.Is(err, errs.AuthFailed) {
		t.Fatalf("got %v", err)
	}
	if _, err := link.Connect(t.Context(), link.Options{Dial: f.dial, Key: []byte("short")}); !errors.Is(err, errs.InvalidArgument) {
		t.Fatalf("got %v", err)
	}
}

// Whoever does not know the key is not served, also when he ignores that the guest's proof is not for him, and does not
// disturb the host that is attached.
func TestStranger(t *testing.T) {
	served := make(chan struct{}, 1)
	f := listen(t, func(s *link.Stream, req []byte) {
		if string(req) == "evil" {
			served <- struct{}{}
		}
		echo(s, req)
	})
	p := connect(t, f.dial)

	c, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello := make([]byte, 57)
	hello[1], hello[3] = 2, 2
	wire := frame.Append(nil, frame.Frame{Type: 1, Payload: hello}, frame.Check{})
	wire = frame.Append(wire, frame.Frame{Type: 3, Payload: make([]byte, 32)}, frame.Check{})
	wire = frame.Append(wire, frame.Frame{Type: 16, Stream: 1, Payload: []byte("evil")}, frame.Check{})
	if _, err := c.Write(wire); err != nil {
		t.Fatal(err)
	}
	d := frame.NewDecoder(c)
	var types []frame.Type
	for {
		x, err := d.Next()
		if err != nil {
			break // the guest hung up
		}
		types = append(types, x.Type)
	}
	if fmt.Sprint(types) != "[2 5]" { // a challenge, a refusal
		t.Errorf("the guest answered %v", types)
	}
	exchange(t, p, 1, 1<<20)
	select {
	case <-served:
		t.Error("a stranger was served")
	default:
	}
}

func TestTakeover(t *testing.T) {
	ended := make(chan error, 1)
	f := listen(t, func(s *link.Stream, req []byte) {
		if string(req) == "wait" {
			<-s.Context().Done()
			ended <- context.Cause(s.Context())
		}
		echo(s, req)
	})
	first := connect(t, f.dial)
	if _, err := first.Open([]byte("wait")); err != nil {
		t.Fatal(err)
	}
	exchange(t, first, 1, 1000)
	second := connect(t, f.dial)
	if err := <-ended; !errors.Is(err, link.ErrDetached) {
		t.Errorf("the first host's request ended with %v", err)
	}
	exchange(t, second, 2, 1000)
	<-first.Done() // it dialled again and was told
	if err := first.Err(); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("the first host ended with %v", err)
	}
	exchange(t, second, 3, 1000)
}

// One stream that outlives its hosts, with noise in it, as a terminal or a container's standard input is.
func TestSharedStream(t *testing.T) {
	host, guest := net.Pipe()
	a, err := link.NewAcceptor(link.AcceptorOptions{Key: key, Handle: echo})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- a.Serve(guest, true) }()

	sessions := make(chan *session)
	go func() { // what arrives is for the newest host; what nobody is there for stays in the stream's buffer
		now := <-sessions
		buf := make([]byte, 32<<10)
		for {
			n, err := host.Read(buf)
			if err != nil {
				now.in.CloseWithError(err)
				return
			}
			for {
				if _, err := now.in.Write(buf[:n]); err == nil {
					break
				}
				select {
				case now = <-sessions:
				case <-t.Context().Done():
					return
				}
			}
		}
	}()
	for i := range uint64(3) {
		var last *session
		p, err := link.Connect(t.Context(), link.Options{Key: key, Dial: func(context.Context) (io.ReadWriteCloser, error) {
			if last != nil {
				return nil, errs.New(errs.SandboxGone, "this host is gone")
			}
			r, w := io.Pipe()
			last = &session{PipeReader: r, w: host, in: w}
			select {
			case sessions <- last:
			case <-time.After(50 * time.Millisecond): // it takes a new one when it has something for it
				go func(s *session) { sessions <- s }(last)
			}
			host.Write([]byte("\xb7b\x1fgnoise of a shell\r\n"))
			return last, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, p, i, 300<<10)
		// No goodbye: this host is simply gone, in the middle of a request.
		if _, err := p.Open([]byte("left alone")); err != nil {
			t.Fatal(err)
		}
		last.Close()
		<-p.Done()
	}
	host.Close()
	<-over
}

// session is a host's hold on a stream that goes on without it.
type session struct {
	*io.PipeReader
	w  io.Writer
	in *io.PipeWriter
}

func (s *session) Write(p []byte) (int, error) { return s.w.Write(p) }

func TestDialGivesUp(t *testing.T) {
	gone := errs.New(errs.SandboxGone, "the guest ended")
	calls := 0
	_, err := link.Connect(t.Context(), link.Options{Key: key, Dial: func(context.Context) (io.ReadWriteCloser, error) {
		calls++
		if calls < 3 {
			return nil, errors.New("not yet")
		}
		return nil, gone
	}})
	if !errors.Is(err, errs.SandboxGone) || calls != 3 {
		t.Fatalf("%d calls, %v", calls, err)
	}
}

func BenchmarkThroughput(b *testing.B) {
	a, err := link.NewAcceptor(link.AcceptorOptions{Key: key, Handle: func(s *link.Stream, _ []byte) {
		for range 512 {
			buf := s.Buffer(link.Chunk)
			if err := s.SendBuffer(s.Context(), 0, buf); err != nil {
				b.Error(err)
			}
		}
		s.Finish(nil)
	}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			a.Serve(c, false)
		}
	}()
	p, err := link.Connect(b.Context(), link.Options{Key: key, Dial: func(context.Context) (io.ReadWriteCloser, error) {
		return net.Dial("unix", l.Addr().String())
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(512 * link.Chunk)
	b.ReportAllocs()
	for b.Loop() {
		s, err := p.Open(nil)
		if err != nil {
			b.Fatal(err)
		}
		for {
			m, err := s.Recv(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if m.Kind == link.End {
				break
			}
			m.Release()
		}
		s.Close()
	}
}
