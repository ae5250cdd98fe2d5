// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// The test binary can be run as another user, to say how a file is taken there.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "resolve" {
		c, err := catalog.Open(catalog.Config{Overrides: map[string]string{"berth/a": os.Args[2]}})
		if err == nil {
			_, err = c.Resolve(context.Background(), "", "a", none)
		}
		fmt.Println(errs.CodeOf(err))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTrust(t *testing.T) {
	const other = 4321
	for name, c := range map[string]struct {
		spoil func(file, dir string) error
		want  string
	}{
		"file for all":   {func(f, _ string) error { return os.Chmod(f, 0o777) }, "its group and others may write to it (mode 0777, owner root); run: chmod go-w FILE"},
		"file for group": {func(f, _ string) error { return os.Chmod(f, 0o775) }, "its group may write to it (mode 0775, owner root); run: chmod g-w FILE"},
		"dir for others": {func(_, d string) error { return os.Chmod(d, 0o757) }, "others may write to it (mode 0757, owner root); run: chmod o-w DIR"},
		"other owner":    {func(f, _ string) error { return os.Chown(f, other, -1) }, "belongs to another user (mode 0755, owner 4321); run: chown 0 FILE"},
		"other dir":      {func(_, d string) error { return os.Chown(d, other, -1) }, "belongs to another user (mode 0755, owner 4321); run: chown 0 DIR"},
		"open above":     {func(_, d string) error { return os.Chmod(filepath.Dir(d), 0o777) }, "others may write to it (mode 0777, owner root); run: chmod o-w ABOVE"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("owners can only be changed by root")
			}
			dir := filepath.Join(t.TempDir(), "plugins")
			file := install(t, dir, "a", "0.1.0")
			if err := c.spoil(file, dir); err != nil {
				t.Fatal(err)
			}
			_, err := open(t, catalog.Config{Dirs: []string{dir}, Verify: catalog.VerifyNone}).Resolve(t.Context(), "", "a", none)
			var e *errs.Error
			if !errors.As(err, &e) || e.Code != errs.PermissionDenied {
				t.Fatalf("got %v", err)
			}
			got := strings.NewReplacer(file, "FILE", dir, "DIR", filepath.Dir(dir), "ABOVE").Replace(e.Message + "; " + e.Hint)
			_, got, _ = strings.Cut(got, "is not trusted: ")
			if got != c.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A user's private group may write to a driver, as it may to everything that the user makes on many distributions.
func TestPrivateGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user can only be played by root")
	}
	base, err := os.MkdirTemp("/tmp", "bc") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	file, run := filepath.Join(base, "berth-driver-a"), filepath.Join(base, "run")
	for path, content := range map[string][]byte{file: []byte("program"), run: program} {
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for gid, want := range map[int]string{4321: "", 4322: "permission_denied"} {
		for _, path := range []string{base, file, run} {
			if err := errors.Join(os.Chown(path, 4321, gid), os.Chmod(path, 0o775)); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), run, "resolve", file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4321, Gid: uint32(gid)}}
		out, err := cmd.Output()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("group %d: %q, %v", gid, out, err)
		}
	}
}

// Where several files could be meant, the lock file decides and not the order of the rules.
func TestLockChoosesAmongFiles(t *testing.T) {
	bundle, dir, project := t.TempDir(), t.TempDir(), t.TempDir()
	install(t, bundle, "a", "0.1.0")
	locked := install(t, dir, "a", "0.2.0")
	lock, err := catalog.ReadLock(project)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, catalog.Config{Dirs: []string{dir}}).LockOne(t.Context(), lock, "a", none); err != nil {
		t.Fatal(err)
	}
	if err := lock.Write(); err != nil {
		t.Fatal(err)
	}
	c := open(t, catalog.Config{Bundle: bundle, Dirs: []string{dir}})
	if b, err := c.Resolve(t.Context(), project, "a", none); err != nil || b.Path != locked {
		t.Errorf("%+v, %v", b, err)
	}
	if err := os.Remove(locked); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Resolve(t.Context(), project, "a", none); !errors.Is(err, errs.DriverChecksum) {
		t.Errorf("another file than the locked one: %+v, %v", b, err)
	}
}

func TestBundledDriverMustFit(t *testing.T) {
	bundle := t.TempDir()
	install(t, bundle, "a", "0.1.0")
	c := open(t, catalog.Config{Bundle: bundle})
	if _, err := c.Resolve(t.Context(), "", "a", spec.DriverRequirement{Version: "~> 0.1"}); err != nil {
		t.Error(err)
	}
	_, err := c.Resolve(t.Context(), "", "a", spec.DriverRequirement{Version: ">= 2.0.0"})
	if !errors.Is(err, errs.DriverIncompatible) || !strings.Contains(err.Error(), `has version 0.1.0, the project requires ">= 2.0.0"`) {
		t.Errorf("got %v", err)
	}
}

func TestDescribeErrors(t *testing.T) {
	for name, c := range map[string]struct{ program, want string }{
		"fails":         {"#!/bin/sh\necho no licence >&2\nexit 3\n", "exit status 3; it said: no licence"},
		"prints rubble": {"#!/bin/sh\necho hello\n", "read description"},
		"no program":    {"rubble\n", "does not describe itself"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "berth-driver-a"), []byte(c.program), 0o755); err != nil {
				t.Fatal(err)
			}
			cat := open(t, catalog.Config{Dirs: []string{dir}, Verify: catalog.VerifyNone})
			b, err := cat.Resolve(t.Context(), "", "a", none)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cat.Describe(t.Context(), b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	// A file that was replaced after it was checked is not run.
	dir := t.TempDir()
	install(t, dir, "a", "0.1.0")
	cat := open(t, catalog.Config{Dirs: []string{dir}, Verify: catalog.VerifyNone})
	b, err := cat.Resolve(t.Context(), "", "a", none)
	if err != nil {
		t.Fatal(err)
	}
	install(t, dir, "a", "0.2.0")
	if _, err := cat.Ask(t.Context(), b); !errors.Is(err, errs.DriverChecksum) {
		t.Errorf("got %v", err)
	}
}

func FuzzLock(f *testing.F) {
	f.Add([]byte("driver \"berth/a\" {\n version = \"1.0.0\"\n hashes = { linux_amd64 = \"sha256:0\" }\n}\n"))
	f.Add([]byte("driver \"berth/a\" {\n protocol = [1, null]\n}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, catalog.LockFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := catalog.ReadLock(dir)
		if err != nil {
			return
		}
		if err := l.Write(); err != nil {
			t.Fatal(err)
		}
		again, err := catalog.ReadLock(dir)
		if err != nil || len(again.Entries) != len(l.Entries) {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}
