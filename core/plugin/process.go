// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

const (
	configureTimeout = 30 * time.Second
	waitTimeout      = 30 * time.Second // of a call that finds the driver restarting
	drainTimeout     = 10 * time.Second
	crashWindow      = 2 * time.Minute
	crashLimit       = 6
	exitWait         = time.Second // for the end of a process whose connection broke
	goneWait         = 250 * time.Millisecond
)

// backoff is the wait before the start that follows the first, second, … crash of the window.
var backoff = [...]time.Duration{0, 250 * time.Millisecond, time.Second, 4 * time.Second, 15 * time.Second}

// process is one driver process through all its lives.
type process struct {
	m            *Manager
	name         string
	binary       catalog.Binary
	inProcess    func(hclog.Logger) driver.Driver // nil = a process of its own
	config       schema.Value
	env          map[string]string
	logLevel     string
	idleTimeout  time.Duration
	maxSandboxes int

	mu       sync.Mutex
	phase    Phase                 // guarded by mu
	live     *live                 // guarded by mu; nil = not running
	starting *attempt              // guarded by mu; nil = nobody starts it
	crashes  []time.Time           // guarded by mu; within the window
	failed   error                 // guarded by mu; set = quarantined or stopped
	users    int                   // guarded by mu; handles
	boxes    map[*Sandbox]struct{} // guarded by mu
	idle     *time.Timer           // guarded by mu
}

// attempt is one start that several callers may wait for.
type attempt struct {
	done chan struct{}
	live *live
	err  error
}

// live is one life of the process.
type live struct {
	proc     *launch.Process  // nil = in process, or attached
	attached *launch.Attached // nil = not attached
	drv      driver.Driver
	desc     driver.Description
	found    []driver.Diagnostic // when it was configured

	once  sync.Once
	gone  chan struct{} // closed when it has ended
	crash error         // why; read after gone
	ended bool          // guarded by process.mu: it was ended by us
}

func (l *live) dead() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// die records the end. Only the first reason counts.
func (l *live) die(why error) {
	l.once.Do(func() {
		l.crash = why
		close(l.gone)
	})
}

func (p *process) retain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	p.busyLocked()
}

func (p *process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users--
	p.restLocked()
}

func (p *process) busyLocked() {
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	if p.phase == PhaseIdle {
		p.phase = PhaseReady
	}
}

// restLocked starts the idle timer when nobody uses the process.
func (p *process) restLocked() {
	if p.users > 0 || len(p.boxes) > 0 || p.live == nil || p.failed != nil {
		return
	}
	p.phase = PhaseIdle
	if p.idleTimeout > 0 && p.idle == nil {
		l := p.live
		p.idle = time.AfterFunc(p.idleTimeout, func() { p.m.spawn(func() { p.expire(l) }) })
	}
}

// expire ends a process that is still idle.
func (p *process) expire(l *live) {
	p.mu.Lock()
	if p.phase != PhaseIdle || p.live != l || p.failed != nil {
		p.mu.Unlock()
		return
	}
	p.phase, p.live, p.idle, l.ended = PhaseDraining, nil, nil, true
	p.mu.Unlock()
	p.m.cfg.Log.Debug("driver is idle, ending it", "driver", p.name)
	p.stop(p.m.ctx, l)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == PhaseDraining {
		p.phase = PhaseAbsent
	}
}

// get gives the running process, started or started again if need be.
func (p *process) get(ctx context.Context) (*live, error) {
	p.mu.Lock()
	p.buryLocked()
	if p.failed != nil {
		defer p.mu.Unlock()
		return nil, p.failed
	}
	if p.live != nil {
		defer p.mu.Unlock()
		return p.live, nil
	}
	a := p.starting
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		p.starting = a
		if !p.m.spawn(func() { p.start(a) }) {
			p.starting, a.err = nil, errs.Wrap(errs.Canceled, "start driver "+p.name, errClosed)
			close(a.done)
		}
	}
	p.mu.Unlock()
	t := time.NewTimer(waitTimeout)
	defer t.Stop()
	select {
	case <-a.done:
		return a.live, a.err
	case <-ctx.Done():
		return nil, errs.Wrap(errs.Canceled, "wait for driver "+p.name, context.Cause(ctx))
	case <-t.C:
		return nil, errs.New(errs.DriverCrashed, "driver %q did not come back within %s", p.name, waitTimeout).With("driver", p.name)
	}
}

