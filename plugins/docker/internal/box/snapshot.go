// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	snapshotRepository  = "berth-snapshot"
	releasedRepository  = "berth-snapshot-released" // of images that only containers need
	LabelSnapshotPrefix = "dev.berth.snapshot-label."
	labelSnapshotName   = "dev.berth.snapshot-name"
)

func tag(repository string) string { return repository + ":" + strings.ToLower(ulid.Make().String()) }

// Released says whether an image is no snapshot any more, and only needed by containers.
func Released(tags []string) bool {
	return len(tags) > 0 && !slices.ContainsFunc(tags, func(t string) bool { return !released(t) })
}

func released(tag string) bool {
	name, _, _ := strings.Cut(tag, ":")
	return path.Base(name) == releasedRepository // Podman puts a host before it
}

// Release removes the image of a snapshot, or leaves it to the containers that were made from it.
func Release(ctx context.Context, e *engine.Engine, id string, tags []string) error {
	if len(tags) == 0 {
		tags = []string{id}
	}
	for _, t := range tags {
		if released(t) {
			continue
		}
		_, err := e.ImageRemove(ctx, t, client.ImageRemoveOptions{PruneChildren: true})
		if engine.Conflict(err) && t != id {
			if _, err = e.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: tag(releasedRepository)}); err == nil {
				_, err = e.ImageRemove(ctx, t, client.ImageRemoveOptions{PruneChildren: true})
			}
		}
		if err != nil && !engine.NotFound(err) && !engine.Conflict(err) {
			return err
		}
	}
	return nil
}

// dropImage removes the image of a container that is gone, when it was a snapshot, was released, and no other needs it.
func (b *Box) dropImage(ctx context.Context) {
	if b.record == nil || !b.record.Snapshot {
		return
	}
	img, err := b.e.ImageInspect(ctx, b.record.Image)
	if err != nil || !Released(img.RepoTags) {
		return
	}
	for _, t := range img.RepoTags {
		if _, err := b.e.ImageRemove(ctx, t, client.ImageRemoveOptions{PruneChildren: true}); err != nil && !engine.Conflict(err) && !engine.NotFound(err) {
			b.host.Log.Warn("an image that nobody needs was not removed", "image", b.record.Image, "error", err)
		}
	}
}

// Snapshot makes an image of the container's files.
func (b *Box) Snapshot(ctx context.Context, name string, memory bool, labels map[string]string) (driver.NativeSnapshot, error) {
	if memory {
		return driver.NativeSnapshot{}, errs.New(errs.Unsupported, "container engines save files only").With("feature", string(driver.SnapMemory))
	}
	if b.record.Facts.ReadOnly {
		return driver.NativeSnapshot{}, errs.New(errs.Unsupported, "the workspace is a volume (read_only_root), which an image does not hold").
			With("feature", string(driver.SnapNative)).WithHint("export the workspace as an archive")
	}
	// Images hand their labels down: what names this sandbox is emptied, so that no other is taken for it.
	l := map[string]string{plan.LabelSandbox: "", plan.LabelRecord: "", plan.LabelSnapshot: b.id, labelSnapshotName: name, plan.LabelUser: b.record.User}
	for k := range b.labels {
		l[plan.LabelPrefix+k] = ""
	}
	for k, v := range labels {
		l[LabelSnapshotPrefix+k] = v
	}
	opts := client.ContainerCommitOptions{
		Reference: tag(snapshotRepository), Comment: name, Config: &container.Config{Labels: l},
	}
	if b.e.Podman { // which takes no configuration
		for k, v := range l {
			opts.Changes = append(opts.Changes, "LABEL "+strconv.Quote(k)+"="+strconv.Quote(v))
		}
	}
	made, err := b.e.ContainerCommit(ctx, b.st.Container, opts)
	if engine.NotFound(err) {
		return driver.NativeSnapshot{}, errs.New(errs.SandboxGone, "the container of sandbox %s no longer exists", b.id)
	}
	if err != nil {
		return driver.NativeSnapshot{}, engine.Error(errs.SnapshotPersist, "commit the container", err)
	}
	if !strings.Contains(made.ID, ":") { // Podman's
		made.ID = "sha256:" + made.ID
	}
	snap := driver.NativeSnapshot{ID: made.ID, SandboxID: b.id, Created: time.Now(), Labels: labels}
	if img, err := b.e.ImageInspect(ctx, made.ID); err == nil {
		snap.Bytes = uint64(img.Size)
	}
	return snap, nil
}
