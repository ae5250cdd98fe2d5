// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What a guest may pass instead of the file that was asked for.
func TestCheckPassed(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string, flags int) *os.File {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		f := os.NewFile(uintptr(fd), path)
		t.Cleanup(func() { f.Close() })
		return f
	}
	if err := checkPassed(open(name, unix.O_RDONLY), forReading); err != nil {
		t.Errorf("a regular file: %v", err)
	}
	for what, f := range map[string]*os.File{
		"nothing":                 nil,
		"a fifo":                  open(fifo, unix.O_RDWR|unix.O_NONBLOCK),
		"a directory":             open(dir, unix.O_RDONLY),
		"a device":                open("/dev/zero", unix.O_RDONLY),
		"a file of proc":          open("/proc/self/environ", unix.O_RDONLY),
		"a file only for writing": open(name, unix.O_WRONLY),
		"a path":                  open(name, unix.O_PATH),
	} {
		if err := checkPassed(f, forReading); !errors.Is(err, errPassed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
