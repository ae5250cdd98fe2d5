// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// runAsCaps are what starting commands as other users takes.
var runAsCaps = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
}

// setupCaps are what stage 0 takes. They are all old enough for every kernel that has the rest.
var setupCaps = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN, unix.CAP_MKNOD,
	unix.CAP_SETFCAP, unix.CAP_FSETID,
}

// The calls below change the calling thread alone: the wrappers of package syscall would change all threads, and stop
// the world for it.

func setIDs(uid, gid int) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 && e != unix.EPERM {
		return step.At("setgroups", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return step.At(fmt.Sprintf("setresgid %d", gid), e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return step.At(fmt.Sprintf("setresuid %d", uid), e)
	}
	return nil
}

// dropCaps empties every set, but for what keep names when the guest is the user 0 of its namespace.
func dropCaps(id Identity) error {
	if err := prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return step.At("clear ambient capabilities", err)
	}
	var keep uint64
	if id.RunAs {
		for _, c := range runAsCaps {
			keep |= 1 << c
		}
	}
	// Without CAP_SETPCAP there is nothing to drop: no_new_privs closes the way back.
	mayDrop := hasCap(unix.CAP_SETPCAP)
	for c := 0; c < 64 && mayDrop; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		err := prctl(unix.PR_CAPBSET_DROP, uintptr(c))
		if errors.Is(err, unix.EINVAL) { // past the last one
			break
		}
		if err != nil {
			return step.At("drop a bounding capability", err)
		}
	}
	if id.Become {
		if err := setIDs(id.UID, id.GID); err != nil {
			return err
		}
	}
	var data [2]unix.CapUserData
	for i := range data {
		data[i].Permitted = uint32(keep >> (32 * i))
		data[i].Effective = data[i].Permitted
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return step.At("drop capabilities", err)
	}
	return nil
}

func hasCap(c uint) bool {
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capget(&hdr, &data[0]) == nil && data[c/32].Effective&(1<<(c%32)) != 0
}

func prctl(option int, arg2 uintptr) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg2, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
