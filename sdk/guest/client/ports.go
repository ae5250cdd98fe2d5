// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// Dial connects to a TCP port on the sandbox's loopback. The connection outlives ctx.
func (c *Client) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	st, err := c.open(ctx, api.OpDial, api.Dial{Port: port})
	if err != nil {
		return nil, err
	}
	m, err := c.ready(ctx, st, api.OpDial)
	if err != nil {
		st.Close()
		return nil, err
	}
	m.Release()
	conn := &conn{st: st, port: port}
	conn.read.init()
	conn.write.init()
	return conn, nil
}

// conn is a connection through a stream. It can be closed in one direction.
type conn struct {
	st   *link.Stream
	port uint16

	readMu sync.Mutex // one reader at a time
	msg    link.Message
	at     int
	err    error // what Read gives from now on

	writeMu     sync.Mutex // one writer at a time
	read, write deadline
}

// deadline is a context that can be given another end.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	ctx    context.Context //nolint:containedctx // the present deadline
	cancel context.CancelCauseFunc
}

func (d *deadline) init() { d.ctx, d.cancel = context.WithCancelCause(context.Background()) }

func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.ctx.Err() != nil {
		d.init()
	}
	if t.IsZero() {
		return
	}
	cancel := d.cancel
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { cancel(os.ErrDeadlineExceeded) })
	} else {
		cancel(os.ErrDeadlineExceeded)
	}
}

func (c *conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for c.at >= len(c.msg.Body) {
		c.msg.Release()
		c.msg, c.at = link.Message{}, 0
		if c.err != nil {
			return 0, c.err
		}
		m, err := c.st.Recv(c.read.context())
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case errors.Is(err, context.Canceled):
			return 0, net.ErrClosed
		case err != nil:
			return 0, errs.Wrap(errs.ExecTransport, "port.read", err)
		case m.Kind == link.End:
			if c.err = result(m, nil); c.err == nil {
				c.err = io.EOF
			}
		case m.Kind == link.Data:
			c.msg = m
		default:
			m.Release()
		}
	}
	n := copy(p, c.msg.Body[c.at:])
	c.at += n
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	n := 0
	for len(p) > 0 {
		m := min(len(p), link.Chunk)
		if err := c.st.Send(c.write.context(), api.SubContent, p[:m]); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return n, err
			}
			return n, errs.Wrap(errs.ExecTransport, "port.write", err)
		}
		n += m
		p = p[m:]
	}
	return n, nil
}

// CloseWrite ends this side's sending.
func (c *conn) CloseWrite() error {
	c.st.EndInput()
	return nil
}

func (c *conn) Close() error {
	c.st.Close()
	return nil
}

func (c *conn) LocalAddr() net.Addr { return addr("guest") }
func (c *conn) RemoteAddr() net.Addr {
	return addr(net.JoinHostPort("localhost", strconv.Itoa(int(c.port))))
}

func (c *conn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// addr is an address inside the sandbox.
type addr string

func (addr) Network() string  { return "guest" }
func (a addr) String() string { return string(a) }

// Watch reports ports that open and close, and processes ended for lack of memory, until ctx ends. It begins with the
// ports that are open already.
func (c *Client) Watch(ctx context.Context, report func(driver.Event)) error {
	st, err := c.open(ctx, api.OpWatch, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	return c.receive(ctx, st, api.OpWatch, nil, func(m *link.Message) error {
		if m.Kind != link.Control || m.Sub != api.SubEvent {
			return nil
		}
		var e driver.Event
		if err := json.Unmarshal(m.Body, &e); err != nil {
			return errs.Wrap(errs.ExecTransport, string(api.OpWatch), err)
		}
		report(e)
		return nil
	})
}
