// SPDX-License-Identifier: Apache-2.0

// Package seccomp assembles the filter of system calls that a sandbox runs under.
//
// It is a list of what is denied. A foreign architecture kills the process: a filter that lets it pass would be no
// filter at all, since every number means another call there. Calls of the x32 kind do not exist. What programs can do
// without gets ENOSYS, so that they fall back; the rest gets EPERM.
package seccomp

// Version names the list; it rises whenever something is added or taken away.
const Version = 1

// Options change the list.
type Options struct {
	// DenyUnix refuses unix sockets (socketpair stays).
	DenyUnix bool `json:"deny_unix,omitempty"`
	// DenyInet refuses IPv4 and IPv6 sockets of every protocol.
	DenyInet bool `json:"deny_inet,omitempty"`
	// Nested allows new namespaces and mounts inside them.
	Nested bool `json:"nested,omitempty"`
	// DenySetID refuses to give a file the set-user-ID or set-group-ID bit, by whatever call. Needed wherever files
	// that the sandbox writes can be reached by other users of the host.
	DenySetID bool `json:"deny_set_id,omitempty"`
}
