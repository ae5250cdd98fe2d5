// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Sandbox is one fake sandbox, whoever holds a handle on it.
type Sandbox struct {
	id     string
	root   string
	grants []string
	fs     *tree
	dir    string // records go here; empty = none
	key    string // of the template that the workspace is, or is to become; empty = none
	filled bool   // it was made from a template

	mu       sync.Mutex
	created  time.Time                   // guarded by mu
	labels   map[string]string           // guarded by mu
	env      map[string]string           // guarded by mu
	secrets  map[string]string           // guarded by mu
	status   driver.Status               // guarded by mu
	emptied  bool                        // guarded by mu: a stop did not keep the workspace
	deadline time.Time                   // guarded by mu
	accounts driver.Accounts             // guarded by mu
	mounts   map[string]mount            // guarded by mu
	procs    map[string]*process         // guarded by mu
	order    []string                    // guarded by mu; ids of procs as they were started
	ports    map[uint16]net.Listener     // guarded by mu; exposed
	servers  map[uint16]*process         // guarded by mu; that listen
	events   map[int]chan<- driver.Event // guarded by mu
	watched  int                         // guarded by mu
}

type mount struct {
	driver.MountInfo
	credentials map[string]string
}

// record is a sandbox on disk.
type record struct {
	ID, Root string
	Grants   []string
	Created  time.Time
	Labels   map[string]string
	Env      map[string]string
	Status   driver.Status
	Emptied  bool
	Deadline time.Time
	Accounts driver.Accounts
	Files    *node
	Procs    []procRecord
}

type procRecord struct {
	Command driver.Command
	Started time.Time
	Stdin   bool
	Exit    *driver.Exit
}

func (d *Driver) newSandbox(req *driver.CreateRequest) (*Sandbox, error) {
	s := &Sandbox{
		id: req.SandboxID, root: req.Workspace.Root, dir: d.opts.Dir, fs: newTree(), created: time.Now(),
		labels: maps.Clone(req.Labels), env: maps.Clone(req.Env), secrets: maps.Clone(req.SecretEnv),
		status: driver.StatusRunning, accounts: req.Accounts,
	}
	if s.root == "" {
		s.root = "/workspace"
	}
	for _, u := range req.Accounts.Users {
		if u == "" || strings.ContainsAny(u, ":/\n\x00 ") {
			return nil, errs.New(errs.InvalidArgument, "%q cannot be the name of a user", u)
		}
	}
	d.mu.Lock()
	host := d.host
	d.mu.Unlock()
	for k, v := range host.Labels {
		if s.labels == nil {
			s.labels = map[string]string{}
		}
		s.labels[k] = v
	}
	if req.MaxLifetime > 0 {
		s.deadline = s.created.Add(req.MaxLifetime)
	}
	if req.NativeSnapshot != "" {
		files, err := d.backend.snapshot(req.NativeSnapshot)
		if err != nil {
			return nil, err
		}
		s.fs, s.filled = files, true
	}
	if d.can(driver.TreeTemplate) {
		s.key = req.Workspace.Template
	}
	s.fs.mu.Lock()
	err := s.makeDirsLocked(req.Grants)
	if n := d.backend.template(s.key); n != nil && err == nil {
		s.filled, err = true, s.fs.putLocked(s.root, n, true)
	}
	if at, ferr := s.fs.findLocked(s.root, true); ferr == nil && at.node != nil && req.Workspace.Mode != 0 {
		at.node.Mode = req.Workspace.Mode
	}
	s.fs.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, m := range req.Mounts {
		s.addMount(m)
	}
	s.listen(req.Ports)
	d.backend.add(s)
	s.record()
	return s, nil
}

func (s *Sandbox) makeDirsLocked(grants []driver.PathGrant) error {
	dirs := []string{s.root, "/tmp"}
	for _, g := range grants {
		s.grants = append(s.grants, g.Path)
		dirs = append(dirs, g.Path)
	}
	for _, dir := range dirs {
		if at, err := s.fs.findLocked(dir, true); err == nil && at.node != nil {
			continue
		}
		if err := s.fs.putLocked(dir, directory(), true); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) add(s *Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.boxes == nil {
		b.boxes = map[string]*Sandbox{}
	}
	b.boxes[s.id] = s
}

func (s *Sandbox) roots() []string { return append([]string{s.root}, s.grants...) }

func (s *Sandbox) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status == driver.StatusStopped
}

