// SPDX-License-Identifier: Apache-2.0

// Package box is sandboxes at the service: their life, and berth's guest inside of them, which does the work.
package box

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/plugins/internal/tunnel"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

// Host is the driver that sandboxes belong to.
type Host struct {
	Log   hclog.Logger
	API   *client.Client
	Where string                 // the service, for people
	Key   func(id string) []byte // what the guest in a sandbox of the service and every driver of the team know
	Over  func(*Box)             // told when a sandbox's value is used no more
	// Snapshots is what the service does not keep of them.
	Snapshots keep.Snapshots

	unwanted sync.Map // a channel by the id of a sandbox that nobody waits for any more, closed when it is removed
}

// Box is one sandbox.
type Box struct {
	*forward.Calls

	host      *Host
	id        string // berth's
	remote    *client.Sandbox
	record    *Record
	labels    map[string]string
	created   time.Time
	env       map[string]string
	secretEnv map[string]string
	ttl       *time.Duration
	tunnels   tunnel.Set
	alive     context.CancelCauseFunc // ends what keeps it alive
	beats     sync.WaitGroup

	// gate is held, by a value in it, by who starts or ends the sandbox; what follows is theirs.
	gate       chan struct{}
	st         State
	guest      *guestclient.Client // nil = not connected
	guestPID   uint32              // inside
	mergeEnv   bool                // the guest began with another environment: each command gets this one
	reattached bool
	stopped    bool // this value is over; another takes its place
	destroyed  bool
	marked     bool // the sandbox itself knows that its workspace is filled
}

var (
	_ driver.Sandbox           = (*Box)(nil)
	_ driver.Stopper           = (*Box)(nil)
	_ driver.Pauser            = (*Box)(nil)
	_ driver.Inspector         = (*Box)(nil)
	_ driver.Preserved         = (*Box)(nil)
	_ driver.Reattached        = (*Box)(nil)
	_ driver.Watcher           = (*Box)(nil)
	_ driver.DeadlineExtender  = (*Box)(nil)
	_ driver.ProcessTable      = (*Box)(nil)
	_ driver.FileSystem        = (*Box)(nil)
	_ driver.TreeIO            = (*Box)(nil)
	_ driver.NativeSnapshotter = (*Box)(nil)
	_ driver.PortForwarder     = (*Box)(nil)
	_ driver.PortExposer       = (*Box)(nil)
	_ driver.AccountKeeper     = (*Box)(nil)
)

// newBox makes the value of a sandbox that exists.
func (h *Host) newBox(id string, info *client.Info, remote *client.Sandbox) (*Box, error) {
	r, err := readRecord(info.Metadata)
	if err != nil {
		return nil, err
	}
	b := &Box{host: h, id: id, remote: remote, record: r, created: info.StartedAt, gate: make(chan struct{}, 1)}
	b.Calls = forward.New(forward.Config{Guest: b.live, Filled: b.fill, Environment: b.today, User: func() string { return b.record.User }})
	_, b.labels = Labels(info.Metadata)
	b.st = State{Sandbox: info.SandboxID, Where: h.Where, Template: info.TemplateID, Deadline: info.EndAt, Filled: r.Restored}
	return b, nil
}

// today gives the environment, and whether each command has to be given it.
func (b *Box) today() (env, secret map[string]string, each bool) {
	defer b.hold()()
	return b.env, b.secretEnv, b.mergeEnv
}

// ID is the sandbox's.
func (b *Box) ID() string { return b.id }

// hold takes the gate. The caller calls what it gets.
func (b *Box) hold() (release func()) {
	b.gate <- struct{}{}
	return func() { <-b.gate }
}

// Usable says whether the value still reaches the sandbox.
func (b *Box) Usable() bool {
	defer b.hold()()
	return !b.destroyed && !b.stopped && b.guest != nil && !b.ended()
}

