// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"os"

	"golang.org/x/sys/unix"
)

// mountSmall mounts a file system of 4 MiB that anybody may write to.
func mountSmall(dir string) (undo func() error, err error) {
	err = unix.Mount("small", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,mode=0777")
	return func() error { return unix.Unmount(dir, unix.MNT_DETACH) }, os.NewSyscallError("mount", err)
}
