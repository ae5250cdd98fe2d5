// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// stateVersion is the version of [driver.State] that the driver writes.
const stateVersion = 2

// Options are for [New]; the zero value is a driver in memory without faults.
type Options struct {
	Name   string // empty = fake
	Dir    string // records sandboxes for other processes; empty = in memory only
	Faults []Fault
	// Crash ends the process. Nil: the driver value answers errs.DriverCrashed from then on.
	Crash func()
	// Shared lets several driver values in one process know the same sandboxes, like processes that share Dir; nil = none.
	Shared *Backend
	// Without hides optional features, and the interfaces behind them, from Describe.
	Without []driver.Feature
	// With claims what the driver can do and does not claim by itself: tree.zstd, tree.host_refs, tree.template.
	With []driver.Feature
}

// Backend is where sandboxes live. The zero Backend is empty and ready.
type Backend struct {
	mu        sync.Mutex
	boxes     map[string]*Sandbox  // guarded by mu
	snapshots map[string]*snapshot // guarded by mu
	templates map[string]*node     // guarded by mu; workspaces by their key
	next      int                  // guarded by mu
}

// Driver is the fake driver.
type Driver struct {
	opts    Options
	faults  *faults
	backend *Backend

	mu     sync.Mutex
	host   driver.Host   // guarded by mu
	config Config        // guarded by mu
	health chan struct{} // guarded by mu; closed when health changes
	ill    string        // guarded by mu; empty = healthy
}

// Config is the process configuration.
type Config struct {
	Greeting string `berth:"greeting"`
	Token    string `berth:"token"`
	Refuse   bool   `berth:"refuse"`
}

// SandboxConfig is the configuration of a sandbox.
type SandboxConfig struct {
	Image  string        `berth:"image"`
	Memory uint64        `berth:"memory"`
	Wait   time.Duration `berth:"wait"`
	Secret string        `berth:"secret"`
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.Configurer    = (*Driver)(nil)
	_ driver.Validator     = (*Driver)(nil)
	_ driver.HealthWatcher = (*Driver)(nil)
	_ driver.Lister        = (*Driver)(nil)
	_ driver.Drainer       = (*Driver)(nil)
	_ driver.StateUpgrader = (*Driver)(nil)
	_ driver.SnapshotStore = (*Driver)(nil)
)

// New makes a driver.
func New(opts Options) *Driver {
	if opts.Name == "" {
		opts.Name = "fake"
	}
	backend := opts.Shared
	if backend == nil {
		backend = &Backend{}
	}
	return &Driver{
		opts: opts, backend: backend, health: make(chan struct{}),
		faults: &faults{crash: opts.Crash, gone: make(chan struct{}), list: slices.Clone(opts.Faults)},
	}
}

// Inject adds a fault; its N counts from now on.
func (d *Driver) Inject(f Fault) { d.faults.add(f) }

// Calls says how often an operation was called.
func (d *Driver) Calls(op string) int { return d.faults.calls(op) }

// SetHealth makes the driver ill, or healthy when the description is empty.
func (d *Driver) SetHealth(description string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ill = description
	close(d.health)
	d.health = make(chan struct{})
}

// Host is what the driver was configured with.
func (d *Driver) Host() (driver.Host, Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.host, d.config
}

var features = []driver.Feature{
	driver.ProcAttach, driver.ProcPTY, driver.ProcSignal, driver.ProcList, driver.ProcUser, driver.ProcDetached, driver.ProcCwd,
	driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesWatch, driver.FilesRawNames, driver.FilesSymlinks,
	driver.TreeNative, driver.SnapNative, driver.PortTCP, driver.PortForward, driver.PortDynamic,
	driver.LifeResume, driver.LifeStop, driver.LifePause, driver.LifeDeadline, driver.LifeList, driver.LifeWatch,
	driver.AcctNative, driver.EnvPerExec, driver.EnvSecret, driver.StateUpgrade,
}

func processSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{Doc: "The fake driver's process.", Attributes: []schema.Attribute{
		{Name: "greeting", Type: schema.String, Default: "hello", Doc: "Put into the facts of each sandbox."},
		{Name: "token", Type: schema.String, Sensitive: true, Doc: "A secret that must not show."},
		{Name: "refuse", Type: schema.Bool, Default: false, Doc: "Refuse this configuration."},
	}}}
}

func sandboxSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{Doc: "A fake sandbox.", Attributes: []schema.Attribute{
		{Name: "image", Type: schema.String, Default: "scratch", Immutable: true, Doc: "What the sandbox is made of; nothing."},
		{Name: "memory", Type: schema.Number, Unit: schema.UnitBytes, Doc: "How much memory it would have."},
		{Name: "wait", Type: schema.Number, Unit: schema.UnitDuration, Doc: "How long a create takes."},
		{Name: "secret", Type: schema.String, Sensitive: true, Doc: "A secret that must not show."},
	}}}
}

