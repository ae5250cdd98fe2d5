// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake/machine"
)

// The states that matter here.
const (
	creating    = "creating"
	starting    = "starting"
	started     = "started"
	stopping    = "stopping"
	stopped     = "stopped"
	archiving   = "archiving"
	archived    = "archived"
	restoring   = "restoring"
	destroying  = "destroying"
	destroyed   = "destroyed"
	errored     = "error"
	buildFailed = "build_failed"
	pending     = "pending_build"
	building    = "building_snapshot"
	taking      = "snapshotting"
)

// The intervals of a sandbox that says nothing, in minutes.
const (
	defaultAutoStop    = 15
	defaultAutoArchive = 10080
	maxAutoArchive     = 43200
	noAutoDelete       = -1
	startWait          = 30 * time.Second
)

// dto is what clients see.
type dto struct {
	ID                  string            `json:"id"`
	OrganizationID      string            `json:"organizationId"`
	Name                string            `json:"name"`
	Snapshot            string            `json:"snapshot,omitempty"`
	User                string            `json:"user"`
	Env                 map[string]string `json:"env,omitempty"`
	Labels              map[string]string `json:"labels"`
	Public              bool              `json:"public"`
	NetworkBlockAll     bool              `json:"networkBlockAll"`
	NetworkAllowList    string            `json:"networkAllowList,omitempty"`
	DomainAllowList     string            `json:"domainAllowList,omitempty"`
	Target              string            `json:"target"`
	CPU                 int               `json:"cpu"`
	GPU                 int               `json:"gpu"`
	Memory              int               `json:"memory"`
	Disk                int               `json:"disk"`
	State               string            `json:"state"`
	DesiredState        string            `json:"desiredState"`
	ErrorReason         string            `json:"errorReason,omitempty"`
	Recoverable         bool              `json:"recoverable"`
	BackupState         string            `json:"backupState"`
	AutoStopInterval    int               `json:"autoStopInterval"`
	AutoArchiveInterval int               `json:"autoArchiveInterval"`
	AutoDeleteInterval  int               `json:"autoDeleteInterval"`
	Volumes             []volumeMount     `json:"volumes,omitempty"`
	BuildInfo           *buildInfo        `json:"buildInfo,omitempty"`
	CreatedAt           time.Time         `json:"createdAt"`
	UpdatedAt           time.Time         `json:"updatedAt"`
	LastActivityAt      time.Time         `json:"lastActivityAt"`
	SandboxClass        string            `json:"sandboxClass"`
	DaemonVersion       string            `json:"daemonVersion"`
	ToolboxProxyURL     string            `json:"toolboxProxyUrl"`
}

type buildInfo struct {
	DockerfileContent string `json:"dockerfileContent"`
}

type volumeMount struct {
	VolumeID  string `json:"volumeId"`
	MountPath string `json:"mountPath"`
	Subpath   string `json:"subpath,omitempty"`
}

// sandbox is one.
type sandbox struct {
	f       *Fake
	dto     dto
	pending bool   // a change goes on that the state may not show
	token   string // of previews; another after each start
	machine *machine.Machine
	binds   map[string]string
	stopped time.Time
	changed chan struct{} // closed and renewed with each change
}

// viewLocked is what clients see now.
func (s *sandbox) viewLocked() *dto {
	d := s.dto
	d.Labels, d.Env = maps.Clone(d.Labels), maps.Clone(d.Env)
	if d.ToolboxProxyURL == "" {
		d.ToolboxProxyURL = s.f.public + "/toolbox"
	}
	return &d
}

func (s *sandbox) setLocked(state string) {
	s.dto.State, s.dto.UpdatedAt = state, s.f.nowLocked()
	close(s.changed)
	s.changed = make(chan struct{})
}

// step is one part of a change: the state that it shows, and what is done in it.
type step struct {
	state string
	do    func() error
}

