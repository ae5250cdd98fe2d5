// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWithoutTheKernelsHelp checks what stands in where openat2 and renameat2 are missing or refused.
func TestWithoutTheKernelsHelp(t *testing.T) {
	top := t.TempDir()
	for _, d := range []string{"/d", "/e"} {
		if err := os.Mkdir(top+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"/d/f", "/d/g", "/e/f"} {
		if err := os.WriteFile(top+f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"/l": "d", "/d/l": "f"} {
		if err := os.Symlink(target, top+link); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(dir) }()
	for path, ok := range map[string]bool{"/d/f": true, "/l/f": false, "/d/l": false, "/d/none": false} {
		fd, err := openHostFileSlow(top + path)
		if (err == nil) != ok {
			t.Errorf("host file %s: %v", path, err)
		}
		if err == nil {
			_ = unix.Close(fd)
		}
	}
	for name, ok := range map[string]bool{"d": true, "l": false} {
		fd, err := openDirSlow(dir, name, true)
		if (err == nil) != ok {
			t.Errorf("directory %s: %v", name, err)
		}
		if err == nil {
			_ = unix.Close(fd)
		}
	}
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(root) }()
	if _, err := openDirSlow(root, "proc", true); !errors.Is(err, unix.EXDEV) {
		t.Errorf("a mount point: %v", err)
	}
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{"d/f", "d/g", unix.EEXIST}, {"d/f", "d/new", nil}, {"d/l", "d/link", nil}, {"d", "e", unix.EEXIST}, {"e", "moved", nil}, {"none", "x", unix.ENOENT},
	} {
		if err := renameNewSlow(dir, c.from, dir, c.to); !errors.Is(err, c.want) {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
	if target, err := os.Readlink(top + "/d/link"); err != nil || target != "f" {
		t.Errorf("%q, %v", target, err)
	}
}

func TestTempNames(t *testing.T) {
	if n := TempName(); !IsTempName(n) || n == TempName() {
		t.Error(n)
	}
	for _, n := range []string{".berth-tmp-", ".berth-tmp-0123456789abcdeg", ".berth-tmp-0123456789abcdef0", "x"} {
		if IsTempName(n) {
			t.Error(n)
		}
	}
}
