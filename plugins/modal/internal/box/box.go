// SPDX-License-Identifier: Apache-2.0

// Package box is sandboxes at Modal: their life, and what works inside of them.
package box

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/plugins/modal/internal/place"
	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

const (
	// minLease is the shortest lease of a guest: connections to a vendor break at times.
	minLease = 5 * time.Second
	// stopGrace is how long a guest may take to end its processes in order.
	stopGrace = 5 * time.Second
)

// Host is what sandboxes have in common.
type Host struct {
	Client *client.Client
	Log    hclog.Logger
	Key    func(id string) []byte
	Over   func(*Box) // called when a value is not to be used any more
	// Snapshots is what Modal does not keep of them.
	Snapshots keep.Snapshots
}

// Options make a [Box].
type Options struct {
	ID             string
	Record         *Record
	Config         *settings.Config
	Env, SecretEnv map[string]string
	TTL            *time.Duration
	Preserved      bool // the workspace holds its contents
}

// Box is one sandbox.
type Box struct {
	*forward.Calls

	host *Host
	id   string
	c    *settings.Config
	ttl  *time.Duration

	// gate is held, by a value in it, by who connects, stops or destroys; what follows is theirs.
	gate           chan struct{}
	record         *Record
	sb             *modal.Sandbox // nil = stopped
	guest          *guestclient.Client
	env, secretEnv map[string]string
	mergeEnv       bool // the guest began with another environment: each command gets this one
	preserved      bool
	reattached     bool
	stopped        bool // this value is over; another takes its place
	destroyed      bool
}

var (
	_ driver.Sandbox           = (*Box)(nil)
	_ driver.Stopper           = (*Box)(nil)
	_ driver.Inspector         = (*Box)(nil)
	_ driver.Preserved         = (*Box)(nil)
	_ driver.Reattached        = (*Box)(nil)
	_ driver.Watcher           = (*Box)(nil)
	_ driver.ProcessTable      = (*Box)(nil)
	_ driver.FileSystem        = (*Box)(nil)
	_ driver.TreeIO            = (*Box)(nil)
	_ driver.NativeSnapshotter = (*Box)(nil)
	_ driver.PortForwarder     = (*Box)(nil)
	_ driver.PortExposer       = (*Box)(nil)
	_ driver.AccountKeeper     = (*Box)(nil)
)

// New makes the value of a sandbox that runs.
func New(h *Host, sb *modal.Sandbox, o Options) *Box {
	b := &Box{
		host: h, id: o.ID, c: o.Config, ttl: o.TTL, gate: make(chan struct{}, 1), record: o.Record, sb: sb,
		env: o.Env, secretEnv: o.SecretEnv, preserved: o.Preserved,
	}
	b.Calls = forward.New(forward.Config{Guest: b.live, Environment: b.today, User: func() string { return b.record.User }})
	return b
}

// today gives the environment, and whether each command has to be given it.
func (b *Box) today() (env, secret map[string]string, each bool) {
	defer b.hold()()
	return b.env, b.secretEnv, b.mergeEnv
}

// ID is the core's.
func (b *Box) ID() string { return b.id }

func (b *Box) hold() (release func()) {
	b.gate <- struct{}{}
	return func() { <-b.gate }
}

// holdUntil is hold, as long as ctx lives.
func (b *Box) holdUntil(ctx context.Context) (release func(), err error) {
	select {
	case b.gate <- struct{}{}:
		return func() { <-b.gate }, nil
	case <-ctx.Done():
		return nil, &errs.Error{Code: errs.Canceled, Op: "wait for the sandbox", Err: context.Cause(ctx)}
	}
}

// Begin connects to the guest, which it starts when none runs.
func (b *Box) Begin(ctx context.Context) error {
	release, err := b.holdUntil(ctx)
	if err != nil {
		return err
	}
	defer release()
	ttl := guest.DefaultOrphanTTL
	if b.ttl != nil {
		ttl = max(*b.ttl, minLease)
	}
	g := &place.Guest{
		Sandbox: b.sb, ID: b.id, Snapshot: b.c.ExitSnapshot, Kept: b.record.Image,
		Config: &guest.Config{
			Key: b.host.Key(b.id), OrphanTTL: &ttl, Root: b.record.Root, Env: b.env, SecretEnv: b.secretEnv, User: b.record.User,
			Report: Isolation(b.c),
		},
		Log: func(msg string, args ...any) { b.host.Log.Debug(msg, append(args, "sandbox", b.id)...) },
	}
	if b.guest, b.reattached, err = g.Connect(ctx); err != nil {
		return err
	}
	b.mergeEnv = b.reattached // it may have begun with another environment
	return nil
}

