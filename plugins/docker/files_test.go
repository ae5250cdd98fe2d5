// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func tarOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		h := &tar.Header{Name: name, Mode: 0o640, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, target, 0, ""
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
	return b.Bytes()
}

func TestFiles(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		s := f.create(t, request(t, with(config, map[string]any{"user": "app"})))
		files := filesOf(s)
		content := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		if _, err := files.Write(t.Context(), "dir/file", driver.WriteOptions{Parents: true, Mode: 0o600}, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		info, r, err := files.Open(t.Context(), "dir/file", driver.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || string(b) != content || info.Size != 1<<20 || info.User != "app" || info.Mode != 0o600 {
			t.Errorf("%v, %d bytes, %+v", err, len(b), info)
		}
		_, err = files.Import(t.Context(), driver.ImportOptions{Path: "tree"}, bytes.NewReader(tarOf(t, map[string]string{"a": "A", "sub/b": "B", "link": "-> a"})))
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, s, "cat tree/a tree/sub/b; readlink tree/link; stat -c %U:%G . tree/a tree/sub dir; touch tree/mine && echo writable"); got != "ABa\napp:app\napp:app\napp:app\napp:app\nwritable" {
			t.Errorf("%q", got)
		}
		var out bytes.Buffer
		if err := files.Export(t.Context(), driver.ExportOptions{Path: "tree"}, &out); err != nil {
			t.Fatal(err)
		}
		var names []string
		for tr := tar.NewReader(&out); ; {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, strings.Trim(strings.TrimPrefix(h.Name, "./"), "/"))
		}
		for _, want := range []string{"a", "sub", "sub/b", "link", "mine"} {
			if !slices.Contains(names, want) {
				t.Errorf("no %q in %q", want, names)
			}
		}
		if _, _, err := files.Open(t.Context(), "../etc/passwd", driver.ReadOptions{}); !errors.Is(err, errs.PathEscapes) {
			t.Errorf("%v", err)
		}
		if _, err := files.Write(t.Context(), "/etc/passwd", driver.WriteOptions{}, strings.NewReader("x")); !errors.Is(err, errs.PathEscapes) {
			t.Errorf("%v", err)
		}
		sh(t, s, "ln -s /etc out")
		if _, err := files.Write(t.Context(), "out/motd", driver.WriteOptions{}, strings.NewReader("x")); !errors.Is(err, errs.PathEscapes) {
			t.Errorf("%v", err)
		}
	})
}

func TestCompressedTrees(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	from, to := f.create(t, request(t, nil)), f.create(t, request(t, nil))
	sh(t, from, "head -c 3000000 /dev/zero > zeros; echo x > x")
	var b bytes.Buffer
	if err := from.(driver.TreeIO).Export(t.Context(), driver.ExportOptions{Compression: "zstd"}, &b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 100_000 {
		t.Errorf("%d bytes", b.Len())
	}
	if _, err := to.(driver.TreeIO).Import(t.Context(), driver.ImportOptions{Compression: "zstd"}, &b); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, to, "wc -c < zeros; cat x"); got != "3000000\nx" {
		t.Errorf("%q", got)
	}
}

// Users and groups need no tool in the image: here it has not even account files.
func TestAccounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	files := slices.DeleteFunc(busybox(t), func(e entry) bool {
		return strings.HasPrefix(e.name, "etc/") || strings.Contains(e.name, "adduser") || strings.Contains(e.name, "addgroup")
	})
	req := request(t, map[string]any{"image": loaded(t, "accounts", runtime.GOARCH, files, nil)})
	req.RunAs = "ada"
	req.Accounts = driver.Accounts{Users: []string{"ada", "bob"}, Groups: []driver.Group{{Name: "team", Users: []string{"ada", "carol"}}}}
	s := f.create(t, req)
	if got := sh(t, s, "id -un; id -Gn; echo $HOME; touch mine; touch $HOME/mine; stat -c %U:%G . mine $HOME; id -u carol > /dev/null && echo carol"); got !=
		"ada\nada team\n/home/ada\nada:ada\nada:ada\nada:ada\ncarol" {
		t.Errorf("%q", got)
	}
	if _, err := s.(driver.FileSystem).Write(t.Context(), "private", driver.WriteOptions{Mode: 0o600}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if out, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", "id -un; echo $HOME; cat private"}, User: "bob"}); exit.Code == 0 || !strings.HasPrefix(out, "bob\n/home/bob\n") {
		t.Errorf("%+v, %q", exit, out)
	}
	if out, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", "id -u; grep CapEff /proc/self/status"}}); exit.Code != 0 || !strings.Contains(out, "CapEff:\t0000000000000000") {
		t.Errorf("an ordinary user has capabilities: %q", out)
	}
	if err := s.(driver.AccountKeeper).EnsureAccounts(t.Context(), driver.Accounts{Users: []string{"dora"}}); err != nil {
		t.Error(err)
	}
	owner := "dora"
	if err := s.(driver.FileSystem).SetMeta(t.Context(), "private", driver.MetaChange{Owner: &owner}); err != nil {
		t.Error(err)
	}
	if got := sh(t, s, "stat -c %U private"); got != "dora" {
		t.Errorf("%q", got)
	}
}

