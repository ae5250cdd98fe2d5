// SPDX-License-Identifier: Apache-2.0

// Package box is sandboxes that are containers: their life, and what works inside of them.
package box

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/plugins/internal/tunnel"
	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
)

// Box is what sandboxes of both kinds have: a container and its life.
type Box struct {
	host      *Host
	e         *engine.Engine
	id        string
	record    *plan.Record
	self      Sandbox           // the sandbox that this is part of
	labels    map[string]string // the core's
	imageEnv  []string
	created   time.Time
	env       map[string]string
	secretEnv map[string]string
	ttl       *time.Duration
	tunnels   tunnel.Set
	mounts    attach.Set
	removing  atomic.Pointer[chan struct{}] // closed when the removal that goes on is over; nil = none does

	// gate is held, by a value in it, by who starts or ends the container; what follows is theirs.
	gate       chan struct{}
	st         plan.State
	guest      *guestclient.Client // nil = not connected
	used       bool                // others may have spoken with the guest before
	mergeEnv   bool                // the guest began with another environment: each command gets this one
	started    bool                // there is no guest, and the container runs
	lost       bool                // there is no guest, and the container has ended
	reattached bool
	stopped    bool // this value is over; another takes its place
	destroyed  bool
	lifetime   *time.Timer // ends the sandbox at its deadline
	expired    bool
}

func (h *Host) newBox(e *engine.Engine, id string, r *plan.Record) *Box {
	b := &Box{host: h, e: e, id: id, record: r, gate: make(chan struct{}, 1)}
	b.st.Where = e.Where
	if !e.Podman { // it has another one each time
		b.st.Engine = e.Info.ID
	}
	if r != nil {
		b.st.Image, b.st.Digest = r.Image, r.Digest
	}
	return b
}

// took takes over a container that is there.
func (b *Box) took(got *container.InspectResponse) (err error) {
	if b.record, err = plan.ReadRecord(got.Config.Labels); err != nil {
		return err
	}
	// Without a guest nothing but the label tells whose it is.
	if owner := got.Config.Labels[plan.LabelOwner]; b.record.Exec && owner != "" && owner != b.host.Owner() {
		return b.others(got.Name, errs.New(errs.PermissionDenied, "its owner is %s, and this is %s", owner, b.host.Owner()))
	}
	b.used = true
	b.st.Container, b.st.Image, b.st.Digest = got.ID, b.record.Image, b.record.Digest
	b.labels, b.imageEnv = plan.CoreLabels(got.Config.Labels), got.Config.Env
	b.created, _ = time.Parse(time.RFC3339Nano, got.Created) // zero = unknown
	return nil
}

// others says that another installation has the container.
func (b *Box) others(name string, err error) error {
	out := errs.New(errs.PermissionDenied, "another installation of berth has sandbox %s on the engine at %s", b.id, b.e.Where).
		WithHint("stop it there and resume it here then, or fork it there; `docker stop %s` takes it away by force", strings.TrimPrefix(name, "/"))
	if b.record.Exec {
		out.Hint = "use it there, or fork it there: without berth's guest it stays with the installation that made it; `docker rm --force " +
			strings.TrimPrefix(name, "/") + "` removes it"
	}
	out.Err = err
	return out
}

// Common gives itself, for sandboxes of either kind.
func (b *Box) Common() *Box { return b }

// hold takes the gate. The caller calls what it gets.
func (b *Box) hold() (release func()) {
	b.gate <- struct{}{}
	return func() { <-b.gate }
}

// Usable says whether the sandbox still answers.
func (b *Box) Usable(ctx context.Context) bool {
	defer b.hold()()
	if b.destroyed || b.stopped || b.ended() {
		return false
	}
	if b.guest != nil {
		return true
	}
	_, err := b.e.ContainerInspect(ctx, b.st.Container, client.ContainerInspectOptions{})
	return err == nil
}

// ended says whether the container ended under this value. Preconditions: the gate is held.
func (b *Box) ended() bool {
	if b.guest == nil {
		return b.lost
	}
	select {
	case <-b.guest.Done():
		return true
	default:
		return false
	}
}

// State is what Resume needs.
func (b *Box) State() driver.State {
	defer b.hold()()
	display := map[string]string{"container": b.st.Container, "engine": b.st.Where, "image": b.st.Image}
	if b.st.Digest != "" {
		display["digest"] = b.st.Digest
	}
	if b.record.Exec {
		display["guest"] = "none: " + b.record.Facts.Why
	}
	return b.st.Driver(display)
}

