// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/berth-dev/berth/sdk/errs"
)

// trusted makes sure that nobody but this user and root could have put or changed the file: the file and its directory
// belong to one of them and only their owner, and his own private group, may write; no directory above lets others rename what is in it.
func trusted(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errs.Wrap(errs.DriverUnknown, "look at driver", err)
	}
	if !info.Mode().IsRegular() {
		return refuse(path, info, "is not a regular file", "")
	}
	if info.Mode().Perm()&0o111 == 0 {
		return refuse(path, info, "is not executable", "chmod +x "+path)
	}
	if err := exclusive(path, info, 0o022); err != nil {
		return err
	}
	mask := fs.FileMode(0o022)
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return errs.Wrap(errs.DriverUnknown, "look at driver", err)
		}
		if info.Mode()&fs.ModeSticky == 0 || mask == 0o022 {
			if err := exclusive(dir, info, mask); err != nil {
				return err
			}
		}
		// Above the driver's own directory a group may write, as many distributions let a user's own group.
		mask = 0o002
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// exclusive checks owner and mode of one file or directory.
func exclusive(path string, info fs.FileInfo, mask fs.FileMode) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return refuse(path, info, "belongs to another user", fmt.Sprintf("chown %d %s", os.Geteuid(), path))
	}
	if ok && st.Gid == st.Uid && st.Uid != 0 {
		// The user's own private group, which many distributions let write by default.
		mask &^= 0o020
	}
	if info.Mode().Perm()&mask == 0 {
		return nil
	}
	who, bits := "its group", "g-w"
	switch {
	case info.Mode().Perm()&mask&0o022 == 0o022:
		who, bits = "its group and others", "go-w"
	case info.Mode().Perm()&mask&0o002 != 0:
		who, bits = "others", "o-w"
	}
	return refuse(path, info, who+" may write to it", "chmod "+bits+" "+path)
}

func refuse(path string, info fs.FileInfo, why, mend string) error {
	owner := ""
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = strconv.Itoa(int(st.Uid))
		if u, err := user.LookupId(owner); err == nil {
			owner = u.Username
		}
		owner = ", owner " + owner
	}
	e := errs.New(errs.PermissionDenied, "%s is not trusted: %s (mode %04o%s)", path, why, info.Mode().Perm(), owner).With("path", path)
	if mend != "" {
		return e.WithHint("run: %s", mend)
	}
	return e
}
