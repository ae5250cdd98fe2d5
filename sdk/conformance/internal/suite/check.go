// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// hangGrace is how long a check may go on after its context has ended.
const hangGrace = 30 * time.Second

type checkKey struct{}

// C is one check while it runs. Its methods may be called from several goroutines, but those that end the check only
// from its own.
type C struct {
	*Suite
	ctx  context.Context //nolint:containedctx // of the check
	name string          // group/check

	mu       sync.Mutex
	messages []string // guarded by mu; what is wrong
	logs     []string // guarded by mu
	skip     string   // guarded by mu
	cleanups []func() // guarded by mu
	used     bool     // guarded by mu: the shared sandbox was asked for
	unpaid   string   // guarded by mu: what the budget lacked
}

// Run runs one check of a group.
func (s *Suite) Run(ctx context.Context, g *Group, check *Check) Result {
	r := Result{Group: g.Name, Check: check.Name, Proves: check.proves(s.Main().Desc), Status: Skipped}
	began := time.Now()
	defer func() {
		r.Took = time.Since(began)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.results = append(s.results, r)
	}()
	if reason, ok := s.opts.skipped(g.Name, check.Name); ok {
		r.Reason, r.Why = reason, SkippedByUser
		return r
	}
	if why := s.opts.unasked(g, check.Name); why != "" {
		r.Reason, r.Why = why, NotAsked
		return r
	}
	for _, f := range check.Needs {
		if !s.Main().Claims(f) {
			r.Reason, r.Why = fmt.Sprintf("the driver does not claim %s", f), NotClaimed
			return r
		}
	}
	if check.Unless != "" && s.Main().Claims(check.Unless) {
		r.Reason, r.Why = fmt.Sprintf("the driver claims %s", check.Unless), NothingToTest
		return r
	}
	if check.Binary && s.opts.Binary == "" || check.Process && s.opts.Reattach != nil {
		r.Reason, r.Why = "it needs a driver that the suite starts itself", NotHere
		return r
	}
	if check.Alone {
		s.exclusive.Lock()
		defer s.exclusive.Unlock()
	} else {
		s.exclusive.RLock()
		defer s.exclusive.RUnlock()
	}
	left, ok := s.left()
	if !ok {
		r.Reason, r.Why = errWall.Error(), OutOfBudget
		return r
	}
	why := fmt.Errorf("the check did not end within %s", s.opts.Timeout)
	if left < s.opts.Timeout {
		why = errWall
	}
	ctx, cancel := context.WithTimeoutCause(ctx, left, why)
	defer cancel()
	if err := s.revive(ctx); err != nil {
		r.Status, r.Messages = Failed, []string{err.Error()}
		return r
	}
	was := s.Main()
	c := &C{Suite: s, name: g.Name + "/" + check.Name}
	c.ctx = context.WithValue(ctx, checkKey{}, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.body(check)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t := time.NewTimer(hangGrace)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			c.Errorf("hangs: %v, and %s later a call still had not returned", context.Cause(ctx), hangGrace)
		}
	}
	if how := was.ended(); how != nil {
		c.Errorf("the driver process ended: %s; the next check gets another one", how)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Messages, r.Logs = slices.Clone(c.messages), slices.Clone(c.logs)
	if errors.Is(context.Cause(ctx), errWall) {
		c.unpaid = errWall.Error()
	}
	switch {
	case c.unpaid != "":
		// What it says is that there was no more; it is kept for whoever looks.
		r.Reason, r.Why, r.Logs, r.Messages = c.unpaid, OutOfBudget, append(r.Logs, r.Messages...), nil
	case len(r.Messages) > 0:
		r.Status = Failed
	case c.skip != "":
		r.Reason, r.Why = c.skip, NotHere
	default:
		r.Status = Passed
	}
	if r.Status == Failed && c.used {
		s.spoil()
	}
	return r
}

