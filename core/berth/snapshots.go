// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// SnapshotDir is where a project's snapshots are when nothing else is said, below its directory.
const SnapshotDir = ".berth/snapshots"

// OpenSnapshots gives the snapshots of a sandbox; nil stands for a sandbox without a snapshot block.
func OpenSnapshots(ctx context.Context, p *spec.Project, s *spec.Sandbox) (*snapshot.Repo, error) {
	var policy *spec.SnapshotPolicy
	if s != nil {
		policy = s.Snapshot
	}
	dir, plain, err := snapshotFolder(p, policy)
	if err != nil {
		return nil, err
	}
	return OpenSnapshotFolder(ctx, dir, plain)
}

// OpenSnapshotFolder gives the snapshots in a directory. With plain, what is added is not compressed.
func OpenSnapshotFolder(ctx context.Context, dir string, plain bool) (*snapshot.Repo, error) {
	folder, err := objects.NewFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("the store of snapshots: %w", err)
	}
	return snapshot.Open(ctx, folder, snapshot.Options{Plain: plain})
}

// snapshotFolder is the directory that a policy names.
func snapshotFolder(p *spec.Project, policy *spec.SnapshotPolicy) (dir string, plain bool, err error) {
	usual := filepath.Join(p.Dir, filepath.FromSlash(SnapshotDir))
	switch {
	case policy == nil || policy.Kind == "none" || (policy.Store != nil && policy.Store.Kind == "noop"):
		return usual, false, nil
	case policy.Kind == "local" && policy.Dir == "":
		return usual, false, nil
	case policy.Kind == "local":
		return policy.Dir, false, nil
	}
	if err := storeAvailable(policy.Store); err != nil {
		return "", false, err
	}
	dir, _ = policy.Store.Fields["dir"].(string)
	if prefix := filepath.FromSlash(policy.Store.Prefix); prefix != "" {
		if !filepath.IsLocal(prefix) {
			return "", false, errs.New(errs.ConfigInvalid, "snapshot_store %q: its prefix %q leads out of the store", policy.Store.Label, policy.Store.Prefix)
		}
		dir = filepath.Join(dir, prefix)
	}
	return dir, policy.Store.Compression == "none", nil
}

// storeAvailable refuses stores that have no behaviour yet.
func storeAvailable(s *spec.SnapshotStore) error {
	switch {
	case s == nil:
		return errs.New(errs.ConfigInvalid, "the snapshot block names no store")
	case s.Kind != "local":
		return unavailable(s.Pos, "snapshot_store %q is of the kind %q", s.Label, s.Kind)
	case !s.Key.IsZero():
		return unavailable(s.Pos, "snapshot_store %q is encrypted", s.Label)
	}
	return nil
}

// sessionSnapshots says where a session saves its workspace, and what it starts from.
func sessionSnapshots(ctx context.Context, p *spec.Project, o *SandboxOptions) (*sandbox.Snapshots, error) {
	var policy *spec.SnapshotPolicy
	if o.Sandbox != nil {
		policy = o.Sandbox.Snapshot
	}
	if policy != nil && (policy.Kind == "none" || (policy.Store != nil && policy.Store.Kind == "noop")) {
		policy = nil
	}
	if p == nil {
		return nil, nil
	}
	repo, err := OpenSnapshots(ctx, p, o.Sandbox)
	if err != nil {
		return nil, err
	}
	s := &sandbox.Snapshots{Repo: repo, Policy: policy, From: o.From, Run: o.RunID}
	if policy != nil {
		s.From = cmp.Or(o.From, policy.Restore, "latest")
		if policy.Store != nil {
			s.Keep = snapshot.Retention{Keep: policy.Store.Keep, MaxAge: policy.Store.MaxAge}
		}
	}
	return s, nil
}
