// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/sandbox/saving"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Snapshots says where workspaces are saved, and what a new one starts from.
type Snapshots struct {
	Repo   *snapshot.Repo
	Policy *spec.SnapshotPolicy // when to save; nil = only when it is asked for
	Keep   snapshot.Retention
	// From is what a new workspace starts from: "latest", a name or an id; empty or "never" = the manifest. With latest and
	// no snapshot yet, it is the manifest too.
	From string
	Run  string // kept with each snapshot
}

// series names the snapshots of one workspace over time.
func (c *Config) series() string { return cmp.Or(c.Spec.Label, c.DriverName) }

// start finds the snapshot that a new workspace starts from; nil = none.
func (c *Config) start(ctx context.Context) (*snapshot.Record, error) {
	s := c.Snapshots
	if s == nil || c.Resume != nil || c.Native != "" || s.From == "" || s.From == "never" {
		return nil, nil
	}
	if s.From == "latest" {
		return s.Repo.Latest(ctx, c.series())
	}
	return s.Repo.Find(ctx, s.From)
}

// lost adds to an error that a sandbox cannot be found again what of it was saved.
func (c *Config) lost(ctx context.Context, err error) error {
	if c.Snapshots == nil || c.Resume == nil || !errors.Is(err, errs.SandboxGone) {
		return err
	}
	rec, lerr := c.Snapshots.Repo.LatestOf(ctx, c.ID)
	if rec == nil {
		return errors.Join(err, lerr)
	}
	e := &errs.Error{Code: errs.SandboxGone, Err: err, Message: fmt.Sprintf("the sandbox is gone; its workspace was saved as snapshot %s at %s",
		snapshot.Short(rec.ID), rec.Created.Local().Format(time.DateTime))}
	e.Hint = fmt.Sprintf(`on_gone = "restore_snapshot" in the session block goes on with it; berth run --from-snapshot %s starts a new run from it`, snapshot.Short(rec.ID))
	return e.With("snapshot", rec.ID)
}

// restore fills the workspace from a snapshot, unless that is preserved in it, and with what of the manifest is ephemeral.
func (s *Session) restore(ctx context.Context, rec *snapshot.Record, ws driver.Workspace, preserved bool) error {
	s.cfg.Emit(event.SandboxProgress{
		Phase: "restoring", Total: uint64(rec.Bytes),
		Message: fmt.Sprintf("snapshot %s of %s", snapshot.Short(rec.ID), rec.Created.Local().Format(time.DateTime)),
	})
	o := snapshot.RestoreOptions{
		Path: s.root, Template: ws.Template,
		Limits: driver.TreeLimits{MaxExtractedBytes: s.cfg.Spec.Archive.MaxExtractedBytes, MaxMembers: s.cfg.Spec.Archive.MaxMembers},
	}
	if preserved { // the driver has made the same workspace before, and laid this one over it
		if err := rec.Fits(o.Limits); err != nil {
			return err
		}
	} else {
		res, err := s.cfg.Snapshots.Repo.Restore(ctx, rec, s, o)
		if err != nil {
			return err
		}
		for _, skipped := range res.Skipped {
			s.cfg.Emit(event.Warning{Message: fmt.Sprintf("%s of snapshot %s was not restored: %s", skipped.Path, snapshot.Short(rec.ID), skipped.Reason)})
		}
	}
	if rec.Manifest != "" && rec.Manifest != s.contents.Digest() {
		s.cfg.Emit(event.Warning{
			Message: fmt.Sprintf("the manifest, or a file that it copies, is not what it was when snapshot %s began; the workspace stays as it was saved, but for ephemeral entries", snapshot.Short(rec.ID)),
			Hint:    `restore = "never" in the snapshot block starts from the manifest`,
		})
	}
	for i := range s.contents.Manifest.Entries {
		if s.contents.Manifest.Entries[i].Ephemeral {
			if err := s.fill(ctx, ws, true); err != nil {
				return err
			}
			return s.own(ctx, true)
		}
	}
	return nil
}