// WorkspacePreserved says whether the workspace holds its contents.
func (b *Box) WorkspacePreserved() bool {
	defer b.hold()()
	return b.st.Filled
}

// Reattached says whether the processes of before are still there.
func (b *Box) Reattached() bool { return b.reattached }

// fill records that the workspace holds something of its owner's. Until then a resume says that it is empty, so that
// what a create was interrupted in is done again.
func (b *Box) fill(err error) error {
	defer b.hold()()
	if err != nil || b.st.Filled {
		return err
	}
	b.st.Filled = true
	return b.host.Filled.Set(b.id)
}

// Renew gives commands today's environment.
func (b *Box) Renew(env, secret map[string]string) {
	defer b.hold()()
	b.env, b.secretEnv, b.mergeEnv = env, secret, true
}

// today gives the environment, and whether each command has to be given it.
func (b *Box) today() (env, secret map[string]string, each bool) {
	defer b.hold()()
	return b.env, b.secretEnv, b.mergeEnv
}

// environment is what a command's own variables come on top of.
func (b *Box) environment() map[string]string {
	out := map[string]string{}
	for _, kv := range b.imageEnv {
		if k, v, ok := strings.Cut(kv, "="); ok {
			out[k] = v
		}
	}
	maps.Copy(out, b.env)
	return out
}

// run starts the container, or finds it running. Preconditions: the gate is held.
func (b *Box) run(ctx context.Context) error {
	if _, err := b.e.ContainerStart(ctx, b.st.Container, client.ContainerStartOptions{}); err != nil {
		if engine.NotFound(err) && strings.Contains(err.Error(), "No such container") {
			return errs.New(errs.SandboxGone, "the container of sandbox %s no longer exists", b.id)
		}
		return plan.StartError(err)
	}
	b.st.Stopped = false
	if b.record.Lifetime > 0 && (b.st.Deadline.IsZero() || time.Now().After(b.st.Deadline)) {
		b.st.Deadline = time.Now().Add(b.record.Lifetime)
	}
	b.watchDeadline()
	return nil
}

// watchDeadline ends the sandbox when its time is over. The workspace stays. Preconditions: the gate is held.
func (b *Box) watchDeadline() {
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	if b.st.Deadline.IsZero() {
		return
	}
	b.lifetime = time.AfterFunc(time.Until(b.st.Deadline), func() {
		release := b.hold()
		over := !b.stopped && !b.destroyed && !time.Now().Before(b.st.Deadline)
		b.expired = over
		release()
		if !over {
			return
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("out of time"))
		defer cancel()
		if err := b.self.Stop(ctx, true); err != nil {
			b.host.Log.Error("end a sandbox whose time is over", "sandbox", b.id, "error", err)
		}
	})
}

// ExtendDeadline moves the deadline.
func (b *Box) ExtendDeadline(_ context.Context, deadline time.Time) (time.Time, error) {
	defer b.hold()()
	if b.destroyed || b.stopped {
		return time.Time{}, errs.New(errs.SandboxUnknown, "sandbox %s is stopped", b.id)
	}
	b.st.Deadline = deadline
	b.watchDeadline()
	return deadline, nil
}

// stopGrace is how long a guest may take to end its processes in order, and stopSeconds the rest of it by the engine.
const (
	stopGrace   = 5 * time.Second
	stopSeconds = 2
)

// Stop ends every process.
func (b *Box) Stop(ctx context.Context, persist bool) error {
	if !persist {
		return b.Destroy(ctx)
	}
	defer b.hold()()
	if b.destroyed {
		return errs.New(errs.SandboxGone, "sandbox %s was destroyed", b.id)
	}
	b.tunnels.Close()
	if b.guest != nil {
		// In order first; what does not end then is ended.
		ctx, cancel := context.WithTimeoutCause(ctx, stopGrace, errs.New(errs.StopFailed, "the guest did not end within %s", stopGrace))
		_ = b.guest.Shutdown(ctx) // the end below does not depend on it
		cancel()
		b.guest = nil
	}
	seconds := stopSeconds
	_, err := b.e.ContainerStop(ctx, b.st.Container, client.ContainerStopOptions{Timeout: &seconds})
	if engine.NotFound(err) {
		return errs.New(errs.SandboxGone, "the container of sandbox %s no longer exists", b.id)
	}
	if err != nil {
		return engine.Error(errs.StopFailed, "stop the container", err)
	}
	b.over()
	b.st.Stopped = true
	return nil
}

// over says that this value is not used any more. Preconditions: the gate is held.
func (b *Box) over() {
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	b.stopped = true
	b.host.Over(b)
}

