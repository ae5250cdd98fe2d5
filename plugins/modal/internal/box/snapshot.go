// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"strings"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

// ofDirectory marks the ids of snapshots that hold the workspace alone.
const ofDirectory = "directory:"

// SnapshotImage gives the image of a snapshot, and whether it holds the workspace alone.
func SnapshotImage(id string) (image string, directory bool) {
	image, directory = strings.CutPrefix(id, ofDirectory)
	return image, directory
}

// Snapshot makes an image of the files. Volumes and buckets are not in it.
func (b *Box) Snapshot(ctx context.Context, _ string, memory bool, labels map[string]string) (driver.NativeSnapshot, error) {
	none := driver.NativeSnapshot{}
	if memory {
		return none, errs.New(errs.Unsupported, "Modal ends a sandbox when it snapshots its memory").With("feature", string(driver.SnapMemory)).
			WithHint("take one without memory")
	}
	if _, err := b.live(ctx); err != nil {
		return none, err
	}
	s := driver.NativeSnapshot{SandboxID: b.id, Created: time.Now(), Labels: labels}
	var img *modal.Image
	var err error
	if b.c.Snapshots == "directory" {
		img, err = b.sb.SnapshotDirectory(ctx, b.record.Root, &modal.SandboxSnapshotDirectoryParams{Timeout: b.c.SnapshotTimeout, TTL: ttlOf(b.c)})
		s.ID = ofDirectory
	} else {
		img, err = b.sb.SnapshotFilesystem(ctx, &modal.SandboxSnapshotFilesystemParams{Timeout: b.c.SnapshotTimeout, TTL: ttlOf(b.c)})
	}
	if err != nil {
		return none, vendor.Error(ctx, errs.SnapshotPersist, "take a snapshot", err)
	}
	s.ID += img.ImageID
	if err := b.host.Snapshots.Put(s); err != nil {
		// Nobody will hear of it.
		b.deleteImage(context.WithoutCancel(ctx), img.ImageID)
		return none, err
	}
	return s, nil
}

// MountSnapshot puts the contents of a directory's snapshot into the workspace.
func (b *Box) MountSnapshot(ctx context.Context, img *modal.Image) error {
	if err := b.sb.Filesystem.MakeDirectory(ctx, b.record.Root, nil); err != nil {
		return vendor.Error(ctx, errs.SnapshotRestore, "make the workspace", err)
	}
	return vendor.Error(ctx, errs.SnapshotRestore, "mount the snapshot of the workspace", b.sb.MountImage(ctx, b.record.Root, img, nil))
}

// Isolation says what keeps a sandbox apart.
func Isolation(c *settings.Config) []driver.Isolation {
	kernel := "gVisor or a virtual machine, as Modal chooses"
	switch c.Runtime {
	case "gvisor":
		kernel = "gVisor"
	case "vm":
		kernel = "a virtual machine"
	}
	network := driver.Isolation{Axis: report.AxisNetwork, Statement: "a network of its own", Strength: 1, Gap: "it reaches the internet; block_network = true does not"}
	switch {
	case c.BlockNetwork:
		network = driver.Isolation{Axis: report.AxisNetwork, Statement: "none: Modal blocks it", Strength: 3}
	case c.OutboundCIDRs != nil || c.OutboundDomains != nil:
		network = driver.Isolation{Axis: report.AxisNetwork, Statement: "Modal lets through what the lists allow", Strength: 2}
	}
	return []driver.Isolation{
		{Axis: report.AxisFilesystem, Statement: "the image's files and a layer of its own, on Modal's machines", Strength: 4},
		{Axis: report.AxisProcesses, Statement: "on Modal's machines: none of this machine's are in reach", Strength: 4},
		{Axis: report.AxisKill, Statement: "commands by the guest, everything with the sandbox", Strength: 2},
		network,
		{Axis: report.AxisUnixSockets, Statement: "none of this machine's are in reach", Strength: 4},
		{Axis: report.AxisKernel, Statement: kernel, Strength: 4},
	}
}
