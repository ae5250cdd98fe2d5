// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// keepSize is the least that is worth being kept instead of copied.
const keepSize = 64 << 10

// endTime is how long a canceled call waits, besides the grace, to hear that nothing of the tree is left.
const endTime = 12 * time.Second

// Run runs one command to its end, as driver.Sandbox says. A reader of standard input that waits for ever is left waiting
// when Run returns.
func (c *Client) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	args := api.NewCommand(cmd)
	if args.ID == "" {
		args.ID = newID()
	}
	st, err := c.open(ctx, api.OpRun, args)
	if err != nil {
		return driver.Exit{}, err
	}
	grace := cmd.KillGrace
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	f := &follower{c: c, st: st, id: args.ID, op: api.OpRun, streams: streams, detached: cmd.Detached, grace: grace, own: true}
	return f.run(ctx)
}

// Attach follows a process from an output offset. When ctx ends, the tree is ended unless it was started detached. A nil
// standard input leaves the process's as it is.
func (c *Client) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	st, err := c.open(ctx, api.OpAttach, api.Attach{ID: id, Offset: offset})
	if err != nil {
		return driver.Exit{}, err
	}
	f := &follower{c: c, st: st, id: id, op: api.OpAttach, streams: streams, grace: driver.DefaultKillGrace}
	return f.run(ctx)
}

// follower moves what belongs to one process.
type follower struct {
	c        *Client
	st       *link.Stream
	id       string
	op       api.Op
	streams  driver.Streams
	detached bool
	grace    time.Duration
	own      bool          // started by this call
	started  chan struct{} // closed when the guest says that the process exists
}

func (f *follower) run(ctx context.Context) (driver.Exit, error) {
	defer f.st.Close()
	f.started = make(chan struct{})
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	switch {
	case f.streams.Stdin != nil:
		go f.stdin(inner)
	case f.own:
		f.st.EndInput()
	}
	if f.streams.Resize != nil || f.streams.Signals != nil {
		go f.control(inner)
	}

	var exit driver.Exit
	err := f.c.receive(ctx, f.st, f.op, &exit, f.take)
	if err == nil || f.over() {
		return exit, err
	}
	// The caller wants no more, or cannot take it: the command has to end before this returns.
	f.st.Cancel()
	if !f.detached {
		f.wait()
	}
	return driver.Exit{}, err
}

// over tells whether an error was the guest's answer, or nobody is there to cancel anything.
func (f *follower) over() bool {
	select {
	case <-f.c.peer.Done():
		return true
	default:
	}
	return f.st.Ended()
}

// wait waits until the guest says that it is done with the process.
func (f *follower) wait() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), f.grace+endTime, errs.New(errs.ExecTimeout, "the process did not end"))
	defer cancel()
	f.c.receive(ctx, f.st, f.op, nil, nil) //nolint:errcheck // the caller's reason is the error
}

// writeError is what the caller's writer said.
type writeError struct{ err error }

func (e *writeError) Error() string { return fmt.Sprintf("write the command's output: %v", e.err) }
func (e *writeError) Unwrap() error { return e.err }

// take handles one message.
func (f *follower) take(m *link.Message) error {
	if m.Kind == link.Data {
		w := f.streams.Stdout
		if m.Sub == api.SubStderr {
			w = f.streams.Stderr
		}
		if w == nil {
			return nil
		}
		if err := pass(w, m); err != nil {
			return errs.Wrap(errs.Internal, string(f.op), &writeError{err})
		}
		return nil
	}
	switch m.Sub {
	case api.SubStarted:
		var s driver.Started
		if err := json.Unmarshal(m.Body, &s); err != nil {
			return errs.Wrap(errs.ExecTransport, string(f.op), err)
		}
		select {
		case <-f.started:
		default:
			close(f.started)
		}
		if f.streams.OnStart != nil {
			f.streams.OnStart(s)
		}
	case api.SubGap:
		var g driver.Gap
		if err := json.Unmarshal(m.Body, &g); err != nil {
			return errs.Wrap(errs.ExecTransport, string(f.op), err)
		}
		if f.streams.OnGap != nil {
			f.streams.OnGap(g)
		}
	}
	return nil
}

// keeper is a writer that can hold what it is given: what is under way need not be copied. It calls free once, also after an
// error.
type keeper interface {
	Keep(p []byte, free func()) error
}

// pass gives output to its writer.
func pass(w io.Writer, m *link.Message) error {
	k, ok := w.(keeper)
	if !ok || len(m.Body) < keepSize {
		_, err := w.Write(m.Body)
		return err
	}
	own := *m
	*m = link.Message{}
	return k.Keep(own.Body, own.Release)
}

// stdin sends what the caller types.
func (f *follower) stdin(ctx context.Context) {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.streams.Stdin.Read(buf)
		if n > 0 && f.st.Send(ctx, api.SubStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			if ctx.Err() == nil {
				f.st.EndInput() // also when reading failed: nothing more will come
			}
			return
		}
	}
}

// control sends signals and sizes beside the stream, so that unread input does not hold them up. It waits for the process:
// beside the stream they could overtake its start.
func (f *follower) control(ctx context.Context) {
	select {
	case <-f.started:
	case <-ctx.Done():
		return
	}
	resize, signals := f.streams.Resize, f.streams.Signals
	for resize != nil || signals != nil {
		select {
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			f.c.call(ctx, api.OpResize, api.Resize{ID: f.id, Size: size}) //nolint:errcheck // a process that has ended has no size
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			f.c.call(ctx, api.OpSignal, api.Signal{ID: f.id, Signal: sig}) //nolint:errcheck // a process that has ended takes none
		case <-ctx.Done():
			return
		}
	}
}

// Signal sends a signal to a process or its whole tree.
func (c *Client) Signal(ctx context.Context, id string, sig driver.Signal) error {
	return c.call(ctx, api.OpSignal, api.Signal{ID: id, Signal: sig})
}

// Processes lists the processes that run, and those that ended not long ago.
func (c *Client) Processes(ctx context.Context) ([]driver.Process, error) {
	st, err := c.open(ctx, api.OpProcesses, nil)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	var all []byte
	err = c.receive(ctx, st, api.OpProcesses, nil, func(m *link.Message) error {
		all = append(all, m.Body...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var list []api.Process
	if err := json.Unmarshal(all, &list); err != nil {
		return nil, errs.New(errs.ExecTransport, "the guest's answer cannot be read: %v", err)
	}
	ps := make([]driver.Process, len(list))
	for i, p := range list {
		ps[i] = p.Process
		ps[i].Argv = api.Strings(p.Argv)
	}
	return ps, nil
}

// EnsureAccounts makes users and groups where they are missing. The guest has to run as root, and its /etc be writable.
func (c *Client) EnsureAccounts(ctx context.Context, a driver.Accounts) error {
	return c.call(ctx, api.OpAccounts, a)
}
