// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

const (
	// maxMessage is what one message to a terminal carries; twice as much would be refused.
	maxMessage = 32 << 10
	readLimit  = 1 << 20
	// dialTime bounds a connection to a terminal until it says that it is there.
	dialTime = 30 * time.Second
)

// PTY is a terminal with a login shell. It lives until the shell ends, or is deleted.
type PTY struct {
	ID        string            `json:"id"`
	Cwd       string            `json:"cwd,omitempty"`
	Env       map[string]string `json:"envs,omitempty"` // shown to whoever lists
	Cols      int               `json:"cols,omitempty"`
	Rows      int               `json:"rows,omitempty"`
	LazyStart bool              `json:"lazyStart,omitempty"` // the shell starts with the first connection: nothing that it says is lost
	Active    bool              `json:"active,omitempty"`
}

func ptyPath(id, rest string) string { return "process/pty/" + url.PathEscape(id) + rest }

// OpenPTY makes a terminal under the id that want has.
func (t *Toolbox) OpenPTY(ctx context.Context, want *PTY) error {
	return t.do(ctx, &vendorhttp.Request{Op: "open a terminal", Method: http.MethodPost, Path: "process/pty", JSON: want}, nil)
}

// PTY looks at a terminal. One that is not there is errs.ProcessUnknown.
func (t *Toolbox) PTY(ctx context.Context, id string) (*PTY, error) {
	var p PTY
	if err := t.do(ctx, &vendorhttp.Request{Op: "look at a terminal", Path: ptyPath(id, "")}, &p); err != nil {
		return nil, noTerminal(err)
	}
	return &p, nil
}

func noTerminal(err error) error {
	if e, ok := asError(err); ok && NotFound(err) && e.Code == errs.FileNotFound {
		c := *e
		c.Code = errs.ProcessUnknown
		return &c
	}
	return err
}

// ResizePTY changes a terminal's size.
func (t *Toolbox) ResizePTY(ctx context.Context, id string, cols, rows int) error {
	body := map[string]int{"cols": cols, "rows": rows}
	return t.do(ctx, &vendorhttp.Request{Op: "resize a terminal", Method: http.MethodPost, Path: ptyPath(id, "/resize"), JSON: body, Repeatable: true}, nil)
}

// DeletePTY ends a terminal. One that is not there is no error.
func (t *Toolbox) DeletePTY(ctx context.Context, id string) error {
	err := t.do(ctx, &vendorhttp.Request{Op: "close a terminal", Method: http.MethodDelete, Path: ptyPath(id, "")}, nil)
	if NotFound(err) {
		return nil
	}
	return err
}

// PTYExit is the end of a stream whose terminal's shell has ended.
type PTYExit struct {
	Code   int
	Reason string
}

func (e *PTYExit) Error() string {
	s := fmt.Sprintf("the terminal's program ended with %d", e.Code)
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	return s
}

// PTYConn is a connection to a terminal: its input and its output. Reading it ends with a [*PTYExit] when the shell has
// ended; any other error is the connection's, and the terminal can be connected to again, without what it said meanwhile.
// A reader that does not keep up is cut off by the vendor.
type PTYConn struct {
	ws     *websocket.Conn
	cancel context.CancelCauseFunc
	ctx    context.Context //nolint:containedctx // of the connection, not of a call
	once   sync.Once
	rest   []byte
}

var _ io.ReadWriteCloser = (*PTYConn)(nil)

