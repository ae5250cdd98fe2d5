// SPDX-License-Identifier: Apache-2.0

// Package landlock puts a thread into a Landlock domain of the exact version that the kernel has. "Best effort" is no
// option here: it may enforce nothing and say nothing.
package landlock

import (
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// maxVersion is the newest version whose rights are known here.
const maxVersion = 9

// What can be granted below a path, as far as a version knows it.
const (
	Read     = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir
	fileBits = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev
	scopes   = ll.ScopeAbstractUnixSocket | ll.ScopeSignal
)

// Version asks the kernel; 0 with an error when there is none.
func Version() (int, error) {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0, fmt.Errorf("ask for landlock: %w", err)
	}
	return min(v, maxVersion), nil
}

// files are the rights that a version knows.
func files(version int) uint64 {
	bits := uint64(1)<<13 - 1
	for v, bit := range map[int]uint64{
		2: ll.AccessFSRefer, 3: ll.AccessFSTruncate, 5: ll.AccessFSIoctlDev, 9: ll.AccessFSResolveUnix,
	} {
		if version >= v {
			bits |= bit
		}
	}
	return bits
}

// Write is everything but making device nodes and controlling devices.
func Write(version int) uint64 {
	return files(version) &^ (ll.AccessFSMakeBlock | ll.AccessFSMakeChar | ll.AccessFSIoctlDev)
}

// Device is what programs do with terminals and the like.
const Device = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev | ll.AccessFSReadDir

// Rule grants rights below what FD is.
type Rule struct {
	FD     int
	Name   string
	Rights uint64
}

// Restrict puts the calling thread into a domain. Network rights are handled without a rule, which denies TCP.
func Restrict(version int, rules []Rule, denyTCP bool) error {
	attr := ll.RulesetAttr{HandledAccessFS: files(version)}
	if denyTCP && version >= 4 {
		attr.HandledAccessNet = ll.AccessNetBindTCP | ll.AccessNetConnectTCP
	}
	if version >= 6 {
		attr.Scoped = scopes
	}
	set, err := ll.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return step.At("create a landlock ruleset", err)
	}
	defer unix.Close(set)
	for _, r := range rules {
		rights := r.Rights & attr.HandledAccessFS
		var st unix.Stat_t
		if err := unix.Fstat(r.FD, &st); err != nil {
			return step.At("stat "+r.Name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			rights &= fileBits
		}
		rule := ll.PathBeneathAttr{AllowedAccess: rights, ParentFd: r.FD}
		if err := ll.LandlockAddPathBeneathRule(set, &rule, 0); err != nil {
			return step.At("grant "+r.Name, err)
		}
	}
	if err := ll.LandlockRestrictSelf(set, 0); err != nil {
		return step.At("enter the landlock domain", err)
	}
	return nil
}

// Scope enters a domain that limits signals and abstract sockets, and nothing else. Every layer below one that limits
// files refuses links and renames between directories unless it is told otherwise, one that says nothing of files too:
// below is for such a layer. Any layer that limits files refuses all mounts.
func Scope(version int, below bool) error {
	if version < 6 {
		return nil
	}
	attr := ll.RulesetAttr{Scoped: scopes}
	if below {
		attr.HandledAccessFS = ll.AccessFSRefer
	}
	set, err := ll.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return step.At("create a landlock scope", err)
	}
	defer unix.Close(set)
	if below {
		root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return step.At("open /", err)
		}
		defer unix.Close(root)
		rule := ll.PathBeneathAttr{AllowedAccess: ll.AccessFSRefer, ParentFd: root}
		if err := ll.LandlockAddPathBeneathRule(set, &rule, 0); err != nil {
			return step.At("keep renames in the landlock scope", err)
		}
	}
	return step.At("enter the landlock scope", ll.LandlockRestrictSelf(set, 0))
}
