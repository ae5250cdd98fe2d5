// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"bytes"
	"context"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/rpc"
)

// Running is a command that goes on in the background.
type Running struct {
	Out  suite.Out // read after Wait
	Err  error     // read after Wait
	ID   string
	done chan struct{}
}

// Begin starts a command and waits until it has started.
func Begin(ctx context.Context, c *C, box driver.Sandbox, cmd *driver.Command, streams driver.Streams) *Running {
	r := &Running{done: make(chan struct{})}
	started := make(chan string, 1)
	streams.OnStart = func(s driver.Started) { started <- s.ProcessID }
	go func() {
		defer close(r.done)
		r.Out, r.Err = c.Try(ctx, box, cmd, streams)
	}()
	select {
	case r.ID = <-started:
	case <-r.done:
		c.Fatalf("%q ended before it had started: %v", cmd.Argv, r.Err)
	case <-c.Ctx().Done():
		c.Fatalf("%q did not start: %v", cmd.Argv, context.Cause(c.Ctx()))
	}
	return r
}

// wait waits for the end.
func (r *Running) Wait(c *C) {
	select {
	case <-r.done:
	case <-c.Ctx().Done():
		c.Fatalf("the command did not end: %v", context.Cause(c.Ctx()))
	}
}

// Signalled tells when a text was written to it.
type Signalled struct {
	want []byte
	have []byte
	seen chan struct{}
}

// Seen waits for a text.
func Seen(text string) *Signalled { return &Signalled{want: []byte(text), seen: make(chan struct{})} }

// Write looks for the text.
func (s *Signalled) Write(p []byte) (int, error) {
	select {
	case <-s.seen:
		return len(p), nil
	default:
	}
	s.have = append(s.have, p...)
	if bytes.Contains(s.have, s.want) {
		close(s.seen)
	}
	return len(p), nil
}

// Wait waits until the text was written by a command, which must not end before.
func (s *Signalled) Wait(c *C, r *Running) {
	select {
	case <-s.seen:
	case <-r.done:
		select {
		case <-s.seen:
		default:
			c.Fatalf("the command ended (%+v, %v) and had not printed %q but %q", r.Out.Exit, r.Err, s.want, r.Out.Stdout)
		}
	case <-c.Ctx().Done():
		c.Fatalf("the command did not print %q: %v", s.want, context.Cause(c.Ctx()))
	}
}

// Counter counts what is written.
type Counter struct{ N uint64 }

// Write counts.
func (w *Counter) Write(p []byte) (int, error) {
	w.N += uint64(len(p))
	return len(p), nil
}

// Spoken is a detached command that has printed text and whose caller has gone. It prints more and ends when done.
func Spoken(c *C, box *rpc.Sandbox, text []byte, cmd *driver.Command) string {
	name := c.Word("said")
	Put(c, box, name, text)
	cmd.Argv, cmd.Detached = []string{"sh", "-c", "cat " + name + "; sleep 3600"}, true
	ctx, cancel := context.WithCancelCause(c.Ctx())
	var n Counter
	all := make(chan struct{})
	run := Begin(ctx, c, box, cmd, driver.Streams{Stdout: Writer(func(p []byte) (int, error) {
		n.N += uint64(len(p))
		if n.N == uint64(len(text)) {
			close(all)
		}
		return len(p), nil
	})})
	select {
	case <-all:
	case <-c.Ctx().Done():
		c.Fatalf("of %d bytes %d came: %v", len(text), n.N, context.Cause(c.Ctx()))
	}
	cancel(ErrEnough)
	run.Wait(c)
	return run.ID
}

// Writer is a function that takes what is written.
type Writer func([]byte) (int, error)

// Write calls it.
func (w Writer) Write(p []byte) (int, error) { return w(p) }

// Follow attaches from an offset, ends the process when n bytes have come, and gives them.
func Follow(c *C, box *rpc.Sandbox, id string, offset uint64, n int) ([]byte, []driver.Gap) {
	var out bytes.Buffer
	var gaps []driver.Gap
	if n == 0 {
		c.OK(box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}), "signal KILL")
	}
	_, err := box.Attach(c.Ctx(), id, offset, driver.Streams{
		Stdout: Writer(func(p []byte) (int, error) {
			out.Write(p)
			if out.Len() == n {
				if err := box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}); err != nil {
					c.Errorf("signal KILL: %v", err)
				}
			}
			return len(p), nil
		}),
		OnGap: func(g driver.Gap) { gaps = append(gaps, g) },
	})
	c.OK(err, "attach from offset %d", offset)
	return out.Bytes(), gaps
}