// ended says whether the guest was lost. Preconditions: the gate is held.
func (b *Box) ended() bool {
	if b.guest == nil {
		return false
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
	data, err := json.Marshal(&b.st)
	if err != nil {
		panic(err) // text and times only
	}
	return driver.State{
		Version: StateVersion, Data: data, Deadline: b.st.Deadline,
		Display: map[string]string{"sandbox": b.st.Sandbox, "service": b.st.Where, "template": b.st.Template},
	}
}

// WorkspacePreserved says whether the workspace holds its contents.
func (b *Box) WorkspacePreserved() bool {
	defer b.hold()()
	return b.st.Filled
}

// Reattached says whether the processes of before are still there.
func (b *Box) Reattached() bool { return b.reattached }

// Renew gives commands today's environment.
func (b *Box) Renew(env, secret map[string]string) {
	defer b.hold()()
	b.env, b.secretEnv, b.mergeEnv = env, secret, true
}

// keepAlive moves the sandbox's end while this value lasts. Only what moves it later is sent: an end that somebody asked
// for is not brought nearer.
func (b *Box) keepAlive() {
	if !b.record.KeepAlive || b.record.Timeout <= 0 {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	b.alive = cancel
	b.beats.Go(func() {
		tick := time.NewTicker(b.record.Timeout / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			release := b.hold()
			over, until := b.stopped || b.destroyed, b.st.Deadline
			release()
			now := time.Now().Add(b.record.Timeout)
			if over || until.After(now) {
				continue
			}
			err := b.host.API.SetTimeout(ctx, b.st.Sandbox, b.record.Timeout)
			if err == nil {
				release := b.hold()
				b.st.Deadline = now
				release()
			} else if ctx.Err() == nil {
				b.host.Log.Warn("the sandbox's end could not be moved", "sandbox", b.id, "ends", until, "error", err)
			}
		}
	})
}

var errOver = errors.New("the sandbox is not used any more")

// over says that this value is not used any more. Preconditions: the gate is held.
func (b *Box) over() {
	if b.alive != nil {
		b.alive(errOver)
	}
	b.stopped = true
	b.host.Over(b)
}

// detach leaves the guest to its lease. Preconditions: the gate is held.
func (b *Box) detach() {
	if b.guest != nil {
		_ = b.guest.Close() // it never fails
		b.guest = nil
	}
}

// ExtendDeadline moves the sandbox's end, to sooner as well, and leaves it there.
func (b *Box) ExtendDeadline(ctx context.Context, deadline time.Time) (time.Time, error) {
	if err := b.host.API.SetTimeout(ctx, b.st.Sandbox, max(0, time.Until(deadline))); err != nil {
		return time.Time{}, b.explain(ctx, err)
	}
	info, err := b.host.API.Get(ctx, b.st.Sandbox)
	if err != nil {
		return time.Time{}, b.explain(ctx, err)
	}
	defer b.hold()()
	b.st.Deadline = info.EndAt
	if b.alive != nil {
		b.alive(errOver)
	}
	return info.EndAt, nil
}

// Stop ends every process and with persist keeps the files: the sandbox is paused.
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
		inOrder, cancel := context.WithTimeoutCause(ctx, stopGrace, errOver)
		_ = b.guest.Shutdown(inOrder) // what does not end in order is ended by force
		cancel()
		b.guest = nil
		if err := b.endGuest(ctx, b.guestPID); err != nil {
			return b.explain(ctx, err)
		}
	}
	if err := b.host.API.Pause(ctx, b.st.Sandbox, true); err != nil {
		return b.explain(ctx, err)
	}
	b.over()
	return nil
}

// stopGrace is how long a guest may take to end its processes in order.
const stopGrace = 5 * time.Second

// Pause freezes the sandbox with its memory; Resume thaws it.
func (b *Box) Pause(ctx context.Context) error {
	defer b.hold()()
	if b.destroyed || b.stopped {
		return errs.New(errs.SandboxUnknown, "sandbox %s is stopped", b.id)
	}
	b.tunnels.Close()
	b.detach()
	if err := b.host.API.Pause(ctx, b.st.Sandbox, true); err != nil {
		return b.explain(ctx, err)
	}
	b.over()
	return nil
}

// Park leaves the sandbox to its lease and its end.
func (b *Box) Park() {
	release := b.hold()
	b.tunnels.Close()
	b.detach()
	b.over()
	release()
	b.beats.Wait()
}

// Destroy removes everything.
func (b *Box) Destroy(ctx context.Context) error {
	release := b.hold()
	err := b.destroy(ctx)
	release()
	if err == nil {
		b.beats.Wait()
	}
	return err
}

func (b *Box) destroy(ctx context.Context) error {
	if b.destroyed {
		return nil
	}
	b.tunnels.Close()
	// A driver that was killed while it made the sandbox may have got another one that came late.
	var others sync.WaitGroup
	others.Go(func() { b.host.removeOthers(ctx, b.id, b.st.Sandbox) })
	err := b.host.API.Kill(ctx, b.st.Sandbox)
	others.Wait()
	if err != nil {
		return err
	}
	b.destroyed = true
	if b.guest != nil {
		// It finds out by itself; a farewell would wait for an answer.
		select {
		case <-b.guest.Done():
		case <-time.After(stopGrace):
		}
	}
	b.detach()
	b.over()
	return nil
}

// explain tells what became of the sandbox where an error says that it is not there.
func (b *Box) explain(ctx context.Context, err error) error {
	if !errors.Is(err, errs.SandboxGone) {
		return err
	}
	if gone := b.gone(ctx); gone != nil {
		return gone
	}
	return err
}

