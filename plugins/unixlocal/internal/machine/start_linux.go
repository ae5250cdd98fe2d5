// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/cgroup"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

// Run is which sandbox a guest is started for.
type Run struct {
	Session   *store.Session
	OrphanTTL *time.Duration
	Locks     []*os.File // held as long as the guest lives
}

// Started is a guest that was started.
type Started struct {
	Guest  *confine.Guest
	Group  *cgroup.Group
	Report []driver.Isolation
}

// End ends the guest again.
func (s *Started) End() error {
	err := s.Group.Kill()
	s.Guest.Kill()
	<-s.Guest.Done()
	return errors.Join(err, s.Group.Remove())
}

// Start starts a guest. It returns when the guest is confined and serves.
func (m *Machine) Start(ctx context.Context, w *Want, r Run) (*Started, error) {
	plan, cfg, err := w.Plan()
	if err != nil {
		return nil, err
	}
	if cfg.Key, err = r.Session.Key(); err != nil {
		return nil, err
	}
	cfg.OrphanTTL, cfg.Report = r.OrphanTTL, plan.Report()

	var opened []*os.File
	defer func() {
		for _, f := range opened {
			_ = f.Close() // the guest has its own
		}
	}()
	// The lock says that a guest lives, whatever becomes of this process; the guest inherits it.
	lock, err := r.Session.Lock(ctx)
	if err != nil {
		return nil, err
	}
	opened = append(opened, lock)
	listener, err := r.Session.Listen()
	if err != nil {
		return nil, err
	}
	opened = append(opened, listener)
	stderr, err := os.OpenFile(filepath.Join(r.Session.Dir, "guest.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "open the guest's log", err)
	}
	opened = append(opened, stderr)

	group := &cgroup.Group{}
	if !w.Off {
		kill := plan.Kill == report.KillCgroup || plan.Kill == report.KillFreezer
		if group, err = m.Groups.New(r.Session.Record.ID, w.Limits, kill); err != nil {
			return nil, errs.Wrap(errs.StartFailed, "make the sandbox's cgroups", err)
		}
	}
	countOOM(&plan.Spec, &cfg, group.OOMFile())
	launch := &confine.Launch{
		Program: m.Program, Config: cfg, Spec: plan.Spec, IDs: w.Setup.IDs, Listener: listener, Keep: append([]*os.File{lock}, r.Locks...),
		Stderr: stderr,
	}
	if w.Off {
		launch.IDs = confine.IDMap{}
	}
	launch.OwnTasks, launch.Tasks, err = group.Tasks()
	opened = append(opened, slices.Concat(launch.OwnTasks, launch.Tasks)...)
	if err == nil {
		if launch.Cgroup, err = group.Unified(); launch.Cgroup != nil {
			opened = append(opened, launch.Cgroup)
		}
	}
	var g *confine.Guest
	if err == nil {
		g, err = confine.Start(ctx, launch)
	}
	if err != nil {
		_ = group.Remove() // the first error is the one to tell
		return nil, errs.Wrap(errs.StartFailed, "start the guest", err)
	}
	return &Started{Guest: g, Group: group, Report: cfg.Report}, nil
}
