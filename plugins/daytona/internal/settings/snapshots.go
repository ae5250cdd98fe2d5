// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"math"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/driver"
)

// snapshotPrefix begins the names of berth's snapshots; the sandbox's id and one of its own follow.
const snapshotPrefix = "berth-snapshot-"

// SnapshotName makes the name of a snapshot of a sandbox.
func SnapshotName(sandbox string) string {
	return snapshotPrefix + strings.ToLower(sandbox+"-"+ulid.Make().String())
}

// IsSnapshot says whether a snapshot is one of berth's.
func IsSnapshot(s *client.Snapshot) bool { return strings.HasPrefix(s.Name, snapshotPrefix) }

// Native says what the core wants to know of a snapshot. Its id is the name: sandboxes are made from that.
func Native(s *client.Snapshot, labels map[string]string) driver.NativeSnapshot {
	id, _, _ := strings.Cut(strings.TrimPrefix(s.Name, snapshotPrefix), "-")
	return driver.NativeSnapshot{
		ID: s.Name, SandboxID: strings.ToUpper(id), Created: s.CreatedAt, Bytes: uint64(math.Max(0, s.Size) * (1 << 30)), Labels: labels,
	}
}
