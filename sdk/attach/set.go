// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Place is where a sandbox is now. A sandbox that was started again is at another one.
type Place struct {
	PID      int    // of a process in its mount namespace
	Root     string // of the workspace, inside
	UID, GID int    // of its user, as this machine counts
}

// Set are the mounts of one sandbox, for a driver: it attaches them, and again when the sandbox was started again. The zero
// value is ready.
type Set struct {
	mu    sync.Mutex
	specs map[string]driver.MountSpec // guarded by mu
}

// Times that a driver waits for a server.
const (
	attachTime = 30 * time.Second
	probeTime  = 10 * time.Second
)

func (p *Place) target(spec driver.MountSpec) *Target {
	t := &Target{PID: p.PID, Path: path.Clean(spec.Path), ID: spec.ID, ReadOnly: spec.ReadOnly, UID: p.UID, GID: p.GID}
	if !path.IsAbs(spec.Path) {
		t.Path = path.Join(p.Root, spec.Path)
	}
	return t
}

// Mount attaches storage that a process of this machine serves.
func (s *Set) Mount(ctx context.Context, p *Place, spec driver.MountSpec) (driver.MountInfo, error) {
	if spec.Strategy != Strategy || spec.HostPath == "" {
		return driver.MountInfo{}, errs.New(errs.Unsupported, "mount %s: this driver attaches what a process of this machine serves, not %q", spec.ID, spec.Strategy).
			With("feature", "mount."+spec.Kind+"."+spec.Strategy)
	}
	t := p.target(spec)
	if t.Path == "/" || t.Path == path.Clean(p.Root) {
		return driver.MountInfo{}, errs.New(errs.MountConfigInvalid, "mount %s: storage cannot take the place of %s", spec.ID, t.Path)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attachTime, errs.New(errs.MountFailed, "mount %s: not done within %s", spec.ID, attachTime))
	defer cancel()
	if err := Attach(ctx, t, spec.HostPath); err != nil {
		return driver.MountInfo{}, err
	}
	s.Keep([]driver.MountSpec{spec})
	return driver.MountInfo{ID: spec.ID, Path: t.Path, ReadOnly: spec.ReadOnly, Strategy: Strategy}, nil
}

// Keep remembers mounts, such as those of a sandbox that is found again.
func (s *Set) Keep(specs []driver.MountSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, spec := range specs {
		if spec.Strategy != Strategy {
			continue
		}
		if s.specs == nil {
			s.specs = map[string]driver.MountSpec{}
		}
		s.specs[spec.ID] = spec
	}
}

// Restore attaches every mount that is remembered, those above others first.
func (s *Set) Restore(ctx context.Context, p *Place) error {
	s.mu.Lock()
	all := slices.SortedFunc(maps.Values(s.specs), func(a, b driver.MountSpec) int { return len(a.Path) - len(b.Path) })
	s.mu.Unlock()
	for _, spec := range all {
		if _, err := s.Mount(ctx, p, spec); err != nil {
			return err
		}
	}
	return nil
}

// Empty says whether there is nothing to attach.
func (s *Set) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.specs) == 0
}

func (s *Set) find(id string) (driver.MountSpec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, ok := s.specs[id]
	if !ok {
		return spec, errs.New(errs.MountFailed, "there is no mount %q", id)
	}
	return spec, nil
}

// Unmount detaches storage.
func (s *Set) Unmount(ctx context.Context, p *Place, id string) error {
	spec, err := s.find(id)
	if err != nil {
		return err
	}
	if err := Detach(ctx, p.target(spec)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.specs, id)
	return nil
}

// Probe fails when a mount does not work.
func (s *Set) Probe(ctx context.Context, p *Place, id string) error {
	spec, err := s.find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, errs.New(errs.MountFailed, "no answer within %s", probeTime))
	defer cancel()
	return Probe(ctx, p.target(spec))
}
