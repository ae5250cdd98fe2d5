// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/wire"
)

// install writes a driver that only describes itself, and counts how often it was asked.
func install(t *testing.T, dir, name, version string) string {
	t.Helper()
	desc, err := wire.MarshalDescription(driver.Description{Name: name, Version: version, Features: []driver.Feature{driver.ProcPTY}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "berth-driver-"+name)
	script := fmt.Sprintf("#!/bin/sh\necho asked >>%s.log\ncat <<'EOF'\n%s\nEOF\n", path, desc)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, cfg catalog.Config) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var none spec.DriverRequirement

func TestOrder(t *testing.T) {
	bundle, dir, over, project := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	overPath := install(t, over, "a", "0.9.0")
	install(t, bundle, "a", "0.1.0")
	install(t, dir, "a", "0.2.0")
	install(t, dir, "b", "0.2.0")
	cfg := catalog.Config{Dirs: []string{dir}, Bundle: bundle, Verify: catalog.VerifyNone}
	how := func(cfg catalog.Config, name string) catalog.How {
		b, err := open(t, cfg).Resolve(t.Context(), project, name, none)
		if err != nil {
			t.Fatal(err)
		}
		return b.How
	}
	if got := how(cfg, "a"); got != catalog.Bundled {
		t.Errorf("a is %s", got)
	}
	if got := how(cfg, "b"); got != catalog.Unlocked {
		t.Errorf("b is %s", got)
	}
	cfg.Overrides = map[string]string{"berth/a": overPath}
	if got := how(cfg, "a"); got != catalog.Override {
		t.Errorf("overridden, a is %s", got)
	}
	if d := cmp.Diff([]string{"a", "b"}, open(t, cfg).Names()); d != "" {
		t.Error(d)
	}
	_, err := open(t, cfg).Resolve(t.Context(), project, "nope", none)
	if !errors.Is(err, errs.DriverUnknown) || !strings.Contains(err.Error(), "installed: a, b") {
		t.Errorf("%v", err)
	}
}

// Neither PATH nor the working directory is searched.
func TestNeverPathNorWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	install(t, dir, "x", "0.1.0")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Chdir(dir)
	if b, err := open(t, catalog.Config{}).Resolve(t.Context(), dir, "x", none); !errors.Is(err, errs.DriverUnknown) {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestLock(t *testing.T) {
	dir, project := t.TempDir(), t.TempDir()
	path := install(t, dir, "a", "0.2.0")
	c := open(t, catalog.Config{Dirs: []string{dir}})
	_, err := c.Resolve(t.Context(), project, "a", none)
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.DriverChecksum || e.Hint != "look at the file, then accept it: berth driver lock a" {
		t.Fatalf("not locked: %v", err)
	}
	lock, err := catalog.ReadLock(project)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.LockOne(t.Context(), lock, "a", spec.DriverRequirement{Version: "~> 0.2"}); err != nil {
		t.Fatal(err)
	}
	if err := lock.Write(); err != nil {
		t.Fatal(err)
	}
	again, err := catalog.ReadLock(project)
	if err != nil || len(again.Entries) != 1 || again.Entries[0].Version != "0.2.0" || again.Entries[0].Constraints != "~> 0.2" {
		t.Fatalf("%+v, %v", again, err)
	}
	if b, err := c.Resolve(t.Context(), project, "a", none); err != nil || b.Version != "0.2.0" {
		t.Fatalf("locked: %+v, %v", b, err)
	}
	if _, err := c.Resolve(t.Context(), project, "a", spec.DriverRequirement{Version: ">= 1.0"}); !errors.Is(err, errs.DriverIncompatible) {
		t.Errorf("another version is required: %v", err)
	}
	// Another file under the same name is told with both hashes and the command that accepts it.
	install(t, dir, "a", "0.2.1")
	_, err = c.Resolve(t.Context(), project, "a", none)
	for _, want := range []string{"is not the file that was locked", path, "found     sha256:", "expected  sha256:", "bytes, changed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	warn := open(t, catalog.Config{Dirs: []string{dir}, Verify: catalog.VerifyWarn})
	if b, err := warn.Resolve(t.Context(), project, "a", none); err != nil || !strings.Contains(b.Reason, "not that of the lock file") {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestLockFileMerges(t *testing.T) {
	project := t.TempDir()
	lock, err := catalog.ReadLock(project)
	if err != nil {
		t.Fatal(err)
	}
	lock.Set(catalog.LockEntry{Source: "z/z", Version: "1.0.0", Hashes: map[string]string{"linux_amd64": "sha256:1"}})
	lock.Set(catalog.LockEntry{Source: "a/a", Version: "1.0.0", Protocol: []int{1}, Hashes: map[string]string{"linux_amd64": "sha256:2"}})
	lock.Set(catalog.LockEntry{Source: "z/z", Version: "1.0.0", Hashes: map[string]string{"linux_arm64": "sha256:3"}})
	if err := lock.Write(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(lock.Path())
	if err != nil {
		t.Fatal(err)
	}
	want := `# Written by berth init and berth driver lock. Commit it.

driver "a/a" {
  version  = "1.0.0"
  protocol = [1]
  hashes = {
    linux_amd64 = "sha256:2"
  }
}

driver "z/z" {
  version = "1.0.0"
  hashes = {
    linux_amd64 = "sha256:1"
    linux_arm64 = "sha256:3"
  }
}
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for text, part := range map[string]string{
		"driver {": "cannot be read", `driver "a" { version = 1 }`: "cannot be read",
		"driver \"a\" {\n version = \"1\"\n hashes = {}\n}\ndriver \"a\" {\n version = \"1\"\n hashes = {}\n}\n": "stands twice",
	} {
		if err := os.WriteFile(lock.Path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.ReadLock(project); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A driver is asked once for each file, and never while it is only looked for.
func TestDescribeIsCached(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	path := install(t, dir, "a", "0.1.0")
	c := open(t, catalog.Config{Dirs: []string{dir}, Verify: catalog.VerifyNone, CacheDir: cache})
	asked := func() int {
		b, _ := os.ReadFile(path + ".log") // no file = never asked
		return strings.Count(string(b), "asked")
	}
	b, err := c.Resolve(t.Context(), dir, "a", none)
	if err != nil || asked() != 0 {
		t.Fatalf("%v, asked %d times", err, asked())
	}
	for range 3 {
		d, err := open(t, catalog.Config{CacheDir: cache}).Describe(t.Context(), b)
		if err != nil || d.Version != "0.1.0" || len(d.Features) != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if asked() != 1 {
		t.Errorf("asked %d times", asked())
	}
	other := b
	other.Name = "b"
	if _, err := c.Ask(t.Context(), other); err == nil || !strings.Contains(err.Error(), `is driver "a", not "b"`) {
		t.Errorf("another driver's file: %v", err)
	}
}

// Without a lock entry the versions that are installed are named, and the newest that fits is what lock takes.
func TestLockTakesTheNewestVersion(t *testing.T) {
	dir, project := t.TempDir(), t.TempDir()
	for _, v := range []string{"1.9.0", "1.10.0", "2.0.0"} {
		install(t, filepath.Join(dir, "acme", "box", v, runtime.GOOS+"_"+runtime.GOARCH), "box", v)
	}
	c := open(t, catalog.Config{Dirs: []string{dir}})
	if d := cmp.Diff([]string{"acme/box"}, c.Sources()); d != "" {
		t.Error(d)
	}
	req := spec.DriverRequirement{Source: "acme/box", Version: "~> 1.0"}
	_, err := c.Resolve(t.Context(), project, "box", req)
	var e *errs.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, "installed in version 1.10.0, 1.9.0, 2.0.0, and the lock file names none") ||
		e.Hint != "accept it: berth driver lock acme/box" {
		t.Fatalf("%v", err)
	}
	lock, err := catalog.ReadLock(project)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.LockOne(t.Context(), lock, "box", req); err != nil || got.Version != "1.10.0" {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := lock.Write(); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Resolve(t.Context(), project, "box", req); err != nil || b.Version != "1.10.0" || b.How != catalog.Locked {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := c.LockOne(t.Context(), lock, "box", spec.DriverRequirement{Source: "acme/box", Version: ">= 3"}); err == nil {
		t.Error("a version that does not fit was locked")
	}
}

func TestLockedVersionDirectory(t *testing.T) {
	dir, project := t.TempDir(), t.TempDir()
	install(t, filepath.Join(dir, "acme", "box", "1.2.3", runtime.GOOS+"_"+runtime.GOARCH), "box", "1.2.3")
	none := open(t, catalog.Config{Dirs: []string{dir}, Verify: catalog.VerifyNone})
	req := spec.DriverRequirement{Source: "acme/box"}
	lock, err := catalog.ReadLock(project)
	if err != nil {
		t.Fatal(err)
	}
	lock.Set(catalog.LockEntry{Source: "acme/box", Version: "1.2.3", Hashes: map[string]string{}})
	if err := lock.Write(); err != nil {
		t.Fatal(err)
	}
	b, err := none.Resolve(t.Context(), project, "box", req)
	if err != nil || b.How != catalog.Locked || b.Version != "1.2.3" {
		t.Errorf("%+v, %v", b, err)
	}
}