// SaveAside saves all of the workspace for whoever wants it back: it is nobody's latest, not even the session's own.
func (s *Session) SaveAside(ctx context.Context, why string) (*snapshot.Record, error) {
	o := s.look(nil)
	o.Series, o.Session = why, ""
	rec, _, err := s.Repo().Take(ctx, s, o)
	return rec, err
}

// Replace puts a snapshot of [Session.Repo] in the place of what the workspace holds. When it fails, the workspace is what it
// was, unless the error is marked as maybe applied.
func (s *Session) Replace(ctx context.Context, rec *snapshot.Record) error {
	for i := range s.contents.Manifest.Entries {
		if e := &s.contents.Manifest.Entries[i]; e.Kind == spec.EntryMount {
			return errs.New(errs.Unsupported, "%s is a mount, and a workspace with mounts cannot be replaced while it is in use", e.Path).
				WithHint("start a new one from the snapshot: berth run --from-snapshot %s", snapshot.Short(rec.ID))
		}
	}
	ws := driver.Workspace{Root: s.root}
	if s.contents.Manifest.OwnByRunAs {
		ws.Owner = s.cfg.RunAs
	}
	return s.restore(ctx, rec, ws, false)
}

var errNowhere = errs.New(errs.Unsupported, "the session has no place to save its workspace to")

// look says how the workspace is read. Of what is there, all is saved but for exclude and what each sandbox gets anew.
func (s *Session) look(exclude []string) snapshot.TakeOptions {
	o := snapshot.TakeOptions{
		Path: s.root, Versions: has(s.cfg.Driver, driver.FilesNative) && has(s.cfg.Driver, driver.TreeNative), Series: s.cfg.series(),
		Session: s.cfg.ID, Driver: s.cfg.DriverName, Manifest: s.contents.Digest(), Exclude: slices.Clone(exclude),
	}
	// Last, so that no other pattern takes it back.
	for i := range s.contents.Manifest.Entries {
		if e := &s.contents.Manifest.Entries[i]; e.Ephemeral || e.Kind == spec.EntryMount {
			o.Exclude = append(o.Exclude, snapshot.Pattern(e.Path))
		}
	}
	return o
}

// SaveWhole saves all of the workspace, also what the policy leaves out, for another sandbox to begin with. The snapshot is in
// a series of its own, so that it is nobody's latest.
func (s *Session) SaveWhole(ctx context.Context, repo *snapshot.Repo) (*snapshot.Record, *snapshot.Index, error) {
	o := s.look(nil)
	o.Series = "session " + s.cfg.ID
	return repo.Take(ctx, s, o)
}

// Repo is where the workspace is saved; nil = nowhere.
func (s *Session) Repo() *snapshot.Repo {
	if s.cfg.Snapshots == nil {
		return nil
	}
	return s.cfg.Snapshots.Repo
}

// Differs gives what is different in the workspace from what a snapshot of [Session.Repo] holds. What the snapshot left out
// on purpose counts as little now.
func (s *Session) Differs(ctx context.Context, from *snapshot.Record) (iter.Seq[snapshot.Change], error) {
	repo := s.Repo()
	if repo == nil {
		return nil, errNowhere
	}
	then, err := repo.Load(ctx, from)
	if err != nil {
		return nil, err
	}
	o := s.look(nil)
	o.Exclude = append(slices.Clone(from.Exclude), o.Exclude...)
	now, err := repo.Scan(ctx, s, o)
	if err != nil {
		return nil, err
	}
	return snapshot.Diff(then, now), nil
}

// Save saves the workspace as it is now, also by the driver's own means where the policy wants that.
func (s *Session) Save(ctx context.Context) (*snapshot.Record, error) { return s.save(ctx, true) }

