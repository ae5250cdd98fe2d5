// SPDX-License-Identifier: Apache-2.0

// Package tunnel gives ports inside a sandbox addresses on this machine, over connections that the guest makes.
package tunnel

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/berth-dev/berth/sdk/errs"
)

// Dial connects to a port inside.
type Dial func(ctx context.Context, port uint16) (net.Conn, error)

// Set is the open tunnels of a sandbox. The zero value has none.
type Set struct {
	mu   sync.Mutex
	open map[uint16]*tunnel // guarded by mu
}

// tunnel is one port.
type tunnel struct {
	listener net.Listener
	address  *net.TCPAddr
	cancel   context.CancelCauseFunc
	all      sync.WaitGroup // of its goroutines
}

// Open gives the address for a port inside; the same one as long as it is open.
func (s *Set) Open(port uint16, dial Dial) (*net.TCPAddr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.open[port]; t != nil {
		return t.address, nil
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, errs.Wrap(errs.PortUnavailable, "listen on this machine", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	at, _ := l.Addr().(*net.TCPAddr) // it is one
	t := &tunnel{listener: l, address: at, cancel: cancel}
	t.all.Go(func() { t.accept(ctx, port, dial) })
	if s.open == nil {
		s.open = map[uint16]*tunnel{}
	}
	s.open[port] = t
	return at, nil
}

// Drop closes the tunnel of a port, if there is one.
func (s *Set) Drop(port uint16) {
	s.mu.Lock()
	t := s.open[port]
	delete(s.open, port)
	s.mu.Unlock()
	if t != nil {
		t.close()
	}
}

// Close closes all.
func (s *Set) Close() {
	s.mu.Lock()
	all := s.open
	s.open = nil
	s.mu.Unlock()
	for _, t := range all {
		t.close()
	}
}

func (t *tunnel) close() {
	t.cancel(net.ErrClosed)
	_ = t.listener.Close() // closing is the point
	t.all.Wait()
}

func (t *tunnel) accept(ctx context.Context, port uint16, dial Dial) {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			return // it was closed
		}
		t.all.Go(func() { carry(ctx, c, port, dial) })
	}
}

// carry moves bytes both ways until both ends have said all, or the tunnel is closed.
func carry(ctx context.Context, outside net.Conn, port uint16, dial Dial) {
	defer outside.Close()
	inside, err := dial(ctx, port)
	if err != nil {
		return // whoever connected sees it closed, as when nobody listens
	}
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() {
		_, _ = outside.Close(), inside.Close() // ends the copies
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { oneWay(inside, outside) })
	both.Go(func() { oneWay(outside, inside) })
	both.Wait()
}

// oneWay copies, then says that nothing more comes. After an error there is nothing to say.
func oneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite() // a connection that is gone needs none
		return
	}
	_, _ = to.Close(), from.Close() // the other way ends too
}
