// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// resumeTimeout bounds the resume of one sandbox after its driver was lost.
const resumeTimeout = 2 * time.Minute

// Sandbox is a sandbox that survives its driver's process, see the package's comment. It may be used from several
// goroutines.
type Sandbox struct {
	p  *process
	id string

	telling sync.Mutex // held while the loss of a life is told

	mu         sync.Mutex
	again      driver.ResumeRequest // guarded by mu; what a resume needs, but for the state
	box        driver.Sandbox       // guarded by mu; of the newest life, also when that has ended
	live       *live                // guarded by mu; the life that box belongs to; nil = resume first
	resuming   *resumption          // guarded by mu; nil = nobody resumes
	asleep     driver.Status        // guarded by mu; stopped or paused: resumed by a call only; empty = awake
	sleptIn    *live                // guarded by mu; the life in which it went to sleep
	told       *live                // guarded by mu; the last life whose end was told
	emul       *emul.Emulator       // guarded by mu; for what emulOf lacks
	emulOf     driver.Sandbox       // guarded by mu
	ended      error                // guarded by mu; set = gone, destroyed or closed
	preserved  bool                 // guarded by mu
	reattached bool                 // guarded by mu
}

// resumption is one resume that several callers may wait for.
type resumption struct {
	done chan struct{}
	err  error
}

var (
	_ driver.Sandbox           = (*Sandbox)(nil)
	_ driver.Stopper           = (*Sandbox)(nil)
	_ driver.Pauser            = (*Sandbox)(nil)
	_ driver.Inspector         = (*Sandbox)(nil)
	_ driver.Preserved         = (*Sandbox)(nil)
	_ driver.Reattached        = (*Sandbox)(nil)
	_ driver.DeadlineExtender  = (*Sandbox)(nil)
	_ driver.Watcher           = (*Sandbox)(nil)
	_ driver.FileSystem        = (*Sandbox)(nil)
	_ driver.FileWatcher       = (*Sandbox)(nil)
	_ driver.TreeIO            = (*Sandbox)(nil)
	_ driver.ProcessTable      = (*Sandbox)(nil)
	_ driver.NativeSnapshotter = (*Sandbox)(nil)
	_ driver.PortExposer       = (*Sandbox)(nil)
	_ driver.PortForwarder     = (*Sandbox)(nil)
	_ driver.Mounter           = (*Sandbox)(nil)
	_ driver.AccountKeeper     = (*Sandbox)(nil)
)

// ID is the sandbox's id.
func (s *Sandbox) ID() string { return s.id }

// current gives the driver's sandbox in the running process, resumed if need be.
func (s *Sandbox) current(ctx context.Context) (driver.Sandbox, *live, error) {
	for {
		if err := s.over(); err != nil {
			return nil, nil, err
		}
		l, err := s.p.get(ctx)
		if err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		if s.ended != nil {
			defer s.mu.Unlock()
			return nil, nil, s.ended
		}
		if s.live == l {
			defer s.mu.Unlock()
			return s.box, l, nil
		}
		r := s.resuming
		if r == nil {
			r = &resumption{done: make(chan struct{})}
			s.resuming = r
			if !s.p.m.spawn(func() { s.resume(r, l) }) {
				s.resuming, r.err = nil, errs.Wrap(errs.Canceled, "resume sandbox "+s.id, errClosed)
				close(r.done)
			}
		}
		s.mu.Unlock()
		select {
		case <-r.done:
			// A process that died while it resumed is no answer: the next one resumes.
			if r.err != nil && !l.dead() {
				return nil, nil, r.err
			}
		case <-ctx.Done():
			return nil, nil, errs.Wrap(errs.Canceled, "wait for sandbox "+s.id, context.Cause(ctx))
		}
	}
}

// over is why the sandbox takes no more calls, nil as long as it does.
func (s *Sandbox) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// resume finds the sandbox again from its last state.
func (s *Sandbox) resume(r *resumption, l *live) {
	s.mu.Lock()
	req := s.again
	req.Mounts = slices.Clone(req.Mounts)
	req.State = s.box.State()
	before := s.live
	s.mu.Unlock()
	if before != nil && before.dead() {
		s.tellLost(before)
	}
	ctx, cancel := context.WithTimeoutCause(s.p.m.ctx, resumeTimeout,
		errs.New(errs.StartFailed, "sandbox %s was not resumed within %s", s.id, resumeTimeout))
	box, err := l.drv.Resume(ctx, &req)
	cancel()
	if err != nil {
		// Notices whether the process died of it.
		if crash := s.p.crashed(s.p.m.ctx, l, err); crash != nil {
			err = crash
		}
	}
	s.mu.Lock()
	s.resuming = nil
	gone := false
	if err == nil {
		s.box, s.live, s.asleep, s.sleptIn = box, l, "", nil
		s.reattached = reattached(box)
		s.preserved = true
	} else {
		r.err = errs.Wrap(errs.StartFailed, "resume sandbox "+s.id, err)
		if gone = errors.Is(err, errs.SandboxGone); gone {
			s.ended = r.err
		}
	}
	event := Event{Kind: Recovered, Driver: s.p.name, SandboxID: s.id, Reattached: s.reattached}
	close(r.done)
	s.mu.Unlock()
	switch {
	case gone:
		s.p.leave(s)
		s.p.m.cfg.Notify(Event{Kind: Gone, Driver: s.p.name, SandboxID: s.id, Message: r.err.Error(), Err: r.err})
	case err != nil:
		s.p.m.cfg.Log.Warn("sandbox was not resumed", "driver", s.p.name, "sandbox_id", s.id, "error", err)
	default:
		s.p.m.cfg.Notify(event)
	}
}