// Describe says what the driver can do.
func (d *Driver) Describe() driver.Description {
	return driver.Description{
		Name: d.opts.Name, Version: "0.1.0",
		Features:      slices.DeleteFunc(slices.Concat(features, d.opts.With), func(f driver.Feature) bool { return slices.Contains(d.opts.Without, f) }),
		ProcessConfig: processSchema(), SandboxConfig: sandboxSchema(),
		StateVersion: stateVersion, StateReadable: []uint32{1}, Docs: "https://berth.dev/drivers/fake",
		Unimplementable: []driver.Unimplementable{{Feature: driver.GPU, Reason: "there is nothing to compute with"}},
		Isolation:       []driver.Isolation{{Axis: "filesystem", Statement: "files are in memory; no host file can be reached", Strength: 100}},
	}
}

// Configure takes the process configuration.
func (d *Driver) Configure(ctx context.Context, host driver.Host, config schema.Value) []driver.Diagnostic {
	fail := func(err error) []driver.Diagnostic {
		return []driver.Diagnostic{{Summary: "Configuration refused", Detail: err.Error(), Path: pathOf(err)}}
	}
	if _, err := d.faults.begin(ctx, "configure"); err != nil {
		return fail(err)
	}
	var c Config
	if err := config.Decode(processSchema(), &c); err != nil {
		return fail(err)
	}
	d.mu.Lock()
	d.host, d.config = host, c
	d.mu.Unlock()
	if c.Refuse {
		return []driver.Diagnostic{{Summary: "Configuration refused", Detail: "refuse is true", Path: driver.Path{{Attribute: "refuse"}}}}
	}
	return nil
}

func pathOf(err error) driver.Path {
	if e, ok := err.(*errs.Error); ok { //nolint:errorlint // only the error itself has the path
		return e.Path
	}
	return nil
}

// Validate checks a sandbox configuration.
func (d *Driver) Validate(ctx context.Context, config schema.Value, _ bool) []driver.Diagnostic {
	if _, err := d.faults.begin(ctx, "validate"); err != nil {
		return []driver.Diagnostic{{Summary: "Not checked", Detail: err.Error()}}
	}
	var c SandboxConfig
	if err := config.Decode(sandboxSchema(), &c); err != nil {
		return []driver.Diagnostic{{Summary: "Invalid configuration", Detail: err.Error(), Path: pathOf(err)}}
	}
	if c.Image == "" {
		return []driver.Diagnostic{{Warning: true, Summary: "The image has no name", Path: driver.Path{{Attribute: "image"}}}}
	}
	return nil
}

// WatchHealth reports the health now and on each [Driver.SetHealth].
func (d *Driver) WatchHealth(ctx context.Context, report func(driver.Health)) error {
	if _, err := d.faults.begin(ctx, "watch_health"); err != nil {
		return err
	}
	for {
		d.mu.Lock()
		h, changed := driver.Health{Healthy: d.ill == "", Description: d.ill}, d.health
		d.mu.Unlock()
		report(h)
		select {
		case <-changed:
		case <-d.faults.gone:
			return errCrashed
		case <-ctx.Done():
			return nil
		}
	}
}

// List finds sandboxes by labels.
func (d *Driver) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if _, err := d.faults.begin(ctx, "list"); err != nil {
			yield(driver.Info{}, err)
			return
		}
		for _, s := range d.all() {
			if info := s.info(); info.Status != driver.StatusGone && matches(info.Labels, labels) && !yield(info, nil) {
				return
			}
		}
	}
}

func matches(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

func (b *Backend) all() []*Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := slices.Sorted(maps.Keys(b.boxes))
	out := make([]*Sandbox, len(ids))
	for i, id := range ids {
		out[i] = b.boxes[id]
	}
	return out
}

// Drain parks, stops or destroys every sandbox.
func (d *Driver) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	if _, err := d.faults.begin(ctx, "drain"); err != nil {
		return err
	}
	for _, s := range d.backend.all() {
		r := driver.DrainResult{SandboxID: s.id, Outcome: "parked"}
		switch policy {
		case driver.OrphanStop:
			r.Outcome, r.Err = "stopped", s.Stop(ctx, true)
		case driver.OrphanDestroy:
			r.Outcome, r.Err = "destroyed", s.Destroy(ctx)
		case driver.OrphanPark:
		}
		if r.Err != nil {
			r.Outcome = "failed"
		}
		report(r)
	}
	return nil
}

// UpgradeState reads version 1, which was the bare id.
func (d *Driver) UpgradeState(from uint32, data []byte) ([]byte, error) {
	if from != 1 {
		return nil, errs.New(errs.Unsupported, "state version %d cannot be read", from)
	}
	return json.Marshal(stateData{ID: string(data)})
}