// save saves the workspace. Unless it is the last time for now, what the driver does by itself is left to later.
func (s *Session) save(ctx context.Context, last bool) (*snapshot.Record, error) {
	cfg := s.cfg.Snapshots
	if cfg == nil {
		return nil, errNowhere
	}
	if s.mounts != nil {
		if err := s.mounts.Drain(ctx); err != nil {
			return nil, err // the snapshot would stand for a state that the storage does not have
		}
	}
	var exclude []string
	if cfg.Policy != nil {
		exclude = cfg.Policy.Exclude
	}
	o := s.look(exclude)
	o.Run = cfg.Run
	var err error
	if o.Native, err = s.beside(ctx, len(o.Exclude) > 0, last); err != nil {
		return nil, err
	}
	work, end, err := ops.Begin(ctx, s.told, ops.Op{Kind: ops.Snapshot, Sandbox: s.cfg.ID, Driver: s.cfg.DriverName, Detail: map[string]any{"exclude": o.Exclude}})
	if err != nil {
		return nil, err
	}
	rec, x, err := cfg.Repo.Take(ops.Quiet(work), s, o)
	if err != nil {
		end(ops.End{Err: err})
		return nil, err
	}
	end(ops.End{Detail: map[string]any{"id": rec.ID, "entries": rec.Entries}})
	message := fmt.Sprintf("as snapshot %s: %d entries", snapshot.Short(rec.ID), rec.Entries)
	if n := len(x.Left); n > 0 {
		message += fmt.Sprintf("; %d were left out, see berth snapshot show %s", n, snapshot.Short(rec.ID))
	}
	s.cfg.Emit(event.SandboxProgress{Phase: "saved", Message: message})
	s.outdate(ctx, rec)
	cfg.Repo.OnRemove(s.removeNative)
	if _, err := cfg.Repo.Prune(ctx, rec.Series, cfg.Keep); err != nil {
		return rec, fmt.Errorf("remove old snapshots: %w", err)
	}
	return rec, nil
}

// persist is when the policy wants the workspace saved; empty = never.
func (s *Session) persist() string {
	cfg := s.cfg.Snapshots
	if cfg == nil || cfg.Policy == nil || cfg.Policy.Kind == "none" || cfg.Policy.Persist == "never" || cfg.Policy.Persist == "manual" {
		return ""
	}
	return cmp.Or(cfg.Policy.Persist, "on_stop")
}

// keepSaved saves the workspace as the policy says, until [Session.SaveLast].
func (s *Session) keepSaved() {
	when := s.persist()
	if when == "" {
		return
	}
	cfg := saving.Config{
		Before: s.cfg.Spec.Lifetime.SnapshotBefore, End: s.info.Deadline,
		Save: func(ctx context.Context) {
			if _, err := s.save(ctx, false); err != nil && ctx.Err() == nil {
				s.cfg.Emit(event.Warning{Message: err.Error()})
			}
		},
		Near: func(end time.Time) {
			s.cfg.Emit(event.Warning{Message: fmt.Sprintf("the sandbox ends at %s; its workspace is being saved", end.Local().Format(time.DateTime))})
		},
	}
	if when == "interval" {
		cfg.Every = s.cfg.Snapshots.Policy.Interval
	}
	s.saver = saving.Start(cfg)
}

// EndsAt tells that the sandbox's deadline has moved: its workspace is saved before the new one.
func (s *Session) EndsAt(deadline time.Time) {
	if s.saver != nil {
		s.saver.EndsAt(deadline)
	}
}

// Turn tells that a turn is over: where the policy wants it, the workspace is saved while the model thinks about the next.
func (s *Session) Turn() {
	if s.mounts != nil {
		s.mounts.Turn()
	}
	if s.saver != nil && s.persist() == "every_turn" {
		s.saver.Turn()
	}
}

// saveNoMore ends what saves the workspace while it is worked in.
func (s *Session) saveNoMore() {
	if s.saver != nil {
		s.saver.Stop()
	}
}

// SaveLast saves the workspace at the end.
func (s *Session) SaveLast(ctx context.Context) (err error) {
	if s.saver == nil {
		return nil
	}
	s.saved.Do(func() {
		s.saveNoMore()
		if _, serr := s.Save(ctx); serr != nil {
			err = fmt.Errorf("%w; the sandbox is kept", serr)
		}
	})
	return err
}