// goLocked makes a change in the background. The last step's state stays.
func (s *sandbox) goLocked(steps ...step) {
	s.pending = true
	s.setLocked(steps[0].state)
	s.f.all.Go(func() {
		for i, st := range steps {
			s.f.mu.Lock()
			if s.dto.State != st.state {
				s.setLocked(st.state)
			}
			s.f.mu.Unlock()
			var err error
			if st.do != nil {
				err = st.do()
			}
			if i < len(steps)-1 {
				select {
				case <-time.After(s.f.opts.Delay(st.state)):
				case <-s.f.stop:
					return
				}
			}
			if err != nil {
				s.f.mu.Lock()
				s.dto.ErrorReason, s.pending = err.Error(), false
				s.setLocked(errored)
				s.f.mu.Unlock()
				return
			}
		}
		s.f.mu.Lock()
		s.pending = false
		s.setLocked(s.dto.State)
		s.f.mu.Unlock()
	})
}

// boot starts the machine.
func (s *sandbox) boot() error {
	s.f.mu.Lock()
	o := machine.Options{Dir: s.f.sandboxDir(s.dto.ID), ID: s.dto.ID, User: s.dto.User, Env: s.dto.Env, Binds: s.binds}
	s.f.mu.Unlock()
	m, err := machine.Start(o)
	if err != nil {
		return fmt.Errorf("failed to start container: %w", err)
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.sandboxes[s.dto.ID] != s {
		m.Kill()
		return nil
	}
	s.machine, s.token = m, strings.ReplaceAll(uuid.NewString(), "-", "")
	s.dto.LastActivityAt = s.f.nowLocked()
	return nil
}

// end ends the machine.
func (s *sandbox) end() {
	s.f.mu.Lock()
	m := s.machine
	s.machine = nil
	s.f.mu.Unlock()
	if m != nil {
		m.Kill()
	}
}

func (s *sandbox) halt() error {
	s.end()
	s.f.mu.Lock()
	s.stopped = s.f.nowLocked()
	s.f.mu.Unlock()
	return nil
}

// waitLocked waits until a sandbox is started, or is not going to be, or half a minute has gone.
func (f *Fake) waitLocked(r *http.Request, s *sandbox) *dto {
	t := time.NewTimer(startWait)
	defer t.Stop()
	for s.pending && s.dto.State != started {
		changed := s.changed
		f.mu.Unlock()
		over := false
		select {
		case <-changed:
		case <-t.C:
			over = true
		case <-r.Context().Done():
			over = true
		}
		f.mu.Lock()
		if over {
			break
		}
	}
	return s.viewLocked()
}

// findLocked finds a sandbox by id or name.
func (f *Fake) findLocked(r *http.Request) (*sandbox, error) {
	key := r.PathValue("s")
	if s := f.sandboxes[key]; s != nil && s.dto.State != destroyed {
		return s, nil
	}
	for _, s := range f.sandboxes {
		if s.dto.Name == key && s.dto.State != destroyed {
			return s, nil
		}
	}
	return nil, fail(404, "Sandbox with ID or name "+key+" not found")
}

type createRequest struct {
	Name                *string           `json:"name"`
	Snapshot            string            `json:"snapshot"`
	BuildInfo           *buildInfo        `json:"buildInfo"`
	CPU                 int               `json:"cpu"`
	Memory              int               `json:"memory"`
	Disk                int               `json:"disk"`
	GPU                 int               `json:"gpu"`
	User                string            `json:"user"`
	Env                 map[string]string `json:"env"`
	Labels              map[string]string `json:"labels"`
	Public              bool              `json:"public"`
	NetworkBlockAll     bool              `json:"networkBlockAll"`
	NetworkAllowList    string            `json:"networkAllowList"`
	DomainAllowList     string            `json:"domainAllowList"`
	Target              string            `json:"target"`
	AutoStopInterval    *int              `json:"autoStopInterval"`
	AutoArchiveInterval *int              `json:"autoArchiveInterval"`
	AutoDeleteInterval  *int              `json:"autoDeleteInterval"`
	Volumes             []volumeMount     `json:"volumes"`
	LinkedSandbox       string            `json:"linkedSandbox"`
}

func (f *Fake) createSandbox(r *http.Request) (any, error) {
	var req createRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, from, err := f.newLocked(&req)
	if err != nil {
		return nil, err
	}
	f.sandboxes[s.dto.ID] = s
	prepare := func() error {
		dir := f.sandboxDir(s.dto.ID)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if from != "" {
			if out, err := exec.Command("cp", "-a", from, path.Join(dir, "disk")).CombinedOutput(); err != nil { //nolint:noctx // files of this machine
				return fmt.Errorf("copy the snapshot: %w (%s)", err, out)
			}
		}
		return machine.Prepare(dir)
	}
	if req.BuildInfo == nil {
		s.goLocked(step{creating, prepare}, step{starting, s.boot}, step{started, nil})
		return f.waitLocked(r, s), nil
	}
	if strings.Contains(req.BuildInfo.DockerfileContent, "unbuildable") {
		s.goLocked(step{pending, nil}, step{building, func() error {
			f.mu.Lock()
			s.dto.ErrorReason = "Failed to pull image"
			f.mu.Unlock()
			return nil
		}}, step{buildFailed, nil})
		return s.viewLocked(), nil
	}
	s.goLocked(step{pending, nil}, step{building, nil}, step{creating, prepare}, step{starting, s.boot}, step{started, nil})
	return s.viewLocked(), nil
}

// forbidden are the places where no volume may be.
var forbidden = []string{"/proc", "/sys", "/dev", "/boot", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/lib32"}

// newLocked checks a request. from is the disk that is copied.
func (f *Fake) newLocked(req *createRequest) (s *sandbox, from string, err error) {
	d := dto{
		ID: uuid.NewString(), OrganizationID: "org-1", User: cmp.Or(req.User, "daytona"), Env: req.Env, Labels: req.Labels, Public: req.Public,
		NetworkBlockAll: req.NetworkBlockAll, NetworkAllowList: req.NetworkAllowList, DomainAllowList: req.DomainAllowList,
		Target: cmp.Or(req.Target, "us"), GPU: req.GPU, DesiredState: started, BackupState: "None",
		AutoStopInterval: defaultAutoStop, AutoArchiveInterval: defaultAutoArchive, AutoDeleteInterval: noAutoDelete,
		Volumes: req.Volumes, BuildInfo: req.BuildInfo, SandboxClass: "container", DaemonVersion: "0.190.0",
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	d.Name = d.ID
	if req.Name != nil {
		d.Name = *req.Name
	}
	for _, other := range f.sandboxes {
		if other.dto.Name == d.Name && other.dto.State != destroyed {
			return nil, "", fail(409, "Sandbox with name "+d.Name+" already exists")
		}
	}
	switch {
	case req.BuildInfo == nil && (req.CPU > 0 || req.Memory > 0 || req.Disk > 0 || req.GPU > 0):
		return nil, "", fail(400, "Cannot specify Sandbox resources when using a snapshot")
	case req.BuildInfo != nil && req.Snapshot != "":
		return nil, "", fail(400, "Cannot specify a snapshot when using a build info entry")
	case req.BuildInfo != nil:
		d.CPU, d.Memory, d.Disk = cmp.Or(req.CPU, 1), cmp.Or(req.Memory, 1), cmp.Or(req.Disk, 3)
	default:
		snap := f.findSnapshotLocked(cmp.Or(req.Snapshot, DefaultSnapshot))
		if snap == nil {
			return nil, "", fail(400, "Snapshot "+req.Snapshot+" not found. Did you add it through the Daytona Dashboard?")
		}
		if snap.State != "active" {
			return nil, "", fail(400, "Snapshot "+snap.Name+" is "+snap.State)
		}
		d.Snapshot, d.CPU, d.Memory, d.Disk, from = snap.Name, snap.CPU, snap.Mem, snap.Disk, snap.dir
	}
	for v, to := range map[*int]*int{req.AutoStopInterval: &d.AutoStopInterval, req.AutoArchiveInterval: &d.AutoArchiveInterval, req.AutoDeleteInterval: &d.AutoDeleteInterval} {
		if v != nil {
			*to = *v
		}
	}
	if d.AutoStopInterval < 0 || d.AutoArchiveInterval < 0 || d.AutoArchiveInterval > maxAutoArchive {
		return nil, "", fail(400, "Interval must be a non-negative integer")
	}
	if d.AutoArchiveInterval == 0 {
		d.AutoArchiveInterval = maxAutoArchive
	}
	if req.GPU > 0 && d.AutoDeleteInterval != 0 {
		return nil, "", fail(400, "GPU sandboxes must be ephemeral")
	}
	binds := map[string]string{}
	for _, m := range req.Volumes {
		v := f.volumeLocked(m.VolumeID)
		switch {
		case v == nil:
			return nil, "", fail(404, "Volume "+m.VolumeID+" not found")
		case v.State != "ready":
			return nil, "", fail(400, "Volume "+v.Name+" is not in a ready state")
		case !path.IsAbs(m.MountPath), path.Clean(m.MountPath) == "/", slices.ContainsFunc(forbidden, func(p string) bool {
			return m.MountPath == p || strings.HasPrefix(m.MountPath, p+"/")
		}):
			return nil, "", fail(400, "Invalid mount path: "+m.MountPath)
		}
		dir := path.Join(v.dir, path.Clean("/"+m.Subpath))
		if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777)); err != nil { // whatever the umask
			return nil, "", err
		}
		binds[m.MountPath] = dir
	}
	d.CreatedAt = f.nowLocked()
	d.UpdatedAt, d.LastActivityAt = d.CreatedAt, d.CreatedAt
	return &sandbox{f: f, dto: d, binds: binds, changed: make(chan struct{})}, from, nil
}

func (f *Fake) getSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	return s.viewLocked(), nil
}

