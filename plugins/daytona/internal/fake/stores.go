// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// snapshot is what sandboxes are made from.
type snapshot struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	State   string    `json:"state"`
	General bool      `json:"general"`
	CPU     int       `json:"cpu"`
	Mem     int       `json:"mem"`
	Disk    int       `json:"disk"`
	Size    float64   `json:"size"`
	Created time.Time `json:"createdAt"`
	Reason  string    `json:"errorReason,omitempty"`

	dir string // a disk; empty = a fresh one
}

func (f *Fake) findSnapshotLocked(key string) *snapshot {
	if s := f.snapshots[key]; s != nil {
		return s
	}
	for _, s := range f.snapshots {
		if s.ID == key {
			return s
		}
	}
	return nil
}

func (f *Fake) snapshotSandbox(r *http.Request) (any, error) {
	var req struct {
		Name          string
		IncludeMemory bool
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	was := s.dto.State
	switch {
	case req.Name == "":
		return nil, fail(400, "name should not be empty")
	case req.IncludeMemory:
		return nil, fail(422, "Sandbox class 'container' does not support memory snapshots")
	case was != started && was != stopped:
		return nil, fail(400, "Sandbox must be started or stopped to create a snapshot")
	case f.snapshots[req.Name] != nil:
		return nil, fail(409, fmt.Sprintf("Snapshot with name %q already exists for this organization", req.Name))
	}
	snap := &snapshot{ID: uuid.NewString(), Name: req.Name, State: "pending", CPU: s.dto.CPU, Mem: s.dto.Memory, Disk: s.dto.Disk, Created: f.nowLocked()}
	snap.dir = filepath.Join(f.dir, "snapshots", snap.ID)
	f.snapshots[snap.Name] = snap
	s.goLocked(step{taking, func() error {
		err := os.MkdirAll(filepath.Dir(snap.dir), 0o700)
		if err == nil {
			err = exec.Command("cp", "-a", filepath.Join(f.sandboxDir(s.dto.ID), "disk"), snap.dir).Run() //nolint:noctx // files of this machine
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		snap.State, snap.Size = "active", 0.1
		if err != nil {
			snap.State, snap.Reason = "error", err.Error()
		}
		return nil
	}}, step{was, nil})
	return s.viewLocked(), nil
}

func (f *Fake) listSnapshots(r *http.Request) (any, error) {
	page, limit := 1, 100
	for name, to := range map[string]*int{"page": &page, "limit": &limit} {
		if v := r.URL.Query().Get(name); v != "" {
			n, err := number(v)
			if err != nil {
				return nil, err
			}
			*to = n
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []*snapshot{}
	for _, s := range f.snapshots {
		items = append(items, s)
	}
	total := len(items)
	from := min((page-1)*limit, total)
	return map[string]any{"items": items[from:min(from+limit, total)], "total": total, "page": page, "totalPages": (total + limit - 1) / limit}, nil
}

func (f *Fake) createSnapshot(r *http.Request) (any, error) {
	var req struct {
		Name, ImageName   string
		CPU, Memory, Disk int
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.snapshots[req.Name] != nil {
		return nil, fail(409, fmt.Sprintf("Snapshot with name %q already exists for this organization", req.Name))
	}
	s := &snapshot{ID: uuid.NewString(), Name: req.Name, State: "active", CPU: max(1, req.CPU), Mem: max(1, req.Memory), Disk: max(3, req.Disk), Created: f.nowLocked()}
	f.snapshots[s.Name] = s
	return s, nil
}

func (f *Fake) getSnapshot(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.findSnapshotLocked(r.PathValue("id"))
	if s == nil {
		return nil, fail(404, "Snapshot "+r.PathValue("id")+" not found")
	}
	return *s, nil
}

func (f *Fake) deleteSnapshot(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.findSnapshotLocked(r.PathValue("id"))
	if s == nil || s.General {
		return nil, fail(404, "Snapshot "+r.PathValue("id")+" not found")
	}
	delete(f.snapshots, s.Name)
	if s.dir != "" {
		return map[string]any{}, os.RemoveAll(s.dir)
	}
	return map[string]any{}, nil
}

// volume is storage that outlives sandboxes.
type volume struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Created time.Time `json:"createdAt"`

	dir string
}

func (f *Fake) volumeLocked(key string) *volume {
	if v := f.volumes[key]; v != nil {
		return v
	}
	for _, v := range f.volumes {
		if v.ID == key {
			return v
		}
	}
	return nil
}

func (f *Fake) listVolumes(*http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []volume{}
	for _, v := range f.volumes {
		all = append(all, *v)
	}
	return all, nil
}

func (f *Fake) createVolume(r *http.Request) (any, error) {
	var req struct{ Name string }
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.volumes[req.Name] != nil {
		return nil, fail(409, "Volume with name "+req.Name+" already exists")
	}
	v := &volume{ID: uuid.NewString(), Name: req.Name, State: "pending_create", Created: f.nowLocked()}
	v.dir = filepath.Join(f.dir, "volumes", v.ID)
	if err := os.MkdirAll(v.dir, 0o777); err != nil {
		return nil, err
	}
	if err := os.Chmod(v.dir, 0o777); err != nil {
		return nil, err
	}
	f.volumes[v.Name] = v
	f.all.Go(func() {
		select {
		case <-time.After(f.opts.Delay("volume")):
		case <-f.stop:
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		v.State = "ready"
	})
	return *v, nil
}

func (f *Fake) getVolume(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.volumes[r.PathValue("name")]
	if v == nil {
		return nil, fail(404, "Volume with name "+strconv.Quote(r.PathValue("name"))+" not found")
	}
	return *v, nil
}

func (f *Fake) deleteVolume(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.volumeLocked(r.PathValue("id"))
	if v == nil {
		return nil, fail(404, "Volume "+r.PathValue("id")+" not found")
	}
	for _, s := range f.sandboxes {
		for _, m := range s.dto.Volumes {
			if (m.VolumeID == v.ID || m.VolumeID == v.Name) && s.dto.State != destroyed {
				return nil, fail(409, "Volume is in use by a sandbox")
			}
		}
	}
	delete(f.volumes, v.Name)
	return map[string]any{}, os.RemoveAll(v.dir)
}
