// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// endTimeout bounds, beside the command's own grace, the end of a process whose caller is gone.
const endTimeout = 5 * time.Second

// Run runs one command to its end, over restarts of the driver, see the package's comment.
func (s *Sandbox) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c := *cmd
	if c.ID == "" {
		c.ID = ulid.Make().String()
	}
	f := &follower{s: s, cmd: &c, id: c.ID, tty: c.TTY}
	return f.follow(ctx, streams)
}

// Attach follows a process from an output offset, over restarts of the driver.
func (s *Sandbox) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	f := &follower{s: s, id: id, offset: offset, started: true}
	return f.follow(ctx, streams)
}

// follower stays with one process until its end, from one life of the driver to the next.
type follower struct {
	s   *Sandbox
	cmd *driver.Command // nil = only attach
	id  string
	tty bool

	offset  uint64 // of the next byte of output: what the caller has seen
	started bool   // the driver said so
	lives   int    // of the driver that it was attached in
}

func (f *follower) follow(ctx context.Context, streams driver.Streams) (driver.Exit, error) {
	var in *input
	if streams.Stdin != nil {
		in = newInput(streams.Stdin)
		defer close(in.done)
	}
	inner := f.metered(streams)
	r := retrier{p: f.s.p}
	for {
		box, l, err := f.s.current(ctx)
		if err != nil {
			return driver.Exit{}, f.lost(err)
		}
		var view *inputView
		if in != nil {
			view = in.view()
			inner.Stdin = view
		}
		exit, err := f.attempt(ctx, box, l, inner)
		if view != nil {
			view.close()
		}
		if err == nil {
			return exit, nil
		}
		if ctx.Err() != nil {
			f.abandon(ctx, box)
			return exit, err
		}
		if crash := f.s.p.crashed(ctx, l, err); crash != nil {
			f.lives++
			if err := f.mayGoOn(ctx, in, crash); err != nil {
				return driver.Exit{}, err
			}
			continue
		}
		if f.started {
			return exit, err
		}
		// Not started: the policy for a call that is not idempotent.
		switch v, err := r.after(ctx, l, err); v {
		case giveUp:
			return exit, err
		case repeatResumed:
			f.s.forget(box)
		case repeat:
		}
	}
}

// attempt starts the process, or attaches to it, in one life.
func (f *follower) attempt(ctx context.Context, box driver.Sandbox, l *live, streams driver.Streams) (driver.Exit, error) {
	if f.cmd != nil && f.lives == 0 {
		return box.Run(ctx, f.cmd, streams)
	}
	table, ok := box.(driver.ProcessTable)
	if !ok {
		return driver.Exit{}, f.lost(unsupported(driver.ProcAttach))
	}
	exit, err := table.Attach(ctx, f.id, f.offset, streams)
	switch {
	case f.cmd == nil || f.lives == 0:
		return exit, err
	case errors.Is(err, errs.ProcessUnknown) && !f.started && f.s.Reattached() && slices.Contains(l.desc.Features, driver.ProcAttach):
		// The dead driver had not started it: the sandbox, which remembers its processes, does not know it.
		return box.Run(ctx, f.cmd, streams)
	case errors.Is(err, errs.ProcessUnknown), errors.Is(err, errs.Unsupported):
		return exit, f.lost(err)
	default:
		return exit, err
	}
}

// mayGoOn decides whether the process can be followed after a crash. When it cannot, the process is ended.
func (f *follower) mayGoOn(ctx context.Context, in *input, crash error) error {
	if in == nil || !in.doubtful() {
		return nil
	}
	if f.tty {
		f.s.p.m.cfg.Notify(Event{
			Kind: Warning, Driver: f.s.p.name, SandboxID: f.s.id, Err: crash,
			Message: "the driver ended while input was on its way to a terminal; the last of it may be lost",
		})
		return nil
	}
	if box, _, err := f.s.current(ctx); err == nil {
		f.end(ctx, box)
	}
	e := errs.New(errs.ExecTransport, "the driver ended while input was on its way to the process; some of it may be lost, so the process was ended")
	e.MaybeApplied, e.Err, e.Retry = true, crash, errs.RetryNever
	return e
}

// lost is the error of a process that cannot be found again.
func (f *follower) lost(err error) error {
	if f.lives == 0 {
		return err
	}
	e := errs.New(errs.ExecTransport, "the process was lost with its driver").With("process", f.id)
	e.MaybeApplied, e.Err, e.Retry = true, err, errs.RetryNever
	return e
}

// abandon ends the process when the caller's context ended while it was only attached to. Run itself sees to the end
// of what it started.
func (f *follower) abandon(ctx context.Context, box driver.Sandbox) {
	if f.cmd != nil && f.lives > 0 && !f.cmd.Detached {
		f.end(ctx, box)
	}
}

// end ends the whole tree: TERM, the grace, KILL.
func (f *follower) end(ctx context.Context, box driver.Sandbox) {
	table, ok := box.(driver.ProcessTable)
	if !ok {
		return
	}
	grace := driver.DefaultKillGrace
	if f.cmd != nil && f.cmd.KillGrace > 0 {
		grace = f.cmd.KillGrace
	}
	ctx = context.WithoutCancel(ctx)
	for _, step := range []struct {
		signal string
		wait   time.Duration
	}{{"TERM", grace}, {"KILL", endTimeout}} {
		sctx, cancel := context.WithTimeoutCause(ctx, step.wait, errs.New(errs.StopFailed, "the process did not end"))
		err := table.Signal(sctx, f.id, driver.Signal{Name: step.signal})
		if err == nil {
			_, err = table.Attach(sctx, f.id, f.offset, driver.Streams{})
		}
		cancel()
		if err == nil || errors.Is(err, errs.ProcessUnknown) {
			return
		}
	}
}

// metered gives streams that keep count of the output.
func (f *follower) metered(s driver.Streams) driver.Streams {
	out := s
	out.Stdout = &meter{f, s.Stdout}
	out.Stderr = &meter{f, s.Stderr}
	told := false
	out.OnStart = func(st driver.Started) {
		f.started = true
		if s.OnStart != nil && !told {
			told = true
			s.OnStart(st)
		}
	}
	out.OnGap = func(g driver.Gap) {
		f.offset = g.To
		if s.OnGap != nil {
			s.OnGap(g)
		}
	}
	return out
}

// meter counts what it passes on. Both meters of a follower share one count: they are never written at the same time.
type meter struct {
	f *follower
	w io.Writer // nil = thrown away
}

func (m *meter) Write(p []byte) (n int, err error) {
	n = len(p)
	if m.w != nil {
		n, err = m.w.Write(p)
	}
	m.f.offset += uint64(n)
	return n, err
}