// ConnectPTY connects to a terminal. One that is not there is errs.ProcessUnknown.
func (t *Toolbox) ConnectPTY(ctx context.Context, id string) (*PTYConn, error) {
	const op = "connect to a terminal"
	dialling, stop := context.WithTimeoutCause(ctx, dialTime, errs.New(errs.ExecTransport, "the terminal did not answer within %s", dialTime))
	defer stop()
	u := t.http.URL(ptyPath(id, "/connect"), nil)
	ws, resp, err := websocket.Dial(dialling, u.String(), &websocket.DialOptions{ //nolint:bodyclose // the package says that it need not be closed
		HTTPClient: t.c.sockets, HTTPHeader: t.headers.Clone(), CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, t.dialError(dialling, op, resp, err)
	}
	ws.SetReadLimit(readLimit)
	kind, said, err := ws.Read(dialling)
	if err != nil {
		_ = ws.CloseNow() // the first error is the one to tell
		return nil, t.dialError(dialling, op, nil, err)
	}
	c := &PTYConn{ws: ws}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if kind != websocket.MessageText { // an older daemon says nothing first
		c.rest = said
		return c, nil
	}
	var control struct{ Type, Status, Error string }
	if json.Unmarshal(said, &control) == nil && control.Status == "error" {
		_ = ws.CloseNow() // the same
		e := errs.New(errs.ExecTransport, "%s", control.Error)
		if strings.Contains(strings.ToLower(control.Error), "not found") {
			e.Code = errs.ProcessUnknown
		}
		e.Op = op
		return nil, e
	}
	return c, nil
}

// dialError types why there is no connection.
func (t *Toolbox) dialError(ctx context.Context, op string, resp *http.Response, err error) error {
	if ctx.Err() != nil {
		if e, ok := errors.AsType[*errs.Error](context.Cause(ctx)); ok {
			return e
		}
		return &errs.Error{Code: errs.Canceled, Op: op, Err: context.Cause(ctx)}
	}
	e := &errs.Error{Code: errs.ExecTransport, Op: op, Message: t.http.Redacted(err.Error())}
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return e
	}
	a := vendorhttp.Answer{Op: op, Status: resp.StatusCode, Header: resp.Header}
	if resp.Body != nil {
		a.Body, _ = io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what there is of it helps
	}
	of := classify(a)
	if of == nil {
		of = vendorhttp.FromStatus(resp.StatusCode)
	}
	e.Code, e.Retry, e.Hint, e.Vendor = of.Code, of.Retry, of.Hint, of.Vendor
	if e.Vendor == nil {
		e.Vendor = &errs.Vendor{}
	}
	e.Vendor.HTTPStatus, e.Vendor.Message, e.Vendor.RequestID = a.Status, t.http.Redacted(vendorhttp.Message(a.Body)), resp.Header.Get("X-Request-Id")
	e.Message = fmt.Sprintf("the vendor answered %d: %s", a.Status, e.Vendor.Message)
	return e
}

// Read gives what the terminal says.
func (c *PTYConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		kind, b, err := c.ws.Read(c.ctx)
		if err != nil {
			return 0, ended(err)
		}
		if kind == websocket.MessageBinary {
			c.rest = b
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// ended tells the end of a program from that of a connection. The vendor closes with "internal error" when a program ends
// with another code than 0.
func ended(err error) error {
	closed, ok := errors.AsType[websocket.CloseError](err)
	var said struct {
		ExitCode   *int   `json:"exitCode"`
		ExitReason string `json:"exitReason"`
	}
	if ok && json.Unmarshal([]byte(closed.Reason), &said) == nil && said.ExitCode != nil {
		return &PTYExit{Code: *said.ExitCode, Reason: said.ExitReason}
	}
	if ok {
		return errs.New(errs.ExecTransport, "the terminal's connection was closed: %s (%d)", closed.Reason, closed.Code)
	}
	return errs.Wrap(errs.ExecTransport, "read from a terminal", err)
}

// Write is typed into the terminal.
func (c *PTYConn) Write(p []byte) (int, error) {
	done := 0
	for len(p) > 0 {
		n := min(len(p), maxMessage)
		if err := c.ws.Write(c.ctx, websocket.MessageBinary, p[:n]); err != nil {
			return done, errs.Wrap(errs.ExecTransport, "write to a terminal", err)
		}
		done += n
		p = p[n:]
	}
	return done, nil
}

// Close hangs up. The terminal goes on.
func (c *PTYConn) Close() error {
	c.once.Do(func() {
		c.cancel(net.ErrClosed)
		_ = c.ws.CloseNow() // hanging up is the point
	})
	return nil
}
