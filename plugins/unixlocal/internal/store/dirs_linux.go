// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// Own gives a directory to the sandbox's user.
func Own(path string, uid, gid int) error {
	if uid == os.Getuid() && gid == os.Getgid() {
		return nil
	}
	return errs.Wrap(errs.CreateFailed, "give the workspace its owner", os.Lchown(path, uid, gid))
}

// MakeDir makes a directory of the sandbox's user.
func MakeDir(path string, mode os.FileMode, uid, gid int) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if uid != os.Getuid() || gid != os.Getgid() {
		if err := os.Lchown(path, uid, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

// RemoveAll removes directories in which nothing runs any more, also those whose modes keep their owner out: a command
// can leave them, and an overlay does.
func RemoveAll(dirs []string) error {
	var all []error
	for _, d := range dirs {
		err := os.RemoveAll(d)
		if errors.Is(err, fs.ErrPermission) {
			err = errors.Join(letIn(d), os.RemoveAll(d))
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// letIn lets the owner into every directory of a tree.
func letIn(tree string) error {
	return filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o700) //nolint:gosec // nothing runs in it that could swap it
	})
}

// MountedBelow finds a mount point of this machine below a directory; empty = there is none.
func MountedBelow(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", errs.Wrap(errs.Internal, "look for mounts", err)
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", errs.Wrap(errs.Internal, "look for mounts", err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			if at := unescape.Replace(fields[4]); strings.HasPrefix(at, dir+"/") {
				return at, nil
			}
		}
	}
	return "", nil
}

// outside is the directory of the files of sandboxes whose user could not reach the store.
const outside = "/var/lib/berth-unixlocal"

// Outside makes a directory for a sandbox's files that its user can reach by its path, as a member of a group that
// belongs to nobody, and no other user of the host. errs.FileExists when there is such a sandbox. Only for root.
func (s *Store) Outside(id string, gid int) (string, error) {
	const doing = "make a directory that the sandbox's user can reach"
	if _, err := s.Open(id, ""); err == nil {
		return "", errs.New(errs.FileExists, "sandbox %s exists", id)
	}
	if err := os.MkdirAll(outside, 0o711); err != nil {
		return "", errs.Wrap(errs.CreateFailed, doing, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(outside, &st); err != nil || st.Uid != 0 || st.Mode&(unix.S_IFMT|0o022) != unix.S_IFDIR {
		return "", errs.New(errs.CreateFailed, "%s is not a directory of root's alone", outside)
	}
	dir := filepath.Join(outside, id)
	if err := os.RemoveAll(dir); err != nil { // of a create that was interrupted
		return "", errs.Wrap(errs.CreateFailed, doing, err)
	}
	err := errors.Join(os.Mkdir(dir, 0o700), os.Lchown(dir, 0, gid), os.Chmod(dir, 0o710))
	return dir, errs.Wrap(errs.CreateFailed, doing, err)
}
