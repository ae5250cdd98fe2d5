// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/template"
	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/confine/cgroup"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

// sandbox is one sandbox.
type sandbox struct {
	*forward.Calls

	d      *local
	m      *machine.Machine
	config *config
	ttl    *time.Duration
	mounts attach.Set
	key    string // of the template that the workspace is yet to become

	// gate is held, by a value in it, by who starts or ends the guest; what follows is theirs.
	gate        chan struct{}
	x           *store.Session
	want        *machine.Want
	client      *client.Client
	group       *cgroup.Group
	template    *template.Template
	env, secret map[string]string
	mergeEnv    bool // the guest began with another environment: each command gets this one
	reattached  bool
	touched     bool // somebody else than this driver may have changed the workspace
	stopped     bool
	destroyed   bool
	report      []driver.Isolation
}

var (
	_ driver.Sandbox       = (*sandbox)(nil)
	_ driver.Stopper       = (*sandbox)(nil)
	_ driver.Inspector     = (*sandbox)(nil)
	_ driver.Preserved     = (*sandbox)(nil)
	_ driver.Reattached    = (*sandbox)(nil)
	_ driver.Watcher       = (*sandbox)(nil)
	_ driver.ProcessTable  = (*sandbox)(nil)
	_ driver.PortForwarder = (*sandbox)(nil)
	_ driver.AccountKeeper = (*sandbox)(nil)
)

// newSandbox makes the value of a sandbox.
func newSandbox(s *sandbox) *sandbox {
	s.gate = make(chan struct{}, 1)
	s.Calls = forward.New(forward.Config{Guest: s.guest, Filled: s.fill, Environment: s.environment, User: s.runAs})
	return s
}

// hold takes the gate. The caller calls what it gets.
func (s *sandbox) hold() (release func()) {
	s.gate <- struct{}{}
	return func() { <-s.gate }
}

// usable says whether the sandbox still answers.
func (s *sandbox) usable() bool {
	defer s.hold()()
	if s.destroyed || s.stopped {
		return false
	}
	if s.client == nil {
		return true
	}
	select {
	case <-s.client.Done():
		return false
	default:
		return true
	}
}

// State is what Resume needs.
func (s *sandbox) State() driver.State { return s.x.State() }

// WorkspacePreserved says whether the workspace holds its contents.
func (s *sandbox) WorkspacePreserved() bool {
	defer s.hold()()
	return s.x.Record.Filled
}

// Reattached says whether the processes of before are still there.
func (s *sandbox) Reattached() bool { return s.reattached }

// guest gives the conversation for a call that may change the workspace.
func (s *sandbox) guest(ctx context.Context) (*client.Client, error) {
	c, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.Done():
		e := errs.New(errs.SandboxUnknown, "the guest of sandbox %s has ended", s.x.Record.ID)
		e.Err = c.Err()
		return nil, e
	default:
		return c, nil
	}
}

// touch says that the workspace may change behind this driver's back.
func (s *sandbox) touch() {
	defer s.hold()()
	s.touched = true
}

// fill records that the workspace holds something of its owner's. Until then a resume says that it is empty, so that
// what a create was interrupted in is done again.
func (s *sandbox) fill(context.Context) error {
	defer s.hold()()
	if s.x.Record.Filled || s.destroyed {
		return nil
	}
	s.x.Record.Filled = true
	return s.x.Save()
}

// environment gives what commands get on top of the guest's environment.
func (s *sandbox) environment() (env, secret map[string]string, merge bool) {
	defer s.hold()()
	return s.env, s.secret, s.mergeEnv
}

// setEnvironment is for a resume while the guest lives.
func (s *sandbox) setEnvironment(env, secret map[string]string) {
	defer s.hold()()
	s.mergeEnv = s.mergeEnv || !maps.Equal(s.env, env) || !maps.Equal(s.secret, secret)
	s.env, s.secret = env, secret
}

// Run runs a command, which may change the workspace in any way.
func (s *sandbox) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	s.touch()
	return s.Calls.Run(ctx, cmd, streams)
}

// runAs gives the user of a file operation that names none. Where the guest is the root of its namespace, what it makes
// has to belong to the commands' user.
func (s *sandbox) runAs() string {
	if s.want.Off || !machine.NeedsUsers(s.want.Accounts, s.want.RunAs) {
		return ""
	}
	if s.want.RunAs != "" {
		return s.want.RunAs
	}
	return machine.User
}