// start makes one attempt, after the wait that earlier crashes ask for.
func (p *process) start(a *attempt) {
	p.mu.Lock()
	wait := p.delayLocked()
	p.phase = PhaseStarting
	if wait > 0 {
		p.phase = PhaseBackoff
	}
	p.mu.Unlock()
	if wait > 0 {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-p.m.ctx.Done():
		}
		t.Stop()
		p.mu.Lock()
		p.phase = PhaseStarting
		p.mu.Unlock()
	}
	l, err := p.launch(p.m.ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = nil
	switch {
	case err != nil:
		p.phase = PhaseAbsent
		if _, ok := errors.AsType[*launch.Crash](err); ok {
			p.crashedLocked(err)
		}
		if p.failed != nil {
			err = p.failed
		}
	case p.failed != nil:
		// It was shut while it started.
		late := l
		late.ended = true
		p.m.spawn(func() { p.stop(p.m.ctx, late) })
		l, err = nil, p.failed
	default:
		p.live, p.phase = l, PhaseReady
		p.m.spawn(func() { p.watch(l) })
		p.restLocked()
	}
	a.live, a.err = l, err
	close(a.done)
}

// buryLocked counts the crash of a life that has ended. Whoever sees it first does it: the next start must wait for its
// turn.
func (p *process) buryLocked() {
	l := p.live
	if l == nil || !l.dead() {
		return
	}
	p.live, p.phase = nil, PhaseAbsent
	if !l.ended {
		p.crashedLocked(l.crash)
	}
}

// delayLocked is how long the next start has to wait.
func (p *process) delayLocked() time.Duration {
	p.forgetLocked()
	n := len(p.crashes)
	if n == 0 {
		return 0
	}
	return backoff[min(n, len(backoff))-1]
}

// forgetLocked drops the crashes that are outside the window.
func (p *process) forgetLocked() {
	for len(p.crashes) > 0 && time.Since(p.crashes[0]) > crashWindow {
		p.crashes = p.crashes[1:]
	}
}

// crashedLocked counts a crash and gives up at the limit.
func (p *process) crashedLocked(why error) {
	p.forgetLocked()
	p.crashes = append(p.crashes, time.Now())
	if len(p.crashes) < crashLimit || p.failed != nil {
		return
	}
	e := errs.New(errs.DriverCrashed, "driver %q ended %d times within %s and is not started again", p.name, crashLimit, crashWindow).
		With("driver", p.name).WithHint("see the driver's log for the reason, mend it, and run the command again")
	e.Retry, e.Err = errs.RetryNever, why
	p.failed, p.phase = e, PhaseQuarantined
	p.m.spawn(func() {
		p.m.cfg.Notify(Event{Kind: Quarantined, Driver: p.name, Message: e.Message, Err: e})
	})
}

// watch waits for the end of one life and starts the recovery when it was not wished for.
func (p *process) watch(l *live) {
	ended := func(why error) {
		e := errs.New(errs.DriverCrashed, "driver %q ended unexpectedly", p.name).With("driver", p.name)
		e.Err = why
		l.die(e)
	}
	switch {
	case l.proc != nil:
		<-l.proc.Exited()
		ended(l.proc.Crash())
		l.proc.Kill()
	case l.attached != nil:
		ended(l.attached.Crash())
	default:
		select {
		case <-l.gone:
		case <-p.m.ctx.Done():
			return
		}
	}
	p.mu.Lock()
	if l.ended {
		p.mu.Unlock()
		return
	}
	p.buryLocked()
	boxes := make([]*Sandbox, 0, len(p.boxes))
	for b := range p.boxes {
		boxes = append(boxes, b)
	}
	p.mu.Unlock()
	p.m.cfg.Log.Warn("driver ended unexpectedly", "driver", p.name, "sandboxes", len(boxes), "error", l.crash)
	p.m.cfg.Notify(Event{Kind: Lost, Driver: p.name, Message: l.crash.Error(), Err: l.crash})
	for _, b := range boxes {
		b.recover(l)
	}
}

