// SPDX-License-Identifier: Apache-2.0

// Package box is sandboxes at Daytona: their life, and what works inside of them, which is berth's guest in a raw terminal.
package box

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/inside"
	"github.com/berth-dev/berth/plugins/daytona/internal/settings"
	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/plugins/internal/tunnel"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

// Host is what sandboxes need of their driver.
type Host struct {
	Log       hclog.Logger
	Client    *client.Client
	API       string                 // its address
	Target    string                 // the region of sandboxes that name none
	Labels    map[string]string      // of every sandbox
	Key       func(id string) []byte // what a sandbox's guest and this installation know
	Beat      time.Duration          // between signs of life; 0 = a third of auto_stop
	Over      func(*Box)             // is told of values that are not used any more
	Snapshots keep.Snapshots         // their labels, which the vendor does not keep
}

// State is what Resume needs.
type State struct {
	ID       string        `json:"id"` // the vendor's
	Name     string        `json:"name"`
	API      string        `json:"api"`
	Root     string        `json:"root"`
	RunAs    string        `json:"run_as,omitempty"`
	Filled   bool          `json:"filled,omitempty"` // the workspace holds something of its owner's
	Lifetime time.Duration `json:"lifetime,omitempty"`
	Deadline time.Time     `json:"deadline,omitzero"`
}

// StateVersion is the version of State.
const StateVersion = 1

// Box is one sandbox.
type Box struct {
	*forward.Calls

	host      *Host
	id        string
	cfg       *settings.Config
	env       map[string]string
	secretEnv map[string]string
	ttl       *time.Duration
	tunnels   tunnel.Set
	using     atomic.Int64 // calls that go on
	used      atomic.Bool  // since the last look of the keeper

	// gate is held, by a value in it, by who starts or ends the sandbox; what follows is theirs.
	gate       chan struct{}
	st         State
	vendor     *client.Sandbox // as it was seen last
	facts      *inside.Facts   // nil = not looked at
	guest      *guestclient.Client
	mergeEnv   bool // the guest began with another environment: each command gets this one
	reattached bool
	stopped    bool // this value is over; another takes its place
	destroyed  bool
	lifetime   *time.Timer // ends the sandbox at its deadline
	keeper     context.CancelCauseFunc
	expired    bool
	previews   map[uint16]*signed
}

var (
	_ driver.Sandbox           = (*Box)(nil)
	_ driver.Stopper           = (*Box)(nil)
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

func (h *Host) newBox(id string, cfg *settings.Config) *Box {
	b := &Box{host: h, id: id, cfg: cfg, gate: make(chan struct{}, 1), previews: map[uint16]*signed{}}
	b.Calls = forward.New(forward.Config{Guest: b.live, Using: b.use, Filled: b.fill, Environment: b.today, User: b.runAs})
	return b
}

// ID is the sandbox's.
func (b *Box) ID() string { return b.id }

// hold takes the gate. The caller calls what it gets.
func (b *Box) hold() (release func()) {
	b.gate <- struct{}{}
	return func() { <-b.gate }
}

// Usable says whether the sandbox can still be used through this value.
func (b *Box) Usable() bool {
	defer b.hold()()
	return !b.destroyed && !b.stopped && !b.ended()
}

// ended says whether the guest ended under this value. Preconditions: the gate is held.
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
		panic(err) // texts and times only
	}
	return driver.State{Version: StateVersion, Data: data, Display: b.display(), Deadline: b.st.Deadline}
}

// display is for people. Preconditions: the gate is held.
func (b *Box) display() map[string]string {
	d := map[string]string{"sandbox": b.st.ID, "name": b.st.Name, "api": b.st.API}
	if v := b.vendor; v != nil {
		d["target"], d["state"] = v.Target, string(v.State)
		if v.Snapshot != "" {
			d["snapshot"] = v.Snapshot
		}
	}
	return d
}

// WorkspacePreserved says whether the workspace holds its contents.
func (b *Box) WorkspacePreserved() bool {
	defer b.hold()()
	return b.st.Filled
}

// Reattached says whether the processes of before are still there.
func (b *Box) Reattached() bool { return b.reattached }

