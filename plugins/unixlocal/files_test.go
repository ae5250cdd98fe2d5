// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// tarOf makes a tar of files; a value that begins with @ names a file of the host.
func tarOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, content := range files {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if source, ok := strings.CutPrefix(content, "@"); ok {
			var st unix.Stat_t
			if err := unix.Stat(source, &st); err != nil {
				t.Fatal(err)
			}
			h.Size, content = 0, ""
			h.PAXRecords = map[string]string{
				driver.PAXSource:   source,
				driver.PAXSourceID: fmt.Sprintf("%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano()),
			}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func importInto(t testing.TB, s driver.Sandbox, opts driver.ImportOptions, b []byte) driver.ImportResult {
	t.Helper()
	res, err := s.(driver.TreeIO).Import(t.Context(), opts, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestImport(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(source, []byte("from the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, driver.Host{})
	s := f.create(t, nil)
	// Before any command this process does it, later the guest; the result is the same.
	for _, dir := range []string{"before", "after"} {
		b := tarOf(t, map[string]string{"a/f": "inline", "h": "@" + source})
		importInto(t, s, driver.ImportOptions{Path: dir, HostReferences: true}, b)
		got := sh(t, s, "cat "+dir+"/a/f "+dir+"/h; echo more >> "+dir+"/a/f; stat -c '%u %a' "+dir+"/h; id -u")
		if !strings.HasPrefix(got, "inlinefrom the host\n") && !strings.HasPrefix(got, "inlinefrom the host") {
			t.Errorf("%s: %q", dir, got)
		}
		lines := strings.Fields(strings.TrimPrefix(got, "inlinefrom the host"))
		if len(lines) != 3 || lines[0] != lines[2] {
			t.Errorf("%s: the file belongs to somebody else: %q", dir, got)
		}
	}
	// What a host reference names must still be what was seen.
	stale := tarOf(t, map[string]string{"h": "@" + source})
	if err := os.WriteFile(source, []byte("changed since"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(source, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.(driver.TreeIO).Import(t.Context(), driver.ImportOptions{Path: "stale", HostReferences: true}, bytes.NewReader(stale)); err == nil {
		t.Error("a file that changed was taken")
	}
	// Compressed, both ways.
	var z bytes.Buffer
	w, err := zstd.NewWriter(&z)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(tarOf(t, map[string]string{"z": "compressed"})); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	importInto(t, s, driver.ImportOptions{Path: "z", Compression: "zstd"}, z.Bytes())
	var out bytes.Buffer
	if err := s.(driver.TreeIO).Export(t.Context(), driver.ExportOptions{Path: "z", Compression: "zstd"}, &out); err != nil {
		t.Fatal(err)
	}
	r, err := zstd.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err := io.ReadAll(r)
	if err != nil || !bytes.Contains(all, []byte("compressed")) {
		t.Errorf("export: %v, %d bytes", err, len(all))
	}
}

func TestTemplate(t *testing.T) {
	f := newFixture(t, driver.Host{})
	const key = "sha256:1234"
	template := func(r *driver.CreateRequest) { r.Workspace.Template = key }
	first := f.create(t, template)
	if first.(driver.Preserved).WorkspacePreserved() {
		t.Fatal("a workspace that nobody filled is called preserved")
	}
	if first.(*sandbox).key == "" {
		t.Skip("no overlays here: ", f.overlay())
	}
	before := inspect(t, first).Isolation
	importInto(t, first, driver.ImportOptions{Template: key}, tarOf(t, map[string]string{"d/f": "template", "g": "2"}))
	if got := sh(t, first, "cat d/f; echo first > d/f; rm g; mkdir -p d/e; mv d x; ls; cat x/f"); got != "templatex\nfirst" {
		t.Errorf("got %q", got)
	}
	if got := inspect(t, first).Isolation; fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the report changed: %v, %v", before, got)
	}

	// The second begins where the first began, also in another process.
	for i, fx := range []*fixture{f, newFixture(t, f.host)} {
		begin := time.Now()
		s := fx.create(t, template)
		t.Logf("session %d from the template in %s", i+2, time.Since(begin))
		if !s.(driver.Preserved).WorkspacePreserved() {
			t.Error("not preserved")
		}
		if got := sh(t, s, "cat d/f g; ls"); got != "template2d\ng" {
			t.Errorf("got %q", got)
		}
	}
	if got := sh(t, first, "cat x/f; ls"); got != "first\nx" {
		t.Errorf("got %q", got)
	}

	// It is not removed while it is used, and it is when nobody does.
	if err := first.(driver.Stopper).Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: first.(*sandbox).x.Record.ID, State: first.State()})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat x/f; ls"); got != "first\nx" {
		t.Errorf("after a stop: %q", got)
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPathGrants(t *testing.T) {
	if testLevel(t) < 2 {
		t.Skip("no private root")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"rw": 0o755, "ro": 0o700} {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "f"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newFixture(t, driver.Host{})
	s := f.create(t, func(r *driver.CreateRequest) {
		r.Grants = []driver.PathGrant{
			{Path: "/data", HostPath: filepath.Join(dir, "rw")},
			{Path: "/workspace/ro", HostPath: filepath.Join(dir, "ro"), ReadOnly: true},
		}
	})
	if got := sh(t, s, "cat /data/f ro/f; echo new > /data/g; echo more >> /data/f"); got != "rwro" {
		t.Errorf("got %q", got)
	}
	st, err := os.Stat(filepath.Join(dir, "rw", "g"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys(); sys != nil {
		var raw unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "rw", "g"), &raw); err != nil || int(raw.Uid) != os.Getuid() {
			t.Errorf("the new file belongs to %d (%v)", raw.Uid, err)
		}
	}
	for _, script := range []string{"echo x > ro/f", "rm ro/f", "chmod 700 ro/f", "touch ro/g"} {
		if out, exit := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", script}}); exit.Code == 0 {
			t.Errorf("%s worked: %s", script, out)
		}
	}
	// What others on the host may reach must not become a program that runs as its owner.
	for _, script := range []string{
		"chmod 4755 /data/g", "chmod g+s /data/g", "install -m 4755 /bin/true /data/t",
		"python3 -c 'import os; os.close(os.open(\"/data/p\", os.O_CREAT|os.O_WRONLY, 0o4755))'",
		"perl -e 'sysopen(F, \"/data/q\", 65, 04755) or exit 1'",
	} {
		_, _ = try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", script}})
	}
	entries, err := os.ReadDir(filepath.Join(dir, "rw"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if i, err := e.Info(); err != nil || i.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s has mode %s (%v)", e.Name(), i.Mode(), err)
		}
	}
	// The file calls know the grants too.
	if _, err := s.(driver.FileSystem).Write(t.Context(), "/data/w", driver.WriteOptions{}, strings.NewReader("w")); err != nil {
		t.Errorf("write to a grant: %v", err)
	}
	_, err = s.(driver.FileSystem).Write(t.Context(), "ro/w", driver.WriteOptions{}, strings.NewReader("w"))
	if !errors.Is(err, errs.ReadOnly) {
		t.Errorf("write to a read-only grant: %v", err)
	}
}

func TestAccounts(t *testing.T) {
	f := newFixture(t, driver.Host{})
	req := &driver.CreateRequest{}
	edit := func(r *driver.CreateRequest) {
		r.Accounts = driver.Accounts{Users: []string{"alice", "bob"}, Groups: []driver.Group{{Name: "team", Users: []string{"alice"}}}}
		r.RunAs = "bob"
		r.Workspace.Mode = 0o777
	}
	edit(req)
	m, err := f.machine()
	if err != nil {
		t.Fatal(err)
	}
	w := f.want(m, &config{})
	w.Accounts, w.RunAs = req.Accounts, req.RunAs
	if _, err := m.SetupFor(w); err != nil {
		if !errors.Is(err, errs.IsolationMissing) {
			t.Fatal(err)
		}
		t.Skip("no users here: ", err)
	}
	s := f.create(t, edit)
	if got := sh(t, s, "id -un"); got != "bob" {
		t.Errorf("commands run as %q", got)
	}
	run := func(user, script string) string {
		out, exit := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", script}, User: user})
		return fmt.Sprint(strings.TrimSpace(out), " ", exit.Code)
	}
	if got := run("alice", "id -un; id -Gn; umask 077; echo mine > a; grep CapEff /proc/self/status"); got != "alice\nalice team\nCapEff:\t0000000000000000 0" {
		t.Errorf("got %q", got)
	}
	if got := run("bob", "cat a 2>/dev/null"); got != " 1" {
		t.Errorf("bob read alice's file: %q", got)
	}
	if got := run("root", "cat /proc/1/environ /proc/1/maps 2>&1 | head -1; kill -TERM 1 2>&1 || echo refused"); !strings.Contains(got, "refused") {
		t.Errorf("the root of the sandbox reached the guest: %q", got)
	}
	if _, err := s.(driver.FileSystem).Write(t.Context(), "w", driver.WriteOptions{}, strings.NewReader("w")); err != nil {
		t.Fatal(err)
	}
	if got := run("bob", "stat -c %U w && echo x >> w"); got != "bob 0" {
		t.Errorf("a file of the file calls: %q", got)
	}
	_, _, err = s.(driver.FileSystem).Open(t.Context(), "a", driver.ReadOptions{User: "bob"})
	if !errors.Is(err, errs.PermissionDenied) {
		t.Errorf("bob opened alice's file: %v", err)
	}
	importInto(t, s, driver.ImportOptions{Path: "i"}, tarOf(t, map[string]string{"f": "1"}))
	if got := run("bob", "stat -c %U i/f"); got != "bob 0" {
		t.Errorf("an imported file: %q", got)
	}
	if err := s.(driver.AccountKeeper).EnsureAccounts(t.Context(), req.Accounts); err != nil {
		t.Error(err)
	}
	if err := s.(driver.AccountKeeper).EnsureAccounts(t.Context(), driver.Accounts{Users: []string{"carol"}}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("carol: %v", err)
	}
	for _, i := range inspect(t, s).Isolation {
		if i.Axis == "user" && !strings.Contains(i.Statement, "run_as") {
			t.Errorf("%+v", i)
		}
	}
}

func TestLimits(t *testing.T) {
	f := newFixture(t, driver.Host{})
	s := f.create(t, func(r *driver.CreateRequest) {
		r.Limits = driver.ResourceLimits{Processes: 60, MemoryBytes: 64 << 20, FileBytes: 1 << 20, OpenFiles: 64}
	})
	m, err := f.machine()
	if err != nil {
		t.Fatal(err)
	}
	// The limit has to be there before anything is tried against it.
	if out, exit := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", "mkfifo gate; i=0; while [ $i -lt 90 ]; do (read x < gate) & i=$((i+1)); done; : <> gate; wait"}}); exit.Code == 0 {
		t.Errorf("ninety processes ran where sixty may: %s", out)
	}
	if _, err := s.(driver.FileSystem).Stat(t.Context(), []string{"."}, driver.StatOptions{}); err != nil {
		t.Errorf("the guest does not answer: %v", err)
	}
	eventually(t, func() bool { // those who wait at the gate are let through
		exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"/bin/sh", "-c", ": <> gate; true | true | true | true"}}, driver.Streams{})
		return err == nil && exit.Code == 0
	})
	if out, exit := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", "head -c 2m /dev/zero > big"}}); exit.Code == 0 {
		t.Errorf("a file grew past its limit: %s", out)
	}
	if got := sh(t, s, "ulimit -n; stat -c %s big"); got != "64\n1048576" {
		t.Errorf("got %q", got)
	}
	if m.Groups.Can("memory") == "" {
		t.Skip("no memory cgroup for this user")
	}
	_, exit := try(t, s, &driver.Command{Argv: []string{"/bin/bash", "-c", "exec tail -c 200m < <(exec head -c 200m /dev/zero)"}, Timeout: 30 * time.Second})
	if !exit.OOM {
		t.Errorf("the kernel ended it for memory, and the exit does not say so: %+v", exit)
	}
	if got := sh(t, s, "echo alive"); got != "alive" {
		t.Errorf("the guest does not answer: %q", got)
	}
}

func TestRequiredIsolation(t *testing.T) {
	f := newFixture(t, driver.Host{})
	m, err := f.machine()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Create(t.Context(), &driver.CreateRequest{
		SandboxID: "required", Workspace: driver.Workspace{Root: "/workspace"},
		Config: settings(t, map[string]any{"isolation": "required", "required_axes": []string{"network"}}),
	})
	if !errors.Is(err, errs.IsolationMissing) {
		t.Errorf("network of the host: %v", err)
	}
	// A machine that refuses namespaces says which, why, and what to do.
	facts := *m.Facts
	facts.Setup.Namespaces.Mount, facts.Setup.Namespaces.PID, facts.Setup.Landlock, facts.Setup.Seccomp = false, false, 0, false
	facts.Level = 0
	facts.Failures = append(facts.Failures, failExample)
	poor := &machine.Machine{Program: m.Program, Facts: &facts, Groups: m.Groups, Path: m.Path}
	f.machine = func() (*machine.Machine, error) { return poor, nil }
	diags := f.Validate(t.Context(), settings(t, map[string]any{"isolation": "required"}), false)
	if len(diags) != 1 || !strings.Contains(diags[0].Detail, "EPERM") || !strings.Contains(diags[0].Detail, "unprivileged_userns_clone") {
		t.Errorf("%+v", diags)
	}
	_, err = f.Create(t.Context(), &driver.CreateRequest{
		SandboxID: "required", Workspace: driver.Workspace{Root: "/workspace"},
		Config: settings(t, map[string]any{"isolation": "required"}),
	})
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.IsolationMissing || e.Context["errno"] != "EPERM" || e.Context["axis"] != "filesystem" || e.Hint == "" {
		t.Errorf("%#v", err)
	}
}

func TestIsolationOff(t *testing.T) {
	f := newFixture(t, driver.Host{})
	s := f.create(t, func(r *driver.CreateRequest) { r.Config = settings(t, map[string]any{"isolation": "off"}) })
	if got := sh(t, s, "pwd; id -u"); got != inspect(t, s).Root+"\n"+itoa(os.Getuid()) {
		t.Errorf("got %q", got)
	}
	for _, i := range inspect(t, s).Isolation {
		if i.Axis == "filesystem" && i.Strength != 0 {
			t.Errorf("%+v", i)
		}
	}
}

// TestHostMounts mounts something in a workspace while the sandbox runs, as a storage mount does.
func TestHostMounts(t *testing.T) {
	if os.Getuid() != 0 || os.Getenv(envSetup) == "" {
		t.Skip("only root, in a mount namespace of its own")
	}
	f := newFixture(t, driver.Host{})
	s := f.create(t, nil)
	sh(t, s, "mkdir m")
	at := filepath.Join(inspect(t, s).Display["directory"], "work", "m")
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "f"), []byte("later"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, s, "cat m/f; umount m 2>/dev/null || echo refused"); got != "laterrefused" {
		t.Errorf("got %q", got)
	}
	// It is not the sandbox's, and is not removed with it.
	if err := s.Destroy(t.Context()); err == nil {
		t.Error("destroyed with a mount in it")
	}
	if b, err := os.ReadFile(filepath.Join(at, "f")); string(b) != "later" {
		t.Errorf("the mounted file is now %q (%v)", b, err)
	}
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

func TestKnobs(t *testing.T) {
	f := newFixture(t, driver.Host{})
	script := "unshare --user --map-root-user true && echo nested"
	run := func(v map[string]any, script string) string {
		s := f.create(t, func(r *driver.CreateRequest) { r.Config = settings(t, v) })
		out, _ := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", "( " + script + " ) 2>/dev/null; true"}})
		return strings.TrimSpace(out)
	}
	if got := run(nil, script); got != "" {
		t.Errorf("a namespace in a sandbox: %q", got)
	}
	if got := run(map[string]any{"nested_sandboxes": true}, script); (got == "nested") != (testLevel(t) > 1) {
		t.Errorf("no namespace where they are allowed: %q", got)
	}
	extra := filepath.Join(t.TempDir(), "extra")
	if err := os.WriteFile(extra, []byte("extra"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := run(nil, "cat "+extra); got != "" {
		t.Errorf("a file of the host: %q", got)
	}
	if got := run(map[string]any{"read_only_paths": []string{extra}}, "cat "+extra+"; echo x >> "+extra); got != "extra" {
		t.Errorf("a file that was opened to the sandbox: %q", got)
	}
	socket := `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s"); print("bound")'`
	without, with := run(nil, socket), run(map[string]any{"allow_unix_sockets": true}, socket)
	if private := testLevel(t) > 1; private != (without == "bound") || with != "bound" {
		t.Errorf("unix sockets: %q, allowed: %q", without, with)
	}
}