// Watch reports what happens to the sandbox.
func (s *sandbox) Watch(ctx context.Context, report func(driver.Event)) error {
	c, err := s.guest(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		select {
		case <-c.Done():
			cancel(errs.New(errs.SandboxUnknown, "the guest of sandbox %s has ended", s.x.Record.ID))
		case <-ctx.Done():
		}
	}()
	err = c.Watch(ctx, report)
	cancel(nil)
	<-stop
	select {
	case <-c.Done():
		message := "the guest has ended"
		if e := c.Err(); e != nil {
			message = e.Error()
		}
		report(driver.Event{Kind: driver.EventDied, Message: message})
		return nil
	default:
		return err
	}
}

// EnsureAccounts sees that the accounts exist. They are made with the sandbox.
func (s *sandbox) EnsureAccounts(_ context.Context, a driver.Accounts) error {
	return machine.HaveAccounts(s.x.Record.Accounts, a)
}

// Inspect says how the sandbox is.
func (s *sandbox) Inspect(context.Context) (driver.Info, error) {
	defer s.hold()()
	info := s.x.Info()
	if s.want != nil {
		info.Root = s.want.Inside().Root
	}
	info.Isolation = s.report
	if info.Isolation == nil && s.want != nil {
		// The guest is yet to start; it will be confined so, or not start.
		s.want.Env, s.want.Secret = s.env, s.secret
		plan, _, err := s.want.Plan()
		if err != nil {
			return info, err
		}
		info.Isolation = plan.Report()
	}
	switch {
	case s.destroyed:
		info.Status = driver.StatusGone
	case s.stopped:
		info.Status = driver.StatusStopped
	case s.client == nil:
		info.Status = driver.StatusRunning // as far as anybody can tell
	default:
		info.Status = driver.StatusRunning
		select {
		case <-s.client.Done():
			info.Status = driver.StatusStopped
		default:
		}
	}
	return info, nil
}

// stopGrace is how long a guest may take to end its processes in order.
const stopGrace = 5 * time.Second

// Stop ends every process.
func (s *sandbox) Stop(ctx context.Context, persist bool) error {
	if !persist {
		return s.Destroy(ctx)
	}
	defer s.hold()()
	if s.destroyed {
		return errs.New(errs.SandboxGone, "sandbox %s was destroyed", s.x.Record.ID)
	}
	if s.client != nil {
		// In order first; what does not end then is ended.
		ctx, cancel := context.WithTimeoutCause(ctx, stopGrace, errs.New(errs.StopFailed, "the guest did not end within %s", stopGrace))
		_ = s.client.Shutdown(ctx) // the end below does not depend on it
		cancel()
	}
	if err := s.end(); err != nil {
		return errs.Wrap(errs.StopFailed, "end the sandbox's processes", err)
	}
	s.stopped = true
	s.x.Record.Stopped = true
	s.d.forget(s)
	return s.x.Save()
}

// Destroy ends every process and removes everything.
func (s *sandbox) Destroy(ctx context.Context) error {
	defer s.hold()()
	if s.destroyed {
		return nil
	}
	if err := s.end(); err != nil {
		return errs.Wrap(errs.StopFailed, "end the sandbox's processes", err)
	}
	if err := s.m.Remove(ctx, s.x); err != nil {
		return err
	}
	s.destroyed = true
	s.d.forget(s)
	return nil
}

func (d *local) forget(s *sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sandboxes[s.x.Record.ID] == s {
		delete(d.sandboxes, s.x.Record.ID)
	}
}

// detach leaves the guest to its lease.
func (s *sandbox) detach() error {
	defer s.hold()()
	if s.client == nil {
		return nil
	}
	c := s.client
	s.client = nil
	s.stopped = true
	return c.Close()
}

// List finds sandboxes by labels, also those of other processes of this driver.
func (d *local) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if d.store == nil {
			return
		}
		for x, err := range d.store.All(ctx, labels) {
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			info := x.Info()
			info.Status = driver.StatusStopped
			if x.Alive() || d.known(x.Record.ID) != nil {
				info.Status = driver.StatusRunning
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Drain parks or ends every sandbox of this process.
func (d *local) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.sandboxes))
	d.mu.Unlock()
	var failed []error
	for _, s := range all {
		r := driver.DrainResult{SandboxID: s.x.Record.ID}
		switch policy {
		case driver.OrphanDestroy:
			r.Outcome, r.Err = "destroyed", s.Destroy(ctx)
		case driver.OrphanStop:
			r.Outcome, r.Err = "stopped", s.Stop(ctx, true)
		default:
			r.Outcome, r.Err = "parked", s.detach()
		}
		if r.Err != nil {
			r.Outcome = "failed"
			failed = append(failed, r.Err)
		}
		report(r)
	}
	return errors.Join(failed...)
}
