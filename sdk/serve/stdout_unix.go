// SPDX-License-Identifier: Apache-2.0

//go:build unix

package serve

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// divertStdout makes file descriptor 1 standard error, for this process and its children, and gives the real standard
// output, which only this process has.
func divertStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, errs.Wrap(errs.DriverStartFailed, "keep standard output", err)
	}
	if err := unix.Dup2(2, 1); err != nil {
		return nil, errs.Wrap(errs.DriverStartFailed, "divert standard output", err)
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