// Without a guest the image's own tools make users.
func TestAccountsByTheImage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// Like those of Alpine.
	tools := append(busybox(t),
		entry{name: "bin/adduser", mode: 0o755, body: []byte("#!/bin/sh\necho \"$2:x:2000:2000::/home/$2:/bin/sh\" >> /etc/passwd; echo \"$2:x:2000:\" >> /etc/group\n")},
		entry{name: "bin/addgroup", mode: 0o755, body: []byte("#!/bin/sh\n[ $# = 2 ] && exec sed -i \"s/^$2:.*/&$1/\" /etc/group; echo \"$1:x:3000:\" >> /etc/group\n")},
	)
	req := request(t, map[string]any{"guest": settings.GuestNever, "image": loaded(t, "adduser", runtime.GOARCH, tools, nil)})
	req.RunAs = "ada"
	req.Accounts = driver.Accounts{Users: []string{"ada"}, Groups: []driver.Group{{Name: "team", Users: []string{"ada"}}}}
	s := f.create(t, req)
	if got := sh(t, s, "id -un; id -Gn; touch mine; stat -c %U:%G . mine"); got != "ada\nada team\nada:ada\nada:ada" {
		t.Errorf("%q", got)
	}
}

func TestPathGrants(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		dir := t.TempDir()
		for _, name := range []string{"ro", "rw"} {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o755), os.WriteFile(filepath.Join(dir, name, "f"), []byte("host\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		req := request(t, config)
		req.Grants = []driver.PathGrant{{Path: "/data/ro", HostPath: dir + "/ro", ReadOnly: true}, {Path: "/data/rw", HostPath: dir + "/rw"}}
		s := f.create(t, req)
		if got := sh(t, s, "cat /data/ro/f /data/rw/f; echo new > /data/rw/new; (echo x > /data/ro/x) 2>/dev/null || echo refused"); got != "host\nhost\nrefused" {
			t.Errorf("%q", got)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "rw/new")); err != nil || string(b) != "new\n" {
			t.Errorf("%q, %v", b, err)
		}
		if fs, ok := s.(driver.FileSystem); ok {
			if _, err := fs.Write(t.Context(), "/data/rw/by-api", driver.WriteOptions{}, strings.NewReader("x")); err != nil {
				t.Error(err)
			}
			if _, err := fs.Write(t.Context(), "/data/ro/by-api", driver.WriteOptions{}, strings.NewReader("x")); !errors.Is(err, errs.ReadOnly) {
				t.Errorf("%v", err)
			}
		}

		missing := request(t, config)
		missing.Grants = []driver.PathGrant{{Path: "/data", HostPath: dir + "/missing"}}
		if s, err := f.Create(t.Context(), missing); !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("%v, %v", s, err)
		}
		if n := f.containers(t, missing.SandboxID); n != 0 {
			t.Errorf("%d containers are left", n)
		}
	})
}

func TestSnapshots(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, with(config, map[string]any{"user": "app"}))
		req.Labels = map[string]string{"berth.run": "snapshotted"}
		req.SecretEnv = map[string]string{"TOKEN": "s3cr3t"}
		s := f.create(t, req)
		sh(t, s, "echo saved > file; echo $TOKEN > /dev/null")
		snap, err := s.(driver.NativeSnapshotter).Snapshot(t.Context(), "a name", false, map[string]string{"of": req.SandboxID})
		if err != nil {
			t.Fatal(err)
		}
		sh(t, s, "echo later > file")
		if img, err := f.e.ImageInspect(t.Context(), snap.ID); err != nil || strings.Contains(strings.Join(img.Config.Env, " "), "s3cr3t") {
			t.Errorf("%v, %v", err, img.Config)
		}
		var listed []string
		for sn, err := range f.Snapshots(t.Context(), map[string]string{"of": req.SandboxID}) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, sn.ID)
			if sn.SandboxID != req.SandboxID || sn.Labels["of"] != req.SandboxID {
				t.Errorf("%+v", sn)
			}
		}
		if !slices.Equal(listed, []string{snap.ID}) {
			t.Errorf("%v, want %v", listed, snap.ID)
		}

		restored := request(t, config)
		restored.NativeSnapshot = snap.ID
		again := f.create(t, restored)
		if got := sh(t, again, "cat file; id -un"); got != "saved\napp" {
			t.Errorf("%q", got)
		}
		if !again.(driver.Preserved).WorkspacePreserved() {
			t.Error("its workspace is said to be empty")
		}
		if l := inspect(t, again).Labels; l["berth.run"] != "" {
			t.Errorf("it was handed the labels of another: %v", l)
		}
		// A snapshot that a sandbox was made from can be removed, and takes nothing away from it: its image goes with it.
		if err := f.DeleteSnapshot(t.Context(), snap.ID); err != nil {
			t.Error(err)
		}
		for sn, err := range f.Snapshots(t.Context(), map[string]string{"of": req.SandboxID}) {
			t.Errorf("%+v is still there, %v", sn, err)
		}
		if got := sh(t, again, "cat file"); got != "saved" {
			t.Errorf("%q", got)
		}
		if err := again.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.e.ImageInspect(t.Context(), snap.ID); !engine.NotFound(err) {
			t.Errorf("the image of a snapshot that was removed is left: %v", err)
		}
		if err := errors.Join(f.DeleteSnapshot(t.Context(), snap.ID), f.DeleteSnapshot(t.Context(), snap.ID)); err != nil {
			t.Error(err)
		}
		missing := request(t, config)
		missing.NativeSnapshot = snap.ID
		if _, err := f.Create(t.Context(), missing); !errors.Is(err, errs.SnapshotUnusable) {
			t.Errorf("%v", err)
		}
		if err := f.DeleteSnapshot(t.Context(), busyboxImage(t)); !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("an image that is no snapshot: %v", err)
		}
	})
}
