// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
	"github.com/berth-dev/berth/sdk/guest/confine/landlock"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
)

// landRules opens what the binds grant. At a private root everything in it may be read, since nothing else is there.
//
// Preconditions: the private root is in place, and the caller still is who it began as.
func landRules(s *Spec) (rules []landlock.Rule, err error) {
	add := func(path string, rights uint64, optional bool) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			if optional {
				return nil
			}
			return step.At("open "+path, err)
		}
		rules = append(rules, landlock.Rule{FD: fd, Name: path, Rights: rights})
		return nil
	}
	all := landlock.Write(s.Landlock)
	if s.Namespaces.Mount {
		if err := add("/", landlock.Read, false); err != nil {
			return nil, err
		}
		for _, p := range []string{"/dev/shm", "/tmp"} {
			if err := add(p, all, true); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range s.Binds {
		rights := uint64(landlock.Read)
		switch {
		case b.Device:
			rights = landlock.Device
		case b.Write:
			rights = all
		case s.Namespaces.Mount:
			continue
		}
		if err := add(b.Target, rights, b.Optional); err != nil {
			return nil, err
		}
	}
	if s.Namespaces.Mount {
		for _, d := range rootfs.Devices() {
			if err := add(d, landlock.Device, false); err != nil {
				return nil, err
			}
		}
	}
	rules = append(rules, landlock.Rule{FD: s.Program, Name: "the guest program", Rights: landlock.Read})
	return rules, nil
}