const listDefault = 100

// listSandboxes gives pages. What it gives of each is not all that there is.
func (f *Fake) listSandboxes(r *http.Request) (any, error) {
	q := r.URL.Query()
	want := map[string]string{}
	if l := q.Get("labels"); l != "" && json.Unmarshal([]byte(l), &want) != nil {
		return nil, fail(400, "labels must be a valid JSON object")
	}
	limit, from := listDefault, 0
	if l := q.Get("limit"); l != "" {
		n, err := number(l)
		if err != nil || n < 1 || n > 200 {
			return nil, fail(400, "limit must not be greater than 200")
		}
		limit = n
	}
	if c := q.Get("cursor"); c != "" {
		b, err := base64.RawURLEncoding.DecodeString(c)
		if err != nil {
			return nil, fail(400, "Invalid cursor")
		}
		if from, err = strconv.Atoi(string(b)); err != nil {
			return nil, fail(400, "Invalid cursor")
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*dto
	for _, s := range f.sandboxes {
		fits := s.dto.State != destroyed && (q.Get("name") == "" || q.Get("name") == s.dto.Name)
		for k, v := range want {
			fits = fits && s.dto.Labels[k] == v
		}
		if fits {
			d := s.viewLocked()
			d.Env, d.Volumes, d.BuildInfo, d.NetworkAllowList, d.DomainAllowList = nil, nil, nil, "", ""
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *dto) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID)) })
	from = min(from, len(all))
	page := all[from:min(from+limit, len(all))]
	next := any(nil)
	if from+limit < len(all) {
		next = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(from + limit)))
	}
	return map[string]any{"items": append([]*dto{}, page...), "nextCursor": next}, nil
}