// recover resumes the sandbox after its process was lost, unless it sleeps: its own processes may have only so long
// until somebody comes back.
func (s *Sandbox) recover(lost *live) {
	s.mu.Lock()
	wanted := s.live == lost && s.asleep == "" && s.ended == nil
	s.mu.Unlock()
	if !wanted {
		return
	}
	s.tellLost(lost)
	s.p.m.spawn(func() {
		if _, _, err := s.current(s.p.m.ctx); err != nil {
			s.p.m.cfg.Log.Warn("sandbox was not recovered", "driver", s.p.name, "sandbox_id", s.id, "error", err)
		}
	})
}

// tellLost tells once that a life of the driver ended under the sandbox.
func (s *Sandbox) tellLost(l *live) {
	// Whoever comes second waits until it was told: what follows must not be told before it.
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	told := s.told == l
	s.told = l
	s.mu.Unlock()
	if !told {
		s.p.m.cfg.Notify(Event{Kind: Lost, Driver: s.p.name, SandboxID: s.id, Message: l.crash.Error(), Err: l.crash})
	}
}

// forget makes the next call resume the sandbox.
func (s *Sandbox) forget(box driver.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.box == box {
		s.live = nil
	}
}

func preserved(box driver.Sandbox) bool {
	p, ok := box.(driver.Preserved)
	return ok && p.WorkspacePreserved()
}

func reattached(box driver.Sandbox) bool {
	r, ok := box.(driver.Reattached)
	return !ok || r.Reattached()
}

// State is the newest state that the driver told.
func (s *Sandbox) State() driver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box.State()
}

// WorkspacePreserved tells whether the workspace held its contents when the sandbox was created or resumed.
func (s *Sandbox) WorkspacePreserved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preserved
}

// Reattached tells whether the last resume found the sandbox with its processes.
func (s *Sandbox) Reattached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reattached
}

// Close lets go of the sandbox without ending it: it is not resumed any more, and its driver may end. Idempotent.
func (s *Sandbox) Close() {
	s.end(errs.New(errs.SandboxUnknown, "sandbox %s was closed", s.id))
}

func (s *Sandbox) end(why error) {
	s.mu.Lock()
	first := s.ended == nil
	if first {
		s.ended = why
	}
	s.mu.Unlock()
	if first {
		s.p.leave(s)
	}
}

// Destroy ends every process, removes everything, and lets go of the sandbox.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.mu.Lock()
	ended, asleep := s.ended, s.asleep != ""
	s.mu.Unlock()
	if ended != nil {
		return nil //nolint:nilerr // there is nothing left to destroy
	}
	var err error
	if asleep {
		// It need not be woken to be destroyed.
		err = s.p.do(ctx, func(l *live) error { return s.sleeper(l).Destroy(ctx) })
	} else {
		err = s.do(ctx, true, func(box driver.Sandbox) error { return box.Destroy(ctx) })
	}
	if err != nil && !errors.Is(err, errs.SandboxGone) {
		return err
	}
	s.end(errs.New(errs.SandboxGone, "sandbox %s was destroyed", s.id))
	return nil
}

// sleeper gives a sandbox that sleeps to what works without waking it. A life that does not know it gets its state.
func (s *Sandbox) sleeper(l *live) driver.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := l.drv.(*rpc.Driver); ok && s.sleptIn != l {
		return d.Handle(s.id, s.box.State())
	}
	return s.box
}

// Stop ends every process. The next call resumes the sandbox.
func (s *Sandbox) Stop(ctx context.Context, persist bool) error {
	s.mu.Lock()
	stopped := s.asleep == driver.StatusStopped
	s.mu.Unlock()
	if stopped {
		return nil
	}
	return s.sleep(ctx, driver.StatusStopped, func(box driver.Sandbox) error {
		st, ok := box.(driver.Stopper)
		if !ok {
			return unsupported(driver.LifeStop)
		}
		return st.Stop(ctx, persist)
	})
}

