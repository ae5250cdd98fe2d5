// SPDX-License-Identifier: Apache-2.0

//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// CheckDir looks whether a working directory is one.
func CheckDir(dir string) error {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return errs.New(errs.FileNotFound, "the working directory %q does not exist", dir).With("path", dir)
	case errors.Is(err, unix.ENOTDIR), err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errs.New(errs.NotDirectory, "the working directory %q is not a directory", dir).With("path", dir)
	}
	return nil // what else is wrong, chdir will say
}

// LookPath finds the program as the command will: relative to its directory, in its own PATH.
func LookPath(file, dir, search string) (string, error) {
	if strings.Contains(file, "/") {
		return file, nil
	}
	var denied bool
	for d := range strings.SplitSeq(search, ":") {
		if !path.IsAbs(d) {
			d = path.Join(dir, d)
		}
		full := path.Join(d, file)
		var st unix.Stat_t
		if unix.Stat(full, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if st.Mode&0o111 != 0 {
			return full, nil
		}
		denied = true
	}
	if denied {
		return "", errs.New(errs.ExecNotFound, "%q is in the sandbox's PATH but not executable", file).With("path", file)
	}
	return "", errs.New(errs.ExecNotFound, "no executable %q in the sandbox's PATH (%s)", file, search).With("path", file)
}

// Explain says what fork and exec meant.
func Explain(name, file, dir string, who *Account, err error) error {
	full := file
	if !path.IsAbs(full) {
		full = path.Join(dir, full)
	}
	var st unix.Stat_t
	exists := unix.Stat(full, &st) == nil
	switch {
	case errors.Is(err, unix.ENOENT) && exists:
		return errs.New(errs.ExecNotFound, "%q cannot be started: the interpreter or loader that it names does not exist", name).With("path", name)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return errs.New(errs.ExecNotFound, "no executable %q", name).With("path", name)
	case errors.Is(err, unix.EACCES):
		return errs.New(errs.ExecNotFound, "%q is not executable here, or its directory may not be entered", name).With("path", name)
	case errors.Is(err, unix.ENOEXEC):
		return errs.New(errs.ExecNotFound, "%q is not a program: it has no format that the kernel knows (a script needs a #! line)", name).With("path", name)
	case (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL)) && who.Other:
		return errs.New(errs.PermissionDenied, "this sandbox cannot run commands as another user: %v", err).
			With("user", who.Name).WithHint("leave the user out; what the sandbox enforces says whether it has users")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return errs.New(errs.QuotaExceeded, "%q cannot be started: %v", name, err).WithHint("the sandbox has reached its limit of processes or memory")
	case errors.Is(err, unix.EINVAL):
		return errs.New(errs.InvalidArgument, "%q cannot be started: an argument, a variable or the directory holds a NUL byte", name)
	case errors.Is(err, unix.E2BIG):
		return errs.New(errs.InvalidArgument, "%q cannot be started: arguments and environment are too large", name)
	}
	return errs.Wrap(errs.ExecTransport, "process.start", fmt.Errorf("%s: %w", name, err))
}