// Fill prepares the workspace of a new sandbox.
func (b *Box) Fill(ctx context.Context, req *driver.CreateRequest) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	if err := c.EnsureAccounts(ctx, req.Accounts); err != nil {
		return err
	}
	if b.record.Root == "/" || b.preserved {
		return nil
	}
	ws := req.Workspace
	mode := ws.Mode
	if mode == 0 {
		mode = 0o755
	}
	change := driver.MetaChange{Mode: &mode}
	owner := ws.Owner
	if owner == "" {
		owner = b.record.User
	}
	if owner != "" {
		if !strings.Contains(owner, ":") {
			owner += ":" // its group too
		}
		change.Owner = &owner
	}
	if ws.Group != "" {
		change.Group = &ws.Group
	}
	return c.SetMeta(ctx, b.record.Root, change)
}

// live gives the conversation with the guest.
func (b *Box) live(ctx context.Context) (*guestclient.Client, error) {
	release, err := b.holdUntil(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	switch {
	case b.destroyed:
		return nil, errs.New(errs.SandboxGone, "sandbox %s was destroyed", b.id)
	case b.stopped:
		return nil, errs.New(errs.SandboxUnknown, "sandbox %s is stopped", b.id)
	case b.guest == nil:
		return nil, errs.New(errs.SandboxUnknown, "sandbox %s is not connected", b.id)
	}
	select {
	case <-b.guest.Done():
		if err := vendor.Check(ctx, b.sb, b.id, b.c.ExitSnapshot, b.record.Image); errors.Is(err, errs.SandboxGone) {
			return nil, err
		}
		e := errs.New(errs.SandboxUnknown, "the guest of sandbox %s does not answer", b.id)
		e.Err = b.guest.Err()
		return nil, e
	default:
		return b.guest, nil
	}
}

// Usable says whether the sandbox still answers.
func (b *Box) Usable() bool {
	defer b.hold()()
	if b.destroyed || b.stopped || b.guest == nil {
		return false
	}
	select {
	case <-b.guest.Done():
		return false
	default:
		return true
	}
}

// Renew is a resume of a sandbox that this process has: commands get today's environment.
func (b *Box) Renew(env, secret map[string]string) {
	defer b.hold()()
	b.env, b.secretEnv, b.mergeEnv = env, secret, true
	b.preserved, b.reattached = true, true
}

// State is what Resume needs.
func (b *Box) State() driver.State {
	defer b.hold()()
	data, err := json.Marshal(b.record)
	if err != nil { // it is plain data
		data = nil
	}
	return driver.State{Version: StateVersion, Data: data, Display: b.display(), Deadline: b.record.Deadline}
}

func (b *Box) display() map[string]string {
	d := map[string]string{"app": b.record.App, "server": b.record.Server}
	for k, v := range map[string]string{"sandbox": b.record.Sandbox, "snapshot": b.record.Image} {
		if v != "" {
			d[k] = v
		}
	}
	return d
}

// WorkspacePreserved says whether the workspace holds its contents.
func (b *Box) WorkspacePreserved() bool {
	defer b.hold()()
	return b.preserved
}

// Reattached says whether the processes of before are still there.
func (b *Box) Reattached() bool {
	defer b.hold()()
	return b.reattached
}

// Inspect says how the sandbox is.
func (b *Box) Inspect(ctx context.Context) (driver.Info, error) {
	release, err := b.holdUntil(ctx)
	if err != nil {
		return driver.Info{}, err
	}
	defer release()
	info := driver.Info{
		SandboxID: b.id, Labels: maps.Clone(b.record.Labels), Created: b.record.Created, Deadline: b.record.Deadline, Root: b.record.Root,
		OS: "linux", Isolation: Isolation(b.c), Status: driver.StatusRunning, Display: b.display(),
	}
	if b.guest != nil {
		info.Arch = b.guest.Hello().Arch
	}
	switch {
	case b.destroyed:
		info.Status = driver.StatusGone
	case b.record.Sandbox == "":
		info.Status = driver.StatusStopped
	default:
		err := vendor.Check(ctx, b.sb, b.id, false, "")
		if errors.Is(err, errs.SandboxGone) {
			info.Status = driver.StatusGone
			info.Display["ended"] = err.Error()
		} else if err != nil {
			return info, err
		}
	}
	return info, nil
}

// Stop ends every process. With persist the files become a snapshot, from which a resume makes the sandbox again: Modal
// cannot stop one. Without, it is destroyed.
func (b *Box) Stop(ctx context.Context, persist bool) error {
	if !persist {
		return b.Destroy(ctx)
	}
	release, err := b.holdUntil(ctx)
	if err != nil {
		return err
	}
	defer release()
	switch {
	case b.destroyed:
		return errs.New(errs.SandboxGone, "sandbox %s was destroyed", b.id)
	case b.record.Sandbox == "":
		return nil
	case b.stopped:
		return errs.New(errs.SandboxUnknown, "sandbox %s is parked", b.id)
	}
	if err := vendor.Check(ctx, b.sb, b.id, b.c.ExitSnapshot, b.record.Image); err != nil {
		return err
	}
	if b.guest != nil {
		// In order first; what does not end then ends with the sandbox.
		ending, cancel := context.WithTimeoutCause(ctx, stopGrace, errs.New(errs.StopFailed, "the guest did not end within %s", stopGrace))
		_ = b.guest.Shutdown(ending)
		cancel()
	}
	// All of it: what is beside the workspace is part of a stopped sandbox too.
	img, err := b.sb.SnapshotFilesystem(ctx, &modal.SandboxSnapshotFilesystemParams{Timeout: b.c.SnapshotTimeout, TTL: ttlOf(b.c)})
	if err != nil {
		return vendor.Error(ctx, errs.StopFailed, "keep the files of the sandbox", err)
	}
	old := b.record.Image
	b.record.Image = img.ImageID
	if err := b.terminate(ctx); err != nil {
		return err
	}
	b.record.Sandbox, b.record.Deadline = "", time.Time{}
	b.over()
	b.deleteImage(ctx, old)
	return nil
}

func (b *Box) deleteImage(ctx context.Context, id string) {
	if id == "" {
		return
	}
	if err := b.host.Client.Images.Delete(ctx, id, nil); err != nil && client.KindOf(err) != client.NotFound {
		b.host.Log.Warn("a snapshot that is not needed any more was not deleted", "sandbox", b.id, "image", id, "error", err)
	}
}

// terminate ends the sandbox at Modal, and returns when it has ended. Preconditions: the gate is held.
func (b *Box) terminate(ctx context.Context) error {
	var sb *modal.Sandbox
	var err error
	if b.record.Sandbox == "" {
		// Somebody else may have made the stopped sandbox again.
		sb, err = b.host.Client.Sandboxes.FromName(ctx, b.record.App, b.id, nil)
	} else {
		// The value may be parked, and its own handle closed.
		sb, err = b.host.Client.Sandboxes.FromID(ctx, b.record.Sandbox, nil)
	}
	if err == nil {
		_, err = sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true})
	}
	if err != nil && client.KindOf(err) != client.NotFound {
		return vendor.Error(ctx, errs.StopFailed, "terminate the sandbox", err)
	}
	return nil
}

// over says that this value is not used any more. Preconditions: the gate is held.
func (b *Box) over() {
	if b.guest != nil {
		_ = b.guest.Close() // it never fails
	}
	if b.sb != nil {
		_ = b.sb.Detach() // only connections
	}
	b.stopped = true
	b.host.Over(b)
}

// Park leaves the sandbox to its guest's lease and to its own timeout.
func (b *Box) Park() {
	defer b.hold()()
	b.over()
}

// Destroy ends the sandbox and deletes the snapshot that it was stopped with.
func (b *Box) Destroy(ctx context.Context) error {
	release, err := b.holdUntil(ctx)
	if err != nil {
		return err
	}
	defer release()
	if b.destroyed {
		return nil
	}
	if err := b.terminate(ctx); err != nil {
		return err
	}
	b.deleteImage(ctx, b.record.Image)
	b.over()
	b.destroyed = true
	return nil
}

func ttlOf(c *settings.Config) time.Duration {
	if c.SnapshotTTL == 0 {
		return modal.NoExpiryTTL
	}
	return c.SnapshotTTL
}