// wake makes the sandbox run with today's configuration, and says whether it still holds its workspace.
func (s *Sandbox) wake(req *driver.ResumeRequest) (preserved bool) {
	s.mu.Lock()
	s.status = driver.StatusRunning
	preserved, s.emptied = !s.emptied, false
	if req.Env != nil {
		s.env = maps.Clone(req.Env)
	}
	if req.SecretEnv != nil {
		s.secrets = maps.Clone(req.SecretEnv)
	}
	s.mu.Unlock()
	for _, m := range req.Mounts {
		s.addMount(m)
	}
	s.record()
	return preserved
}

func (s *Sandbox) info() driver.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return driver.Info{
		SandboxID: s.id, Status: s.status, Labels: maps.Clone(s.labels), Created: s.created, Deadline: s.deadline,
		Root: s.root, OS: "linux", Arch: "amd64", Display: map[string]string{"kind": "fake"},
	}
}

// file is where the sandbox is recorded.
func (s *Sandbox) file() string { return filepath.Join(s.dir, filepath.Base(s.id)+".json") }

// record writes the sandbox to disk. A test that cannot write its own directory has bigger trouble.
func (s *Sandbox) record() {
	if s.dir == "" {
		return
	}
	s.mu.Lock()
	r := record{
		ID: s.id, Root: s.root, Grants: s.grants, Created: s.created, Labels: s.labels, Env: s.env, Status: s.status, Emptied: s.emptied,
		Deadline: s.deadline, Accounts: s.accounts, Files: s.fs.clone().root,
	}
	for _, id := range s.order {
		r.Procs = append(r.Procs, s.procs[id].recordedLocked())
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = s.replaceFile(b)
	}
	s.mu.Unlock()
	if err != nil {
		panic(err)
	}
}

// replaceFile writes the record at once, also when another process writes it at the same time.
func (s *Sandbox) replaceFile(b []byte) error {
	f, err := os.CreateTemp(s.dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), s.file())
}

// load brings back a sandbox of another process, and its processes.
func (d *Driver) load(id string) (*Sandbox, error) {
	s, procs, err := d.read(id)
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		s.replay(p)
	}
	d.backend.add(s)
	return s, nil
}

// read gives a sandbox as it is recorded, and what runs in it.
func (d *Driver) read(id string) (*Sandbox, []procRecord, error) {
	if d.opts.Dir == "" {
		return nil, nil, gone(id)
	}
	s := &Sandbox{id: id, dir: d.opts.Dir}
	b, err := os.ReadFile(s.file())
	if err != nil {
		return nil, nil, gone(id)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "read record", err)
	}
	s.root, s.grants, s.fs = r.Root, r.Grants, &tree{root: r.Files}
	s.created, s.labels, s.env, s.status, s.emptied = r.Created, r.Labels, r.Env, r.Status, r.Emptied
	s.deadline, s.accounts = r.Deadline, r.Accounts
	return s, r.Procs, nil
}

