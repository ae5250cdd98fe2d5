// SPDX-License-Identifier: Apache-2.0

// Package npmtest gives tests real servers of the Model Context Protocol: packages from npm at versions that are written
// down, installed once into a cache of the user.
package npmtest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

//go:embed testdata/package.json
var manifest []byte

//go:embed testdata/package-lock.json
var lock []byte

// Servers gives the directory that holds node_modules with the servers. Where npm is not there or cannot be reached, the
// test is skipped, and says why.
func Servers(t testing.TB) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the servers need %s, which is not installed", program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(append(manifest, lock...))
	dir := filepath.Join(cache, "berth-test", "npm-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hold, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close() // gives the lock back
	if err := syscall.Flock(int(hold.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := filepath.Join(dir, "done")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	for name, content := range map[string][]byte{"package.json": manifest, "package-lock.json": lock} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	npm := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "npm", args...)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	if out, err := npm("ci", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		if _, unreached := npm("view", "@modelcontextprotocol/server-memory", "version"); unreached != nil {
			t.Skipf("npm cannot be reached: %v\n%s", err, out)
		}
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
