// SPDX-License-Identifier: Apache-2.0

package catalog

import "github.com/berth-dev/berth/sdk/handshake"

// How says by which rule a driver was found.
type How string

// The rules, in the order in which they are tried.
const (
	Attached How = "attached" // it runs already, in a debugger
	Override How = "override" // a flag or a dev_override block names the file
	Bundled  How = "bundled"  // it lies beside the running berth
	Locked   How = "locked"   // the lock file names it
	Unlocked How = "unlocked" // a flat file, not in the lock file
)

// Binary is a driver's executable that was found, checked and hashed; or a driver that runs already.
type Binary struct {
	Name    string // docker
	Source  string // berth/docker
	Version string // from the lock file; empty = not known without asking the driver
	Path    string // absolute, no symbolic link left; of the socket when Reattach is set
	SHA256  string // hexadecimal; empty when Reattach is set
	How     How
	Reason  string // why this file, one sentence for people

	Reattach *handshake.Reattach // nil = the file is started
}
