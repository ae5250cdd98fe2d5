// SPDX-License-Identifier: Apache-2.0

package cli

import "golang.org/x/sys/unix"

// flushInput drops what a terminal has not handed over yet.
func flushInput(fd int) error { return unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
