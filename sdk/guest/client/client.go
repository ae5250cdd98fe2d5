// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// partTime bounds the wait for what was queued when a client is closed.
const partTime = 2 * time.Second

// Options say how to reach a guest.
type Options struct {
	// Dial opens a stream to the guest. It is called again whenever the connection is lost. An error with the code
	// SandboxGone, AuthFailed or PermissionDenied ends the client; after any other it is tried again.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Key is what the guest was started with.
	Key []byte
	// ReconnectTimeout is how long a lost connection is dialled for until calls fail; 0 = 30 s.
	ReconnectTimeout time.Duration
	// Log gets news of the connection, as message and key-value pairs; nil = nobody.
	Log func(msg string, args ...any)
}

// Hello is what the guest says about itself.
type Hello struct {
	Version  string // of the guest
	Instance string // another for each start of a guest
	OS, Arch string
	PID      int64  // as the guest sees it
	Root     string // workspace root inside
	Started  time.Time
	// Isolation is what the stage that confined the guest reported.
	Isolation []driver.Isolation
}

// Client speaks with one guest. All methods may be called from several goroutines.
type Client struct {
	peer  *link.Peer
	hello Hello
}

var (
	_ driver.ProcessTable  = (*Client)(nil)
	_ driver.FileSystem    = (*Client)(nil)
	_ driver.TreeIO        = (*Client)(nil)
	_ driver.PortForwarder = (*Client)(nil)
	_ driver.Watcher       = (*Client)(nil)
	_ driver.AccountKeeper = (*Client)(nil)
)

// Connect dials the guest until it answers or ctx ends. A guest that does not know the key is errs.AuthFailed.
func Connect(ctx context.Context, opts Options) (*Client, error) {
	peer, err := link.Connect(ctx, link.Options{
		Dial: opts.Dial, Key: opts.Key, ReconnectTimeout: opts.ReconnectTimeout, Silence: silence, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	var h api.Hello
	if err := json.Unmarshal(peer.Info(), &h); err != nil {
		peer.Close(ctx)
		return nil, errs.New(errs.DriverIncompatible, "what the guest says about itself cannot be read: %v", err)
	}
	return &Client{peer: peer, hello: Hello{
		Version: h.Version, Instance: h.Instance, OS: h.OS, Arch: h.Arch, PID: h.PID, Root: h.Root, Started: h.Started,
		Isolation: h.Isolation,
	}}, nil
}

// silence is how often the guest wants to hear of its host.
func silence(info []byte) time.Duration {
	var h api.Hello
	if err := json.Unmarshal(info, &h); err != nil {
		return 0 // Connect says so
	}
	return time.Duration(h.SilenceMS) * time.Millisecond
}

// Hello gives what the guest reported.
func (c *Client) Hello() Hello { return c.hello }

// Close detaches: processes go on, and the guest's lease starts. Idempotent.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), partTime, errors.New("out of time"))
	defer cancel()
	c.peer.Close(ctx)
	return nil
}

// Shutdown ends every process and the guest, and returns when the guest said so or its connection ended.
func (c *Client) Shutdown(ctx context.Context) error {
	err := c.call(ctx, api.OpShutdown, nil)
	if errors.Is(err, errs.ExecTransport) && c.peer.Err() != nil {
		err = nil // it hung up before its answer was read
	}
	c.Close()
	return err
}

// Done is closed when the client can no longer reach the guest; Err says why.
func (c *Client) Done() <-chan struct{} { return c.peer.Done() }

// Err says why Done is closed; nil before.
func (c *Client) Err() error {
	if err := c.peer.Err(); err != nil {
		return c.broken("guest", err)
	}
	return nil
}

// broken is the error of a call whose conversation ended.
func (c *Client) broken(op string, err error) error {
	if errors.Is(err, link.ErrDetached) {
		return errs.Wrap(errs.ExecTransport, op, errs.New(errs.ExecTransport, "the connection to the guest has ended"))
	}
	e, ok := errors.AsType[*errs.Error](errs.Wrap(errs.ExecTransport, op, err))
	if !ok {
		return err
	}
	if e.Code == errs.ProcessUnknown { // of the conversation, see package link
		e.Code = errs.ExecTransport
	}
	e.MaybeApplied = true
	return e
}

// open sends a request.
func (c *Client) open(ctx context.Context, op api.Op, args any) (*link.Stream, error) {
	if ctx.Err() != nil {
		return nil, canceled(ctx, string(op))
	}
	b, err := api.NewRequest(op, args)
	if err != nil {
		return nil, errs.Wrap(errs.InvalidArgument, string(op), err)
	}
	st, err := c.peer.Open(b)
	if err != nil {
		return nil, c.failed(ctx, string(op), err)
	}
	return st, nil
}

// failed sorts out why a stream gave an error.
func (c *Client) failed(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return canceled(ctx, op)
	}
	return c.broken(op, err)
}

func canceled(ctx context.Context, op string) error {
	return &errs.Error{Code: errs.Canceled, Op: op, Err: context.Cause(ctx)}
}

// result decodes the end of a stream.
func result(m link.Message, value any) error {
	defer m.Release()
	var r api.Result
	if err := json.Unmarshal(m.Body, &r); err != nil {
		return errs.New(errs.ExecTransport, "the guest's answer cannot be read: %v", err)
	}
	if r.Error != nil {
		return r.Error.Err()
	}
	if value == nil {
		return nil
	}
	if err := json.Unmarshal(r.Value, value); err != nil {
		return errs.New(errs.ExecTransport, "the guest's answer cannot be read: %v", err)
	}
	return nil
}

// call sends a request that has nothing but an answer.
func (c *Client) call(ctx context.Context, op api.Op, args any) error {
	st, err := c.open(ctx, op, args)
	if err != nil {
		return err
	}
	defer st.Close()
	return c.receive(ctx, st, op, nil, nil)
}

// receive gives each message to take, until the result.
func (c *Client) receive(ctx context.Context, st *link.Stream, op api.Op, value any, take func(*link.Message) error) error {
	for {
		m, err := st.Recv(ctx)
		if err != nil {
			return c.failed(ctx, string(op), err)
		}
		if m.Kind == link.End {
			return result(m, value)
		}
		if take != nil {
			err = take(&m)
		}
		m.Release()
		if err != nil {
			return err
		}
	}
}

func newID() string { return rand.Text() }