// fill records that the workspace holds something of its owner's. Until then a resume says that it is empty, so that what
// a create was interrupted in is done again. A label tells it to whoever finds the sandbox.
func (b *Box) fill(ctx context.Context) error {
	defer b.hold()()
	if b.st.Filled {
		return nil
	}
	labels := maps.Clone(b.vendor.Labels)
	labels[settings.LabelFilled] = "true"
	if err := b.host.Client.SetLabels(ctx, b.st.ID, labels); err != nil {
		return b.over(ctx, err)
	}
	b.vendor.Labels, b.st.Filled = labels, true
	return nil
}

// Renew gives commands today's environment.
func (b *Box) Renew(env, secret map[string]string) {
	defer b.hold()()
	b.env, b.secretEnv, b.mergeEnv = env, secret, true
}

// use counts a call as activity until the caller calls what it gets.
func (b *Box) use() (done func()) {
	b.used.Store(true)
	b.using.Add(1)
	return func() { b.using.Add(-1) }
}

// setDeadline ends the sandbox when its time is over. The workspace stays. Preconditions: the gate is held.
func (b *Box) setDeadline(deadline time.Time) {
	b.st.Deadline = deadline
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	if deadline.IsZero() {
		return
	}
	b.lifetime = time.AfterFunc(time.Until(deadline), func() {
		release := b.hold()
		over := !b.stopped && !b.destroyed && !time.Now().Before(b.st.Deadline)
		b.expired = over
		release()
		if !over {
			return
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), b.cfg.StopTimeout, errors.New("out of time"))
		defer cancel()
		end := func() error { return b.Stop(ctx, true) }
		if b.cfg.Ephemeral() {
			end = func() error { return b.Destroy(ctx) }
		}
		if err := end(); err != nil {
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
	b.setDeadline(deadline)
	return deadline, nil
}

// leave says that this value is not used any more. Preconditions: the gate is held.
func (b *Box) leave() {
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	b.stopKeeping()
	b.stopped = true
	b.host.Over(b)
}

// detach leaves the guest to its lease. Preconditions: the gate is held.
func (b *Box) detach() {
	b.stopKeeping()
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
	b.leave()
}

// Inspect says how the sandbox is.
func (b *Box) Inspect(ctx context.Context) (driver.Info, error) {
	defer b.hold()()
	info := driver.Info{
		SandboxID: b.id, Deadline: b.st.Deadline, Root: b.st.Root, OS: "linux", Isolation: settings.Isolation(b.cfg), Status: driver.StatusGone, Display: b.display(),
	}
	if b.facts != nil {
		info.Arch, info.Features = b.facts.Arch, b.features()
	}
	if b.destroyed {
		return info, nil
	}
	v, err := b.host.Client.Sandbox(ctx, b.st.ID)
	if errors.Is(err, errs.SandboxGone) {
		return info, nil
	}
	if err != nil {
		return info, err
	}
	b.vendor = v
	info.Labels, info.Created, info.Status, info.Display = settings.CoreLabels(v.Labels), v.CreatedAt, Status(v.State), b.display()
	return info, nil
}

// Status is where a sandbox is in its life.
func Status(s client.State) driver.Status {
	switch s {
	case client.StateStarted, client.StateSnapshotting, client.StateForking, client.StateResizing:
		return driver.StatusRunning
	case client.StatePaused, client.StatePausing, client.StateResuming:
		return driver.StatusPaused
	case client.StateDestroying, client.StateDestroyed:
		return driver.StatusGone
	case client.StateCreating, client.StatePendingBuild, client.StateBuildingSnapshot, client.StatePullingSnapshot, client.StateStarting:
		return driver.StatusCreating
	default:
		return driver.StatusStopped
	}
}

// features are what this one can do. Preconditions: it was looked at.
func (b *Box) features() []driver.Feature {
	all := slices.Clone(settings.Features)
	if b.facts.UID != "0" {
		all = slices.DeleteFunc(all, func(f driver.Feature) bool { return f == driver.ProcUser || f == driver.AcctNative })
	}
	if b.cfg.Ephemeral() {
		all = slices.DeleteFunc(all, func(f driver.Feature) bool { return f == driver.LifeStop })
	}
	return all
}