// Pause freezes every process; Resume thaws them.
func (b *Box) Pause(ctx context.Context) error {
	defer b.hold()()
	if b.destroyed || b.stopped {
		return errs.New(errs.SandboxUnknown, "sandbox %s is stopped", b.id)
	}
	if _, err := b.e.ContainerPause(ctx, b.st.Container, client.ContainerPauseOptions{}); err != nil {
		return engine.Error(errs.SandboxNotReady, "pause the container", err)
	}
	b.tunnels.Close()
	// The guest hears of it when it goes on, and its lease begins then.
	b.detach()
	b.over()
	return nil
}

// detach leaves the guest to its lease. Preconditions: the gate is held.
func (b *Box) detach() {
	if b.guest != nil {
		_ = b.guest.Close() // it never fails
		b.guest = nil
	}
}

// Park leaves the sandbox to its lease.
func (b *Box) Park() {
	defer b.hold()()
	b.tunnels.Close()
	b.detach()
	b.over()
}

// Destroy ends every process and removes everything.
func (b *Box) Destroy(ctx context.Context) error {
	defer b.hold()()
	if b.destroyed {
		return nil
	}
	b.tunnels.Close()
	if err := b.remove(ctx); err != nil {
		return err
	}
	if b.guest != nil {
		// It finds out by itself; a farewell would wait for an answer.
		select {
		case <-b.guest.Done():
		case <-time.After(stopGrace):
		}
	}
	b.detach()
	b.over()
	b.destroyed = true
	b.host.Filled.Forget(b.id)
	return nil
}

// remove removes the container with the volumes that are its own.
func (b *Box) remove(ctx context.Context) error {
	if b.st.Container == "" {
		return nil
	}
	over := make(chan struct{})
	b.removing.Store(&over)
	defer close(over)
	_, err := b.e.ContainerRemove(ctx, b.st.Container, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if engine.Conflict(err) && strings.Contains(err.Error(), "already in progress") {
		// Somebody else removes it.
		w := b.e.ContainerWait(ctx, b.st.Container, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
		select {
		case err = <-w.Error:
		case <-w.Result:
			err = nil
		}
	}
	if err != nil && !engine.NotFound(err) {
		return engine.Error(errs.StopFailed, "remove the container", err)
	}
	return engine.Error(errs.StopFailed, "remove the image of a snapshot", b.e.DropReleased(ctx, b.st.Image))
}

// cleanTime bounds the removal of what a failed create has made.
const (
	cleanTime = 30 * time.Second
	sweepTime = time.Second
)

// abandon removes what a create has made that failed with err.
func (b *Box) abandon(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errors.New("out of time"))
	defer cancel()
	return errors.Join(err, b.Destroy(ctx))
}

// sweep removes a container whose making failed from here, and may have succeeded there.
func (b *Box) sweep(ctx context.Context) {
	cut := ctx.Err() != nil
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanTime, errors.New("out of time"))
	defer cancel()
	got, err := Find(ctx, b.e, b.id)
	for began := time.Now(); cut && err == nil && got == nil && time.Since(began) < sweepTime; got, err = Find(ctx, b.e, b.id) {
		time.Sleep(conflictLook) // the engine goes on with what was asked for
	}
	if err != nil || got == nil {
		return // List finds it
	}
	b.st.Container = got.ID
	if err := b.remove(ctx); err != nil {
		b.host.Log.Warn("a container that nobody waits for was not removed", "sandbox", b.id, "error", err)
	}
}

// Inspect says how the sandbox is.
func (b *Box) Inspect(ctx context.Context) (driver.Info, error) {
	defer b.hold()()
	info := driver.Info{
		SandboxID: b.id, Labels: b.labels, Created: b.created, Deadline: b.st.Deadline, Root: b.record.Root, OS: "linux", Arch: b.e.Arch(),
		Isolation: plan.Isolation(b.record), Status: driver.StatusGone,
		Display: map[string]string{"container": b.st.Container, "engine": b.st.Where, "image": b.st.Image},
	}
	if b.record.Exec {
		info.Display["guest"] = "none: " + b.record.Facts.Why
		info.Features = plan.ExecFeatures()
	}
	if b.destroyed {
		return info, nil
	}
	got, err := b.e.ContainerInspect(ctx, b.st.Container, client.ContainerInspectOptions{})
	if engine.NotFound(err) {
		return info, nil
	}
	if err != nil {
		return info, engine.Error(errs.SandboxNotReady, "inspect the container", err)
	}
	info.Status = plan.Status(got.Container.State.Status)
	return info, nil
}

// ID is the sandbox's.
func (b *Box) ID() string { return b.id }