// Pause freezes the sandbox. The next call thaws it.
func (s *Sandbox) Pause(ctx context.Context) error {
	s.mu.Lock()
	asleep := s.asleep != ""
	s.mu.Unlock()
	if asleep {
		return nil
	}
	return s.sleep(ctx, driver.StatusPaused, func(box driver.Sandbox) error {
		p, ok := box.(driver.Pauser)
		if !ok {
			return unsupported(driver.LifePause)
		}
		return p.Pause(ctx)
	})
}

func (s *Sandbox) sleep(ctx context.Context, how driver.Status, call func(driver.Sandbox) error) error {
	var slept driver.Sandbox
	err := s.do(ctx, true, func(box driver.Sandbox) error {
		slept = box
		return call(box)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.box == slept {
		s.asleep, s.sleptIn, s.live = how, s.live, nil
	}
	return nil
}

// Inspect says how the sandbox is now, and wakes nothing. A driver that cannot say gives what was known when it was
// opened.
func (s *Sandbox) Inspect(ctx context.Context) (driver.Info, error) {
	s.mu.Lock()
	box, asleep, in := s.box, s.asleep, s.sleptIn
	s.mu.Unlock()
	if asleep != "" && (in == nil || in.dead()) {
		return s.known(box, asleep), nil
	}
	var out driver.Info
	inspect := func(box driver.Sandbox) (err error) {
		if i, ok := box.(driver.Inspector); ok {
			if out, err = i.Inspect(ctx); !errors.Is(err, errs.Unsupported) {
				return err
			}
		}
		out = s.known(box, driver.StatusRunning)
		return nil
	}
	if asleep != "" {
		err := inspect(box)
		return out, err
	}
	err := s.do(ctx, true, inspect)
	return out, err
}

func (s *Sandbox) known(box driver.Sandbox, status driver.Status) driver.Info {
	var out driver.Info
	if k, ok := box.(knower); ok {
		out = k.Info()
	}
	out.SandboxID, out.Status = s.id, status
	return out
}

// knower is a sandbox that was told about itself when it was opened.
type knower interface{ Info() driver.Info }

// Opened is what the driver told of the sandbox when it was created or resumed; false where it told nothing.
func (s *Sandbox) Opened() (driver.Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.box.(knower)
	if !ok {
		return driver.Info{}, false
	}
	return k.Info(), true
}

// ExtendDeadline moves the vendor's deadline and returns the one that holds now.
func (s *Sandbox) ExtendDeadline(ctx context.Context, deadline time.Time) (time.Time, error) {
	var out time.Time
	err := s.do(ctx, true, func(box driver.Sandbox) (err error) {
		e, ok := box.(driver.DeadlineExtender)
		if !ok {
			return unsupported(driver.LifeDeadline)
		}
		out, err = e.ExtendDeadline(ctx, deadline)
		return err
	})
	return out, err
}

// Watch reports what happens to the sandbox, over restarts of its driver, until ctx ends.
func (s *Sandbox) Watch(ctx context.Context, report func(driver.Event)) error {
	return s.watch(ctx, func(box driver.Sandbox) error {
		w, ok := box.(driver.Watcher)
		if !ok {
			return unsupported(driver.LifeWatch)
		}
		return w.Watch(ctx, report)
	}, func() {})
}

// WatchFiles reports changes below path, over restarts of its driver, until ctx ends. After a restart that lost the
// place it reports an overflow.
func (s *Sandbox) WatchFiles(ctx context.Context, path string, recursive bool, resumeToken string, report func(driver.FileEvent)) error {
	return s.watch(ctx, func(box driver.Sandbox) error {
		w, ok := box.(driver.FileWatcher)
		if !ok {
			return unsupported(driver.FilesWatch)
		}
		return w.WatchFiles(ctx, path, recursive, resumeToken, func(e driver.FileEvent) {
			if e.ResumeToken != "" {
				resumeToken = e.ResumeToken
			}
			report(e)
		})
	}, func() {
		if resumeToken == "" {
			report(driver.FileEvent{Kind: driver.FileOverflow, Path: path})
		}
	})
}

// watch keeps a subscription up until it ends by itself or by its context.
func (s *Sandbox) watch(ctx context.Context, subscribe func(driver.Sandbox) error, lost func()) error {
	for {
		box, l, err := s.current(ctx)
		if err != nil {
			return err
		}
		err = subscribe(box)
		if ctx.Err() != nil {
			return errs.Wrap(errs.Canceled, "watch", context.Cause(ctx))
		}
		if s.p.crashed(ctx, l, err) == nil {
			return err
		}
		lost()
	}
}
