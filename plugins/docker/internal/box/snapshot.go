// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	LabelSnapshotPrefix = "dev.berth.snapshot-label."
	labelSnapshotName   = "dev.berth.snapshot-name"
)

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
		Reference: engine.SnapshotTag(), Comment: name, Config: &container.Config{Labels: l},
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