type stateData struct {
	ID string `json:"id"`
}

// Create makes a sandbox, or gives the one that has the id already.
func (d *Driver) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	end, err := d.faults.begin(ctx, "create")
	if err != nil {
		return nil, err
	}
	var c SandboxConfig
	if err := req.Config.Decode(sandboxSchema(), &c); err != nil {
		return nil, err
	}
	if m := req.Network.Mode; m != "" && m != "default" {
		return nil, errs.New(errs.Unsupported, "there is no network, so no policy %q for it", m).With("feature", string(driver.NetPolicy))
	}
	if req.Progress != nil {
		req.Progress(driver.Progress{Phase: "creating", Message: c.Image, Done: 1, Total: 1})
	}
	if c.Wait > 0 {
		t := time.NewTimer(c.Wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, errs.Wrap(errs.Canceled, "create", context.Cause(ctx))
		}
	}
	s, err := d.find(req.SandboxID)
	if err != nil || s.info().Status == driver.StatusGone {
		if s, err = d.newSandbox(req); err != nil {
			return nil, err
		}
	}
	if err := end(nil); err != nil {
		return nil, err
	}
	h := s.handle(d, true)
	h.preserved = s.filled
	return h, nil
}

// can says whether the driver claims a feature.
func (d *Driver) can(f driver.Feature) bool { return slices.Contains(d.Describe().Features, f) }

// find gives a sandbox of this process or of another one.
func (d *Driver) find(id string) (*Sandbox, error) {
	d.backend.mu.Lock()
	s := d.backend.boxes[id]
	d.backend.mu.Unlock()
	if s != nil {
		return s, nil
	}
	return d.load(id)
}

// Resume finds a sandbox again.
func (d *Driver) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	end, err := d.faults.begin(ctx, "resume")
	if err != nil {
		return nil, err
	}
	data := req.State.Data
	if req.State.Version == 1 {
		if data, err = d.UpgradeState(1, data); err != nil {
			return nil, err
		}
	}
	var st stateData
	if err := json.Unmarshal(data, &st); err != nil {
		return nil, errs.New(errs.InvalidArgument, "the state cannot be read: %s", err)
	}
	s, err := d.find(st.ID)
	if err != nil {
		return nil, err
	}
	if s.info().Status == driver.StatusGone {
		return nil, gone(st.ID)
	}
	reattached := !s.stopped()
	preserved := s.wake(req)
	if err := end(nil); err != nil {
		return nil, err
	}
	h := s.handle(d, reattached)
	h.preserved = preserved
	return h, nil
}

// Snapshots lists native snapshots by labels.
func (d *Driver) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return func(yield func(driver.NativeSnapshot, error) bool) {
		if _, err := d.faults.begin(ctx, "snapshots"); err != nil {
			yield(driver.NativeSnapshot{}, err)
			return
		}
		d.backend.mu.Lock()
		var all []driver.NativeSnapshot
		for _, id := range slices.Sorted(maps.Keys(d.backend.snapshots)) {
			all = append(all, d.backend.snapshots[id].NativeSnapshot)
		}
		d.backend.mu.Unlock()
		for _, s := range all {
			if matches(s.Labels, labels) && !yield(s, nil) {
				return
			}
		}
	}
}

// DeleteSnapshot deletes a native snapshot.
func (d *Driver) DeleteSnapshot(ctx context.Context, id string) error {
	if _, err := d.faults.begin(ctx, "delete_snapshot"); err != nil {
		return err
	}
	d.backend.mu.Lock()
	defer d.backend.mu.Unlock()
	delete(d.backend.snapshots, id)
	return nil
}

type snapshot struct {
	driver.NativeSnapshot
	files *tree
}

func (b *Backend) save(from *Sandbox, labels map[string]string) driver.NativeSnapshot {
	files := from.fs.clone()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	s := &snapshot{files: files, NativeSnapshot: driver.NativeSnapshot{
		ID: "snap-" + strconv.Itoa(b.next), SandboxID: from.id, Created: time.Now(), Bytes: files.bytes(), Labels: maps.Clone(labels),
	}}
	if b.snapshots == nil {
		b.snapshots = map[string]*snapshot{}
	}
	b.snapshots[s.ID] = s
	return s.NativeSnapshot
}

func (b *Backend) snapshot(id string) (*tree, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.snapshots[id]
	if s == nil {
		return nil, errs.New(errs.SnapshotUnusable, "there is no snapshot %q", id).With("snapshot", id)
	}
	return s.files.clone(), nil
}

func gone(id string) error {
	return errs.New(errs.SandboxGone, "there is no sandbox %s", id).With("sandbox", id)
}

// String names the driver, for logs.
func (d *Driver) String() string { return fmt.Sprintf("fake driver %q", d.opts.Name) }
