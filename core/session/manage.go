// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Remove removes a session that nobody drives, with its sandbox. Force forgets also one whose sandbox cannot be removed
// from here, because its state cannot be trusted, its driver fails, or it is on another machine.
func (m *Manager) Remove(ctx context.Context, rec *state.Session, force bool) error {
	if rec.Status == state.Gone {
		return m.Store.DeleteSession(ctx, rec.ID)
	}
	lease, err := m.take(ctx, rec, "session rm")
	if err != nil {
		return err
	}
	if err = m.removeSandbox(ctx, rec); err != nil && !force {
		rec.Reason = "it could not be removed: " + err.Error()
		end := errors.Join(m.Store.UpdateSession(context.WithoutCancel(ctx), rec), m.Store.ReleaseSession(context.WithoutCancel(ctx), rec.ID, lease.Token))
		return errors.Join(fmt.Errorf("remove session %s: %w", rec.ID, err), end)
	}
	rec.Status, rec.Reason = state.Gone, "it was removed at "+m.Now().Format(time.RFC3339)
	if err != nil {
		rec.Reason += "; its sandbox may be left: " + err.Error()
	}
	return errors.Join(m.Store.UpdateSession(ctx, rec), m.Store.ReleaseSession(ctx, rec.ID, lease.Token))
}

// removeSandbox removes what a record is about.
func (m *Manager) removeSandbox(ctx context.Context, rec *state.Session) error {
	if here := state.Here("").Name; rec.Host != here {
		return errs.New(errs.SandboxUnknown, "it was made on %s, and this is %s", rec.Host, here).
			WithHint("remove it there; --force forgets it here")
	}
	b, err := m.body(rec.ID, rec.State)
	if err != nil {
		return err
	}
	if b.State != nil {
		return m.Drivers.Destroy(ctx, b.Driver, rec.ID, *b.State)
	}
	// Whether there is one was never known.
	left, err := m.Drivers.List(ctx, b.Driver, map[string]string{LabelSession: rec.ID})
	if errors.Is(err, errs.Unsupported) || (err == nil && len(left) == 0) {
		return nil
	}
	return errors.Join(err, m.destroyAll(ctx, b.Driver, left))
}

func (m *Manager) destroyAll(ctx context.Context, driverName string, all []driver.Info) error {
	var err error
	for _, info := range all {
		err = errors.Join(err, m.Drivers.Destroy(ctx, driverName, info.SandboxID, driver.State{}))
	}
	return err
}

// Finding is one thing that [Manager.Collect] saw.
type Finding struct {
	Session string `json:"session,omitempty"`
	Driver  string `json:"driver"`
	// What is wrong, as a sentence without its subject.
	What string `json:"what"`
	// Action is what is done about it; empty = nothing.
	Action string `json:"action,omitempty"`
	// Error says why it was not done.
	Error string `json:"error,omitempty"`
}

// Collect compares the records of this machine's sessions with the sandboxes that drivers have: it forgets sessions whose
// sandboxes are gone, removes sandboxes that were never finished, and tells of sandboxes that no record knows. What
// somebody drives is left alone. A dry run only tells. Of drivers that cannot list their sandboxes it says so.
func (m *Manager) Collect(ctx context.Context, drivers []string, dry bool) ([]Finding, error) {
	known, err := m.Store.ListSessions(ctx, state.SessionFilter{Host: state.Here("").Name})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, d := range drivers {
		names[d] = true
	}
	for _, rec := range known {
		if rec.Status != state.Gone {
			names[rec.Driver] = true
		}
	}
	var all []Finding
	for _, name := range slices.Sorted(maps.Keys(names)) {
		found, err := m.collect(ctx, name, dry)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
	}
	if !dry {
		_, err = m.Store.PruneSessions(ctx, GoneFor)
	}
	return all, err
}

func (m *Manager) collect(ctx context.Context, driverName string, dry bool) ([]Finding, error) {
	have, err := m.Drivers.List(ctx, driverName, map[string]string{LabelStore: m.Store.ID()})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return []Finding{{Driver: driverName, What: "was not looked at", Error: err.Error()}}, nil
	}
	// The records are read after the list: a sandbox without one was never ours to keep, for a record is there before its
	// sandbox and until it is gone.
	records, err := m.Store.ListSessions(ctx, state.SessionFilter{Host: state.Here("").Name})
	if err != nil {
		return nil, err
	}
	here := map[string]driver.Info{}
	for _, info := range have {
		here[info.SandboxID] = info
	}
	var all []Finding
	add := func(f Finding, do func() error) {
		if !dry {
			if err := do(); err != nil {
				f.Error = err.Error()
			}
		}
		all = append(all, f)
	}
	for _, rec := range records {
		if rec.Driver != driverName || rec.Status == state.Gone {
			continue
		}
		_, there := here[rec.ID]
		delete(here, rec.ID)
		f := Finding{Session: rec.ID, Driver: driverName, Action: "forgotten"}
		switch {
		case rec.Lease != nil && !rec.Lease.By.Dead() && (rec.Lease.By.Local() || !rec.Lease.Expired):
			continue // somebody is at it
		case !there:
			f.What = "its sandbox is gone"
			add(f, func() error { return m.forget(ctx, rec, "its driver does not know its sandbox any more") })
		case rec.Status == state.Creating:
			f.What, f.Action = "its sandbox was never finished", "removed"
			add(f, func() error { return m.Remove(ctx, rec, false) })
		case rec.Status == state.Ending:
			f.What, f.Action = "its removal was not finished", "removed"
			add(f, func() error { return m.Remove(ctx, rec, false) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(here)) {
		// A record of another machine's that has the same store is none of ours.
		if rec, err := m.Store.Session(ctx, id); err == nil && rec.Status != state.Gone {
			continue
		} else if err != nil && !errors.Is(err, state.ErrUnknown) {
			return all, err
		}
		// Its state went with its record, and without it no driver removes a sandbox.
		all = append(all, Finding{Session: id, Driver: driverName, What: "no record knows this sandbox; remove it with the driver's own means"})
	}
	return all, nil
}

// forget puts down that a session is gone.
func (m *Manager) forget(ctx context.Context, rec *state.Session, why string) error {
	lease, err := m.take(ctx, rec, "session gc")
	if err != nil {
		return err
	}
	rec.Status, rec.Reason = state.Gone, why
	return errors.Join(m.Store.UpdateSession(ctx, rec), m.Store.ReleaseSession(ctx, rec.ID, lease.Token))
}

// Stop stops the sandbox and keeps its workspace.
func (s *Session) Stop(ctx context.Context) error { return s.end(ctx, "stop") }