// crashed tells a dead process from a call that failed: nil when the process lives. It waits for the end of a process
// whose connection broke, and ends one that no longer answers.
func (p *process) crashed(ctx context.Context, l *live, err error) error {
	if l.dead() {
		return l.crash
	}
	code := errs.CodeOf(err)
	if l.proc == nil && l.attached == nil {
		if code == errs.DriverCrashed {
			l.die(err)
			return err
		}
		return nil
	}
	if code != errs.ExecTransport && code != errs.DriverCrashed && (l.proc == nil || !l.proc.Broken()) {
		return nil
	}
	t := time.NewTimer(exitWait)
	defer t.Stop()
	select {
	case <-l.gone:
		return l.crash
	case <-t.C:
	case <-ctx.Done():
		return nil
	}
	if l.attached != nil {
		return nil // a debugger may hold it
	}
	pctx, cancel := context.WithTimeoutCause(ctx, exitWait, errors.New("the driver does not answer"))
	defer cancel()
	if _, perr := healthv1.NewHealthClient(l.proc.Conn()).Check(pctx, &healthv1.HealthCheckRequest{Service: "plugin"}); perr == nil || ctx.Err() != nil {
		return nil
	}
	p.m.cfg.Log.Warn("driver does not answer, ending it", "driver", p.name, "pid", l.proc.PID())
	l.proc.Kill()
	<-l.gone
	return l.crash
}

// stop drains and ends one life. One that was attached to is only let go.
func (p *process) stop(ctx context.Context, l *live) {
	if l.attached != nil {
		// It serves the next core too: a driver that was drained takes no more work.
		l.attached.Close()
		l.die(errs.Wrap(errs.Canceled, "driver "+p.name, errClosed))
		return
	}
	if d, ok := l.drv.(driver.Drainer); ok && !l.dead() {
		dctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("not drained within %s", drainTimeout))
		err := d.Drain(dctx, p.m.cfg.Orphans, func(r driver.DrainResult) {
			p.m.cfg.Notify(Event{Kind: Parked, Driver: p.name, SandboxID: r.SandboxID, Message: r.Outcome, Err: r.Err})
		})
		cancel()
		if err != nil && !errors.Is(err, errs.Unsupported) {
			p.m.cfg.Log.Warn("driver was not drained", "driver", p.name, "error", err)
		}
	}
	if l.proc != nil {
		l.proc.Kill()
	}
	l.die(errs.Wrap(errs.Canceled, "driver "+p.name, errClosed))
}

// shut ends the process for good.
func (p *process) shut(ctx context.Context) error {
	p.mu.Lock()
	if p.failed == nil {
		p.failed = errs.Wrap(errs.Canceled, "driver "+p.name, errClosed)
	}
	l := p.live
	p.live = nil
	p.busyLocked()
	if l != nil {
		l.ended = true
	}
	p.phase = PhaseDraining
	p.mu.Unlock()
	if l != nil {
		p.stop(ctx, l)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = PhaseStopped
	return nil
}

func (p *process) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked()
	s := Status{Driver: p.name, Binary: p.binary, Phase: p.phase, Sandboxes: len(p.boxes), Crashes: len(p.crashes), Err: p.failed}
	if s.Phase == "" {
		s.Phase = PhaseAbsent
	}
	if p.live != nil && p.live.proc != nil {
		s.PID = p.live.proc.PID()
	}
	return s
}
