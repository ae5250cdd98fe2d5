// SPDX-License-Identifier: Apache-2.0

package handshake

// EnvReattach is a variable of berth itself: it names drivers that run already, as a JSON object from source
// ("namespace/name") to [Reattach].
const EnvReattach = "BERTH_REATTACH_DRIVERS"

// Reattach says where a driver listens that was started by hand, for a debugger. The credential is the same as for a
// driver that berth starts.
type Reattach struct {
	Network  string `json:"network"` // "unix"
	Addr     string `json:"addr"`    // absolute path of the socket
	Protocol int    `json:"protocol"`
	KeyFile  string `json:"key_file"` // absolute path of a file with an encoded [Key] that only its owner may read
}