func (c *C) body(check *Check) {
	defer func() {
		if v := recover(); v != nil {
			c.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		c.clean()
	}()
	for _, tool := range check.Tools {
		have, err := c.Has(c.ctx, tool)
		c.OK(err, "look for %s in the sandbox", tool)
		if !have {
			c.Skipf("the sandbox has no %s", tool)
		}
	}
	check.Func(c)
}

func (c *C) clean() {
	for {
		c.mu.Lock()
		n := len(c.cleanups)
		if n == 0 {
			c.mu.Unlock()
			return
		}
		f := c.cleanups[n-1]
		c.cleanups = c.cleanups[:n-1]
		c.mu.Unlock()
		// A failure inside must not keep the others from running.
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
}

// Cleanup calls f when the check is over, last one first.
func (c *C) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

// Errorf says what is wrong, and the check goes on.
func (c *C) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, fmt.Sprintf(format, args...))
}

// Fatalf says what is wrong and ends the check.
func (c *C) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	runtime.Goexit()
}

// Logf keeps a line for the report.
func (c *C) Logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, fmt.Sprintf(format, args...))
}

// Skipf ends the check: what it needs is not here.
func (c *C) Skipf(format string, args ...any) {
	c.mu.Lock()
	c.skip = fmt.Sprintf(format, args...)
	c.mu.Unlock()
	runtime.Goexit()
}

func (c *C) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.messages) > 0
}

// untyped is a fault of its own, once for each text.
func (c *C) untyped(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.messages, text) {
		c.messages = append(c.messages, text)
	}
}

// noSecret fails the check when a text holds a canary.
func (c *C) noSecret(what, text string) {
	for _, secret := range append([]string{c.Canary}, c.opts.Secrets...) {
		if secret != "" && strings.Contains(text, secret) {
			c.untyped("%s holds a secret", what)
		}
	}
}

// NoSecret fails the check when a text holds one of the secrets that the suite gave the driver.
func (c *C) NoSecret(what, text string) { c.noSecret(what, text) }

// Ctx ends with the check.
func (c *C) Ctx() context.Context { return c.ctx }

// OK ends the check when there is an error.
func (c *C) OK(err error, format string, args ...any) {
	if err != nil {
		c.Fatalf("%s: %v (%s)", fmt.Sprintf(format, args...), err, errs.CodeOf(err))
	}
}

// Code wants an error with one of the codes.
func (c *C) Code(err error, what string, want ...errs.Code) {
	if err == nil {
		c.Errorf("%s: no error, want %v", what, want)
	} else if got := errs.CodeOf(err); !slices.Contains(want, got) {
		c.Errorf("%s: %q (%v), want %v", what, got, err, want)
	}
}

// Driver is the driver process that all checks share.
func (c *C) Driver() *rpc.Driver { return c.Main().Driver }

// Claims says whether the driver claims a feature.
func (c *C) Claims(f driver.Feature) bool { return c.Main().Claims(f) }

// Spawn starts another driver process, which ends with the check.
func (c *C) Spawn() *Process { return c.ends(c.spawn(c.ctx)) }

// SpawnBare is [C.Spawn] of a driver that nobody has configured.
func (c *C) SpawnBare() *Process { return c.ends(c.spawnBare(c.ctx)) }

func (c *C) ends(p *Process, err error) *Process {
	c.OK(err, "start another driver process")
	c.Cleanup(func() {
		if err := p.End(); err != nil {
			c.Errorf("end driver process: %v", err)
		}
	})
	return p
}

// Box is the sandbox that all checks share.
func (c *C) Box() *rpc.Sandbox {
	c.mu.Lock()
	c.used = true
	c.mu.Unlock()
	box, err := c.shared(c.ctx)
	c.OK(err, "create")
	return box
}

// Fresh makes a sandbox for this check alone and destroys it at its end.
func (c *C) Fresh(edit ...func(*driver.CreateRequest)) *rpc.Sandbox {
	return c.FreshOn(c.Main(), edit...)
}

// FreshOn is [C.Fresh] on a driver process of one's own. It is destroyed by the shared process.
func (c *C) FreshOn(p *Process, edit ...func(*driver.CreateRequest)) *rpc.Sandbox {
	req := c.Request()
	for _, f := range edit {
		f(req)
	}
	box, err := p.Create(c.ctx, req)
	c.OK(err, "create")
	c.Destroyed(box)
	return box
}

