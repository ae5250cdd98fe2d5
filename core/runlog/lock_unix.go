// SPDX-License-Identifier: Apache-2.0

//go:build unix

package runlog

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the file for this process until it is closed.
func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
