// SPDX-License-Identifier: Apache-2.0

// Package portforward makes a port inside a sandbox reachable on this machine: it listens, and passes every connection on
// through the driver. It knows nothing of sessions or configuration.
package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/berth-dev/berth/sdk/driver"
)

// Forward is a port that is forwarded.
type Forward struct {
	dialer driver.PortForwarder
	remote uint16
	failed func(error)
	l      net.Listener
	end    context.CancelFunc
	all    sync.WaitGroup
}

// Listen forwards connections from local, an address of this machine with a port (0 = any free one), to a port inside,
// until Close. It keeps the values of ctx and not its end. A connection that cannot be made inside is closed, and failed,
// unless nil, is told why; it may be called from several goroutines.
func Listen(ctx context.Context, dialer driver.PortForwarder, local string, remote uint16, failed func(error)) (*Forward, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", local)
	if err != nil {
		return nil, fmt.Errorf("forward port %d: %w", remote, err)
	}
	if failed == nil {
		failed = func(error) {}
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx)) //nolint:forbidigo // its end has no cause: it was closed
	f := &Forward{dialer: dialer, remote: remote, failed: failed, l: l, end: end}
	f.all.Go(func() { f.accept(ctx) })
	return f, nil
}

// Addr is where it listens.
func (f *Forward) Addr() net.Addr { return f.l.Addr() }

// Remote is the port inside.
func (f *Forward) Remote() uint16 { return f.remote }

// Close ends the listener and every connection, and waits for them.
func (f *Forward) Close() {
	f.l.Close()
	f.end()
	f.all.Wait()
}

func (f *Forward) accept(ctx context.Context) {
	for {
		c, err := f.l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				f.failed(fmt.Errorf("port %d: %w", f.remote, err))
			}
			return
		}
		f.all.Go(func() {
			if err := f.serve(ctx, c); err != nil && ctx.Err() == nil {
				f.failed(fmt.Errorf("port %s: %w", strconv.Itoa(int(f.remote)), err))
			}
		})
	}
}

// serve passes one connection on until both directions have ended.
func (f *Forward) serve(ctx context.Context, c net.Conn) error {
	defer c.Close()
	inside, err := f.dialer.Dial(ctx, f.remote)
	if err != nil {
		return err
	}
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() {
		c.Close()
		inside.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { oneWay(inside, c) })
	both.Go(func() { oneWay(c, inside) })
	both.Wait()
	return nil
}

// oneWay copies, then passes on that there is no more to come. A broken connection ends both directions.
func oneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		half.CloseWrite() //nolint:errcheck // the other side has gone
		return
	}
	to.Close()
	from.Close()
}