// all gives the sandboxes of this process and, as they are recorded now, those of others. What cannot be read is none.
func (d *Driver) all() []*Sandbox {
	out := d.backend.all()
	if d.opts.Dir == "" {
		return out
	}
	files, _ := filepath.Glob(filepath.Join(d.opts.Dir, "*.json")) // the pattern is well formed
	for _, f := range files {
		id := strings.TrimSuffix(filepath.Base(f), ".json")
		if slices.ContainsFunc(out, func(s *Sandbox) bool { return s.id == id }) {
			continue
		}
		if s, _, err := d.read(id); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// handle is what a driver gives out: a sandbox as this driver value knows it.
type handle struct {
	d          *Driver
	s          *Sandbox
	reattached bool
	preserved  bool
}

func (s *Sandbox) handle(d *Driver, reattached bool) *handle {
	return &handle{d: d, s: s, reattached: reattached}
}

var (
	_ driver.Sandbox           = (*handle)(nil)
	_ driver.Stopper           = (*handle)(nil)
	_ driver.Pauser            = (*handle)(nil)
	_ driver.Inspector         = (*handle)(nil)
	_ driver.Preserved         = (*handle)(nil)
	_ driver.Reattached        = (*handle)(nil)
	_ driver.DeadlineExtender  = (*handle)(nil)
	_ driver.Watcher           = (*handle)(nil)
	_ driver.FileSystem        = (*handle)(nil)
	_ driver.FileWatcher       = (*handle)(nil)
	_ driver.TreeIO            = (*handle)(nil)
	_ driver.ProcessTable      = (*handle)(nil)
	_ driver.NativeSnapshotter = (*handle)(nil)
	_ driver.PortExposer       = (*handle)(nil)
	_ driver.PortForwarder     = (*handle)(nil)
	_ driver.Mounter           = (*handle)(nil)
	_ driver.AccountKeeper     = (*handle)(nil)
)

// State is what Resume needs.
func (h *handle) State() driver.State {
	data, err := json.Marshal(stateData{ID: h.s.id})
	if err != nil {
		panic(err) // a string can always be encoded
	}
	info := h.s.info()
	return driver.State{Version: stateVersion, Data: data, Display: info.Display, Deadline: info.Deadline}
}

// WorkspacePreserved is true after a resume.
func (h *handle) WorkspacePreserved() bool { return h.preserved }

// Reattached is true unless the sandbox was stopped.
func (h *handle) Reattached() bool { return h.reattached }

// call runs f as one operation on the sandbox, if it still is there.
func (h *handle) call(ctx context.Context, op string, f func(*Sandbox) error) error {
	end, err := h.d.faults.begin(ctx, op)
	if err != nil {
		return err
	}
	h.s.mu.Lock()
	if h.s.status == driver.StatusGone {
		err = gone(h.s.id)
	} else {
		err = f(h.s)
	}
	h.s.mu.Unlock()
	if err == nil {
		h.s.record()
	}
	return end(err)
}

// Destroy ends every process and removes everything.
func (h *handle) Destroy(ctx context.Context) error {
	end, err := h.d.faults.begin(ctx, "destroy")
	if err != nil {
		return err
	}
	return end(h.s.Destroy(ctx))
}

// Destroy is what every handle's Destroy does.
func (s *Sandbox) Destroy(ctx context.Context) error {
	if err := s.endAll(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = driver.StatusGone
	s.closePortsLocked()
	if s.dir != "" {
		os.Remove(s.file()) // it may be gone already
	}
	return nil
}

// Stop ends every process.
func (h *handle) Stop(ctx context.Context, persist bool) error {
	end, err := h.d.faults.begin(ctx, "stop")
	if err != nil {
		return err
	}
	return end(h.s.Stop(ctx, persist))
}

// Stop is what every handle's Stop does.
func (s *Sandbox) Stop(ctx context.Context, persist bool) error {
	if err := s.endAll(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.status = driver.StatusStopped
	s.emptied = s.emptied || !persist
	s.mu.Unlock()
	if !persist {
		s.fs.mu.Lock()
		if at, err := s.fs.findLocked(s.root, true); err == nil && at.node != nil {
			at.node.Children = map[string]*node{}
		}
		s.fs.mu.Unlock()
	}
	s.record()
	return nil
}

func (s *Sandbox) endAll(ctx context.Context) error {
	s.mu.Lock()
	procs := slices.Collect(maps.Values(s.procs))
	s.mu.Unlock()
	for _, p := range procs {
		p.stopped.Store(true)
		p.signal("KILL")
	}
	for _, p := range procs {
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctxError(ctx, "stop")
		}
	}
	return nil
}

// Pause freezes the sandbox, in name only.
func (h *handle) Pause(ctx context.Context) error {
	return h.call(ctx, "pause", func(s *Sandbox) error {
		s.status = driver.StatusPaused
		s.tellLocked(driver.Event{Kind: driver.EventPaused})
		return nil
	})
}

// Inspect says how the sandbox is.
func (h *handle) Inspect(ctx context.Context) (driver.Info, error) {
	if _, err := h.d.faults.begin(ctx, "inspect"); err != nil {
		return driver.Info{}, err
	}
	info := h.s.info()
	if info.Status == driver.StatusGone {
		return driver.Info{}, gone(h.s.id)
	}
	return info, nil
}

// Info is what Inspect gives, for those who do not ask.
func (h *handle) Info() driver.Info { return h.s.info() }

// ExtendDeadline moves the deadline.
func (h *handle) ExtendDeadline(ctx context.Context, deadline time.Time) (time.Time, error) {
	err := h.call(ctx, "extend_deadline", func(s *Sandbox) error {
		s.deadline = deadline
		s.tellLocked(driver.Event{Kind: driver.EventStateChanged, Deadline: deadline})
		return nil
	})
	return deadline, err
}

// Watch reports what happens to the sandbox.
func (h *handle) Watch(ctx context.Context, report func(driver.Event)) error {
	events := make(chan driver.Event, 64)
	var id int
	if err := h.call(ctx, "watch", func(s *Sandbox) error {
		if s.events == nil {
			s.events = map[int]chan<- driver.Event{}
		}
		s.watched++
		id = s.watched
		s.events[id] = events
		return nil
	}); err != nil {
		return err
	}
	defer func() {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		delete(h.s.events, id)
	}()
	for {
		select {
		case e := <-events:
			report(e)
		case <-h.d.faults.gone:
			return errCrashed
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Sandbox) tellLocked(e driver.Event) {
	for _, c := range s.events {
		select {
		case c <- e:
		default:
		}
	}
}
