// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// salvage puts files aside that a process wrote and could not describe before it was killed: rclone would take them for
// garbage. They are found by a description without content beside content. Gives where they are now.
func salvage(dir, name, root string) ([]string, error) {
	meta, data := filepath.Join(dir, "vfsMeta", name, root), filepath.Join(dir, "vfs", name, root)
	var out []string
	err := filepath.WalkDir(meta, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Size() > 0 {
			return err
		}
		rel, err := filepath.Rel(meta, path)
		if err != nil {
			return err
		}
		content := filepath.Join(data, rel)
		if st, err := os.Lstat(content); err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
			return nil //nolint:nilerr // there is nothing to keep
		}
		to, err := free(filepath.Join(dir, "lost+found", name, rel))
		if err != nil {
			return err
		}
		if err := os.Rename(content, to); err != nil {
			return err
		}
		out = append(out, to)
		return os.Remove(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return out, err
}

// free gives a name that nothing has, and makes its directory.
func free(name string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	for try := name; ; try += "~" {
		if _, err := os.Lstat(try); errors.Is(err, fs.ErrNotExist) {
			return try, nil
		} else if err != nil {
			return "", err
		}
	}
}