// Destroyed makes sure that a sandbox is destroyed after the check, unless the check failed and it is to be kept.
func (c *C) Destroyed(box *rpc.Sandbox) {
	c.Cleanup(func() {
		if c.failed() && c.opts.KeepOnFail {
			c.Suite.mu.Lock()
			defer c.Suite.mu.Unlock()
			c.kept = append(c.kept, box.ID())
			return
		}
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(c.ctx), time.Minute, errors.New("not destroyed within a minute"))
		defer cancel()
		if err := c.revive(ctx); err != nil {
			c.Errorf("%v", err)
		} else if err := c.Driver().Handle(box.ID(), box.State()).Destroy(ctx); err != nil {
			c.Errorf("destroy sandbox %s after the check: %v", box.ID(), err)
		}
	})
}

// Dir makes a directory of this check's own in the shared sandbox's workspace and gives its path, relative to the root.
func (c *C) Dir(box *rpc.Sandbox) string {
	dir := newWord(path.Base(c.name))
	c.OK(box.Mkdir(c.ctx, dir, 0, false, ""), "mkdir %s", dir)
	return dir
}

// Word makes a word that nothing else has.
func (c *C) Word(prefix string) string { return newWord(prefix) }

// Out is what a command printed and how it ended.
type Out struct {
	Stdout, Stderr []byte
	Exit           driver.Exit
	Started        driver.Started
	Gaps           []driver.Gap
}

// Try runs a command to its end.
func (c *C) Try(ctx context.Context, box driver.Sandbox, cmd *driver.Command, streams driver.Streams) (Out, error) {
	var out Out
	var stdout, stderr bytes.Buffer
	streams.Stdout, streams.Stderr = tee(streams.Stdout, &stdout), tee(streams.Stderr, &stderr)
	onStart, onGap := streams.OnStart, streams.OnGap
	streams.OnStart = func(s driver.Started) {
		out.Started = s
		if onStart != nil {
			onStart(s)
		}
	}
	streams.OnGap = func(g driver.Gap) {
		out.Gaps = append(out.Gaps, g)
		if onGap != nil {
			onGap(g)
		}
	}
	var err error
	out.Exit, err = box.Run(ctx, cmd, streams)
	out.Stdout, out.Stderr = stdout.Bytes(), stderr.Bytes()
	return out, err
}

func tee(w io.Writer, b *bytes.Buffer) io.Writer {
	if w == nil {
		return b
	}
	return io.MultiWriter(b, w)
}

// Exec runs a command that must not fail to run.
func (c *C) Exec(box driver.Sandbox, argv ...string) Out {
	return c.Command(box, &driver.Command{Argv: argv}, nil)
}

// Command is [C.Exec] with everything that a command may say.
func (c *C) Command(box driver.Sandbox, cmd *driver.Command, stdin io.Reader) Out {
	out, err := c.Try(c.ctx, box, cmd, driver.Streams{Stdin: stdin})
	c.OK(err, "run %q", cmd.Argv)
	return out
}

// Sh runs a script that must exit with 0, and gives what it printed.
func (c *C) Sh(box driver.Sandbox, script string) string {
	out := c.Exec(box, "sh", "-c", script)
	if out.Exit.Code != 0 {
		c.Fatalf("%s: exit %d, %s%s", script, out.Exit.Code, cut(out.Stdout), cut(out.Stderr))
	}
	return string(out.Stdout)
}

// Eventually waits until f holds.
func (c *C) Eventually(what string, f func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.Fatalf("still not: %s (%v)", what, context.Cause(c.ctx))
		}
	}
}

// Same compares bytes.
func (c *C) Same(what string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	c.Errorf("%s: %d bytes, want %d; they differ from byte %d on: %q, want %q", what, len(got), len(want), at, cut(got[at:]), cut(want[at:]))
}

func cut(b []byte) []byte { return b[:min(len(b), 200)] }