// gone gives why the sandbox does not run: errs.SandboxGone when it is removed, errs.ProcessUnknown when it is paused, and
// can be resumed. Nil when it runs, or nobody can tell.
func (b *Box) gone(ctx context.Context) error {
	info, err := b.host.API.Get(ctx, b.st.Sandbox)
	switch {
	case errors.Is(err, errs.SandboxGone):
		return errs.New(errs.SandboxGone, "sandbox %s (%s at %s) no longer exists: its time was over, or somebody removed it", b.id, b.st.Sandbox, b.st.Where)
	case err != nil:
		return nil //nolint:nilerr // nobody can tell
	case info.State == client.StatePaused:
		return errs.New(errs.ProcessUnknown, "sandbox %s is paused", b.id)
	}
	b.remote.Renew(info)
	return nil
}

// Inspect says how the sandbox is. It wakes nothing.
func (b *Box) Inspect(ctx context.Context) (driver.Info, error) {
	release := b.hold()
	info := driver.Info{
		SandboxID: b.id, Labels: b.labels, Created: b.created, Deadline: b.st.Deadline, Root: b.record.Root, OS: "linux", Arch: b.record.Arch,
		Isolation: Isolation(), Status: driver.StatusGone,
		Display: map[string]string{"sandbox": b.st.Sandbox, "service": b.st.Where, "template": b.st.Template},
	}
	destroyed := b.destroyed
	release()
	if destroyed {
		return info, nil
	}
	got, err := b.host.API.Get(ctx, b.st.Sandbox)
	if errors.Is(err, errs.SandboxGone) {
		return info, nil
	}
	if err != nil {
		return info, err
	}
	info.Status, info.Deadline = Status(got.State), got.EndAt
	if info.Status == driver.StatusRunning {
		b.measure(ctx, info.Display)
	}
	return info, nil
}

// measure adds what the service has measured last, as far as it tells.
func (b *Box) measure(ctx context.Context, display map[string]string) {
	all, err := b.host.API.Metrics(ctx, b.st.Sandbox, time.Time{}, time.Time{})
	if err != nil || len(all) == 0 {
		b.host.Log.Debug("the service tells no measurements", "sandbox", b.id, "error", err)
		return
	}
	m := all[len(all)-1]
	const mib = 1 << 20
	display["cpu"] = fmt.Sprintf("%.1f %% of %d", m.CPUUsedPct, m.CPUCount)
	display["memory"] = fmt.Sprintf("%d of %d MiB", m.MemUsed/mib, m.MemTotal/mib)
	display["disk"] = fmt.Sprintf("%d of %d MiB", m.DiskUsed/mib, m.DiskTotal/mib)
}

// Status is where a sandbox is in its life.
func Status(state string) driver.Status {
	if state == client.StatePaused {
		return driver.StatusPaused
	}
	return driver.StatusRunning
}

// Isolation is what the service promises, and nobody here can prove.
func Isolation() []driver.Isolation {
	return []driver.Isolation{
		{Axis: "kernel", Statement: "a micro virtual machine with its own kernel, as the service says", Strength: 4},
		{Axis: "kill", Statement: "whole trees, by marks that processes inherit; one that resets them on purpose ends with the sandbox", Strength: 2},
	}
}

// Snapshot saves the sandbox at the service.
func (b *Box) Snapshot(ctx context.Context, name string, memory bool, labels map[string]string) (driver.NativeSnapshot, error) {
	if memory {
		return driver.NativeSnapshot{}, errs.New(errs.Unsupported, "processes of a snapshot are ended when a sandbox is made from it").With("feature", string(driver.SnapMemory))
	}
	s, err := b.host.API.Snapshot(ctx, b.st.Sandbox, snapshotName(name))
	if err != nil {
		return driver.NativeSnapshot{}, b.explain(ctx, err)
	}
	native := driver.NativeSnapshot{ID: s.ID, SandboxID: b.id, Created: cmp.Or(s.CreatedAt, time.Now()), Labels: labels}
	if err := b.host.Snapshots.Put(native); err != nil {
		// Nobody will hear of it.
		return driver.NativeSnapshot{}, errors.Join(err, b.host.API.DeleteSnapshot(context.WithoutCancel(ctx), s.ID))
	}
	return native, nil
}

// snapshotName keeps what the service takes for a name.
func snapshotName(name string) string {
	out := []byte{}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			out = append(out, c)
		case c >= 'A' && c <= 'Z':
			out = append(out, c|0x20)
		default:
			out = append(out, '-')
		}
	}
	return string(out[:min(len(out), 60)])
}
