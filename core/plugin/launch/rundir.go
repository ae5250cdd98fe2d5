// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

const (
	// maxSocketPath is what the address of a unix socket may have on every platform, less some room.
	maxSocketPath = 100
	// socketSuffix is the longest that go-plugin appends to a process's directory.
	socketSuffix = len("/d9999/plugin-dir4294967295/plugin4294967295")
	lockName     = "lock"
)

// RunDir is the core's own directory for what lives as long as it does: one directory for each driver process. What a
// core leaves behind that was killed, the next one removes.
type RunDir struct {
	path string
	lock *os.File

	mu   sync.Mutex
	next int // guarded by mu
}

// OpenRunDir makes a directory below base, and removes those of cores that are gone. Empty base: berth's directory in
// $XDG_RUNTIME_DIR, else in /tmp.
func OpenRunDir(base string) (*RunDir, error) {
	if base == "" {
		base = defaultBase()
	}
	if err := privateDir(base); err != nil {
		return nil, err
	}
	// The lock keeps others from sweeping a directory that has no lock of its own yet.
	guard, err := flock(filepath.Join(base, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	sweep(base)
	path, err := os.MkdirTemp(base, fmt.Sprintf("%d-", os.Getpid()))
	if err != nil {
		return nil, errs.Wrap(errs.DriverStartFailed, "make run directory", err)
	}
	if n := len(path) + socketSuffix; n > maxSocketPath {
		os.Remove(path)
		return nil, errs.New(errs.DriverStartFailed,
			"the run directory %s is too long: a socket below it would have %d characters, %d are allowed", base, n, maxSocketPath).
			WithHint("set XDG_RUNTIME_DIR to a shorter directory")
	}
	lock, err := flock(filepath.Join(path, lockName), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return &RunDir{path: path, lock: lock}, nil
}

func defaultBase() string {
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) && len(d)+len("/berth/4194304-4294967295")+socketSuffix <= maxSocketPath {
		if info, err := os.Stat(d); err == nil && info.IsDir() {
			return filepath.Join(d, "berth")
		}
	}
	return fmt.Sprintf("/tmp/b%d", os.Geteuid())
}

// privateDir makes sure that path is a directory which only this user may enter or change.
func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return errs.Wrap(errs.DriverStartFailed, "make run directory", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return errs.Wrap(errs.DriverStartFailed, "make run directory", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return errs.New(errs.DriverStartFailed, "%s is not a private directory of user %d (mode %04o)", path, os.Geteuid(), info.Mode().Perm()).
			WithHint("remove it, or set XDG_RUNTIME_DIR to a directory of your own with mode 0700")
	}
	return nil
}

// flock opens and locks a file. The lock lives as long as the open file.
func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.DriverStartFailed, "lock run directory", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, errs.Wrap(errs.DriverStartFailed, "lock run directory", err)
	}
	return f, nil
}

// sweep removes the directories that nobody holds a lock in. What cannot be removed stays for the next time.
func sweep(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(base, e.Name())
		lock, err := flock(filepath.Join(dir, lockName), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		os.RemoveAll(dir)
		if lock != nil {
			lock.Close()
		}
	}
}

// Path is the directory itself.
func (r *RunDir) Path() string { return r.path }

// New makes the directory of one process.
func (r *RunDir) New() (string, error) {
	r.mu.Lock()
	r.next++
	dir := filepath.Join(r.path, fmt.Sprintf("d%d", r.next))
	r.mu.Unlock()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", errs.Wrap(errs.DriverStartFailed, "make run directory", err)
	}
	return dir, nil
}

// Close removes the directory. It is idempotent.
func (r *RunDir) Close() error {
	err := os.RemoveAll(r.path)
	if cerr := r.lock.Close(); err == nil && !errors.Is(cerr, fs.ErrClosed) {
		err = cerr
	}
	return err
}
