// SPDX-License-Identifier: Apache-2.0

// Package testbin builds the programs that tests run: drivers, the guest, berth itself. Test packages that run at the
// same time share one directory and build one after the other; what is built already is not built again.
package testbin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Driver builds berth-driver-NAME and gives its path. The environment variable BERTH_GUEST then names a guest that was
// built from the same sources.
func Driver(t testing.TB, name string) string {
	t.Helper()
	t.Setenv("BERTH_GUEST", Guest(t))
	return build(t, "berth-driver-"+name, "./plugins/"+name, nil)
}

// Guest builds the guest for Linux on this processor and gives its path.
func Guest(t testing.TB) string {
	t.Helper()
	return build(t, "berth-guest", "./sdk/guest/cmd/berth-guest", []string{"GOOS=linux", "GOARCH=" + runtime.GOARCH})
}

// Mount builds the program that speaks with storage and gives its path. It lies beside berth.
func Mount(t testing.TB) string {
	t.Helper()
	return build(t, "berth-mount-rclone", "./mounts/rclone", nil)
}

// Berth builds the command line and gives its path.
func Berth(t testing.TB) string {
	t.Helper()
	return build(t, "berth", "./core/cmd/berth", nil)
}

// built are the programs that this process has built: while it runs, its sources count as they were.
var built = struct {
	sync.Mutex

	paths map[string]string // guarded by Mutex; by name
}{paths: map[string]string{}}

// build builds a package of this module, once.
func build(t testing.TB, name, pkg string, env []string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := sharedDir(root)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	out := filepath.Join(dir, name)
	// The compiler's own cache knows what has changed; an output that is up to date is left alone.
	cmd := exec.CommandContext(t.Context(), "go", "build", "-p", "1", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, text)
	}
	built.paths[name] = out
	return out
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output() //nolint:noctx // it takes no time
	if err != nil {
		return "", err
	}
	mod := string(bytes.TrimSpace(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("the tests do not run inside the module")
	}
	return filepath.Dir(mod), nil
}

// sharedDir is private to this user and to this copy of the module.
func sharedDir(root string) (string, error) {
	sum := sha256.Sum256([]byte(root))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("berth-testbin-%d", os.Geteuid()), hex.EncodeToString(sum[:6]))
	if strings.HasPrefix(filepath.Base(os.TempDir()), "Test") {
		return "", errors.New("TMPDIR is a test's own directory: nothing could be shared there")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not private: remove it", filepath.Dir(dir))
	}
	return dir, nil
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil // closing is what unlocks
}
