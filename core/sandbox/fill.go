// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// fill writes the manifest into the workspace, as one stream. One without entries is written too: only then does the
// driver know that the workspace is as it should be, and says so when it is found again.
// With ephemeral, only such entries are written.
func (s *Session) fill(ctx context.Context, ws driver.Workspace, ephemeral bool) error {
	if len(s.contents.Members) > 0 {
		s.cfg.Emit(event.SandboxProgress{
			Phase: "filling", Total: uint64(s.contents.Bytes()),
			Message: fmt.Sprintf("%d files, %d bytes", s.contents.Files(), s.contents.Bytes()),
		})
	}
	refs := has(s.cfg.Driver, driver.TreeHostRefs)
	limits := s.cfg.Spec.Archive
	opts := driver.ImportOptions{
		Path: s.root, Template: ws.Template, HostReferences: refs,
		Limits: driver.TreeLimits{MaxInputBytes: limits.MaxInputBytes, MaxExtractedBytes: limits.MaxExtractedBytes, MaxMembers: limits.MaxMembers},
	}
	var res driver.ImportResult
	err := Pipe(
		func(w io.Writer) error {
			return s.contents.Archive(ctx, w, manifest.ArchiveOptions{HostReferences: refs, Now: s.cfg.Now(), Owner: ws.Owner, Group: ws.Group, EphemeralOnly: ephemeral})
		},
		func(r io.Reader) (err error) {
			res, err = s.Import(ctx, opts, r)
			return err
		})
	if errors.Is(err, errs.ArchiveLimit) {
		return fmt.Errorf("fill the workspace: %w (raise archive_limits in the sandbox block)", err)
	}
	if err != nil {
		return fmt.Errorf("fill the workspace: %w", err)
	}
	for _, skipped := range res.Skipped {
		s.cfg.Emit(event.Warning{Message: fmt.Sprintf("%s was left out of the workspace: %s", skipped.Path, skipped.Reason)})
	}
	return nil
}

// own gives the root and the entries the owners that the manifest names. Not every driver's import knows the sandbox's
// users, so it is done by name afterwards; few entries have an owner. With ephemeral, only such entries are looked at.
func (s *Session) own(ctx context.Context, ephemeral bool) error {
	m := s.contents.Manifest
	if m.OwnByRunAs && s.cfg.RunAs != "" && !ephemeral {
		if err := s.SetMeta(ctx, s.root, driver.MetaChange{Owner: &s.cfg.RunAs, Recursive: true}); err != nil {
			return fmt.Errorf("give the workspace to user %q: %w", s.cfg.RunAs, err)
		}
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if (e.Owner == "" && e.Group == "") || (ephemeral && !e.Ephemeral) {
			continue
		}
		change := driver.MetaChange{Recursive: e.Kind == spec.EntryLocalDir || e.Kind == spec.EntryGitRepo}
		if e.Owner != "" {
			change.Owner = &e.Owner
		}
		if e.Group != "" {
			change.Group = &e.Group
		}
		if err := s.SetMeta(ctx, path.Join(s.root, e.Path), change); err != nil {
			return fmt.Errorf("%s %q: change its owner: %w", e.Kind, e.Path, err)
		}
	}
	return nil
}

// AtEnd is what becomes of the sandbox when a run ends like this: destroy, stop, pause or keep. It is the policy's at_end;
// without one it is removed when the run is complete, and kept stopped when the run can be taken up again.
func (s *Session) AtEnd(status run.Status) string {
	atEnd := s.cfg.Spec.Session.AtEnd
	switch {
	case s.cfg.Keep && (atEnd == "" || atEnd == "destroy"):
		return "stop"
	case atEnd == "" && status != run.Completed: // every other end can be taken up again
		return "stop"
	case atEnd == "":
		return "destroy"
	}
	return atEnd
}

// Close ends the session. What becomes of the sandbox is what [Session.AtEnd] says.
func (s *Session) Close(ctx context.Context, status run.Status) error {
	err, how := s.SaveLast(ctx), s.AtEnd(status)
	if err != nil && how == "destroy" {
		how = "stop" // what could not be saved is not thrown away
	}
	return errors.Join(err, s.End(ctx, how))
}

// End ends the session as AtEnd's words say: destroy, stop, pause or keep.
func (s *Session) End(ctx context.Context, how string) error {
	ctx, cancel := limit(ctx, s.cfg.Spec.Timeouts.Stop, DefaultStopTimeout, "end the sandbox")
	defer cancel()
	s.saveNoMore()
	s.unexpose()
	outcome, err := "kept", error(nil)
	switch how {
	case "destroy":
		outcome, err = "destroyed", s.Destroy(ctx)
	case "stop":
		outcome, err = "stopped", errs.New(errs.Unsupported, "driver %q cannot stop a sandbox and keep its workspace", s.cfg.DriverName)
		if stopper, ok := s.Sandbox.(driver.Stopper); ok {
			err = stopper.Stop(ctx, true)
		}
	case "pause":
		outcome, err = "paused", errs.New(errs.Unsupported, "driver %q cannot pause a sandbox", s.cfg.DriverName)
		if pauser, ok := s.Sandbox.(driver.Pauser); ok {
			err = pauser.Pause(ctx)
		}
	}
	// After the processes that may write to them, so that nothing comes after the last look.
	if err = errors.Join(err, s.unmount(ctx)); err == nil {
		s.LetGo() // what stays is no longer ours: its driver's process may end
	}
	if s.cfg.Released != nil {
		s.cfg.Released()
	}
	if err != nil {
		return fmt.Errorf("end the sandbox: %w", err)
	}
	s.cfg.Emit(event.SandboxEnded{SandboxID: s.cfg.ID, Outcome: outcome})
	return nil
}

// LetGo refuses every further call: somebody else may drive the sandbox now.
func (s *Session) LetGo() {
	if c, ok := s.Sandbox.(interface{ Close() }); ok {
		c.Close()
	}
}
