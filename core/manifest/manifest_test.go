// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/driver"
)

// member is what a test compares of a tar member.
type member struct {
	Name, Body, Link, Owner string
	Mode                    int64
}

func untar(t *testing.T, b []byte) map[string]member {
	t.Helper()
	out := map[string]member{}
	for tr := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := out[h.Name]; ok {
			t.Errorf("%s stands twice", h.Name)
		}
		out[h.Name] = member{h.Name, string(body), h.Linkname, h.Uname, h.Mode}
	}
}

func archive(t *testing.T, m *spec.Manifest, opts manifest.Options) map[string]member {
	t.Helper()
	c, err := manifest.Resolve(t.Context(), m, opts)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Archive(t.Context(), &b, manifest.ArchiveOptions{Now: time.Unix(1e9, 0)}); err != nil {
		t.Fatal(err)
	}
	return untar(t, b.Bytes())
}

func file(path, content string) spec.Entry {
	return spec.Entry{Kind: spec.EntryFile, Path: path, File: &spec.FileEntry{Content: []byte(content)}}
}

func localDir(path string, d spec.LocalDirEntry) spec.Entry {
	return spec.Entry{Kind: spec.EntryLocalDir, Path: path, LocalDir: &d, Pos: spec.Pos{File: "main.berth.hcl", Line: 7}}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestArchive(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"run.sh": "#!/bin/sh\n", "sub/a": "A", "skip.log": "x", "sub/deep/b": "B"})
	if err := os.Chmod(filepath.Join(src, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(src, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/a", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := uint32(0o600)
	tool := file("bin/tool", "x")
	tool.File.Executable = true
	note := file("note", "n")
	note.Mode, note.Owner = &secret, "agent"
	got := archive(t, &spec.Manifest{Entries: []spec.Entry{
		note, tool,
		localDir("data", spec.LocalDirEntry{Source: src, Exclude: []string{"*.log"}, Symlinks: "preserve", KeepModes: true}),
		{Kind: spec.EntryLocalFile, Path: "one", LocalFile: &spec.LocalFileEntry{Source: filepath.Join(src, "run.sh")}},
		{Kind: spec.EntryDir, Path: "out"},
	}}, manifest.Options{})
	want := map[string]member{
		"note":            {Name: "note", Body: "n", Mode: 0o600, Owner: "agent"},
		"bin/":            {Name: "bin/", Mode: 0o755},
		"bin/tool":        {Name: "bin/tool", Body: "x", Mode: 0o755},
		"data/":           {Name: "data/", Mode: 0o755},
		"data/run.sh":     {Name: "data/run.sh", Body: "#!/bin/sh\n", Mode: 0o755},
		"data/sub/":       {Name: "data/sub/", Mode: 0o755},
		"data/sub/a":      {Name: "data/sub/a", Body: "A", Mode: 0o644},
		"data/sub/deep/":  {Name: "data/sub/deep/", Mode: 0o755},
		"data/sub/deep/b": {Name: "data/sub/deep/b", Body: "B", Mode: 0o644},
		"data/empty/":     {Name: "data/empty/", Mode: 0o700},
		"data/link":       {Name: "data/link", Link: "sub/a", Mode: 0o777},
		"one":             {Name: "one", Body: "#!/bin/sh\n", Mode: 0o755},
		"out/":            {Name: "out/", Mode: 0o755},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestLocalDirRules(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"a.go": "a", "b.txt": "b", "vendor/v.go": "v", ".gitignore": "vendor/\n*.txt\n", "sub/.gitignore": "!b.txt\nx\n", "sub/x": "x", "sub/y.go": "y", ".git/config": "c"})
	names := func(d spec.LocalDirEntry) string {
		d.Source = src
		var out []string
		c, err := manifest.Resolve(t.Context(), &spec.Manifest{Entries: []spec.Entry{localDir("d", d)}}, manifest.Options{})
		if err != nil {
			return "error: " + err.Error()
		}
		for _, m := range c.Members {
			if m.Type == driver.TypeRegular {
				out = append(out, strings.TrimPrefix(m.Path, "d/"))
			}
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct {
		spec spec.LocalDirEntry
		want string
	}{
		{spec.LocalDirEntry{Gitignore: true}, ".gitignore a.go sub/.gitignore sub/y.go"},
		{spec.LocalDirEntry{Include: []string{"*.go"}}, "a.go sub/y.go vendor/v.go"},
		{spec.LocalDirEntry{Exclude: []string{".*", "vendor", "*.txt"}}, "a.go sub/x sub/y.go"},
		{spec.LocalDirEntry{MaxFiles: 2}, "error: main.berth.hcl:7: local_dir \"d\": " + src + " holds 8 files, more than max_files = 2 allows"},
	} {
		if got := names(tt.spec); got != tt.want {
			t.Errorf("%+v:\n got %s\nwant %s", tt.spec, got, tt.want)
		}
	}
	// Links: an error that says what to do, left out, or kept when they stay inside.
	if err := os.Symlink("/etc/passwd", filepath.Join(src, "out")); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]string{"error": "set symlinks =", "preserve": "set symlinks =", "skip": ""} {
		got := names(spec.LocalDirEntry{Symlinks: mode, Exclude: []string{".git"}})
		if strings.Contains(got, "error: ") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

// What is copied is what was seen: a file that changed in between, or became a link, fails the entry by name.
func TestSourceChangesInBetween(t *testing.T) {
	for name, change := range map[string]func(p string) error{
		"content": func(p string) error { return os.WriteFile(p, []byte("longer than before"), 0o644) },
		"link": func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Symlink("/etc/passwd", p)
		},
		"gone": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			write(t, src, map[string]string{"f": "old"})
			c, err := manifest.Resolve(t.Context(), &spec.Manifest{Entries: []spec.Entry{localDir("d", spec.LocalDirEntry{Source: src})}}, manifest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := change(filepath.Join(src, "f")); err != nil {
				t.Fatal(err)
			}
			err = c.Archive(t.Context(), io.Discard, manifest.ArchiveOptions{})
			var ee *manifest.EntryError
			if !errors.As(err, &ee) || ee.Path != "d" || !errors.Is(err, manifest.ErrChanged) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestHostReferences(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"f": "content"})
	c, err := manifest.Resolve(t.Context(), &spec.Manifest{Entries: []spec.Entry{localDir("d", spec.LocalDirEntry{Source: src, KeepModes: true})}}, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Archive(t.Context(), &b, manifest.ArchiveOptions{HostReferences: true}); err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(&b)
	for {
		h, err := tr.Next()
		if err != nil {
			t.Fatal("no file in the archive")
		}
		if h.Name != "d/f" {
			continue
		}
		real, _ := filepath.EvalSymlinks(src)
		if h.Size != 0 || h.PAXRecords[driver.PAXSource] != filepath.Join(real, "f") || !strings.Contains(h.PAXRecords[driver.PAXSourceID], ":7:") {
			t.Errorf("%+v", h)
		}
		return
	}
}

func TestDigest(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"f": "content"})
	digest := func(entries ...spec.Entry) string {
		c, err := manifest.Resolve(t.Context(), &spec.Manifest{Entries: entries}, manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest()
	}
	dir := localDir("d", spec.LocalDirEntry{Source: src})
	a := digest(file("x", "1"), dir)
	if a != digest(file("x", "1"), dir) {
		t.Error("the same contents have two keys")
	}
	if a == digest(file("x", "2"), dir) || a == digest(file("y", "1"), dir) {
		t.Error("other contents have the same key")
	}
	write(t, src, map[string]string{"f": "CONTENT"})
	if a == digest(file("x", "1"), dir) {
		t.Error("a changed source has the same key")
	}
}

// TestSecondTime resolves one manifest twice: what it says itself is not looked at again, and everything that may have
// changed is.
func TestSecondTime(t *testing.T) {
	src := t.TempDir()
	write(t, src, map[string]string{"f": "1"})
	twice := func(between func(), entries ...spec.Entry) (first, second *manifest.Contents) {
		m := &spec.Manifest{Entries: entries}
		var got [2]*manifest.Contents
		for i := range got {
			c, err := manifest.Resolve(t.Context(), m, manifest.Options{Vars: spec.RunVars{Input: strconv.Itoa(i)}})
			if err != nil {
				t.Fatal(err)
			}
			got[i] = c
			between()
		}
		return got[0], got[1]
	}
	nothing := func() {}
	a, b := twice(nothing, file("d/x", "1"), file("a", "2"))
	if a.Digest() != b.Digest() || len(a.Members) != 3 || &a.Members[0] != &b.Members[0] {
		t.Error("a manifest of files was resolved twice")
	}
	a, b = twice(func() { write(t, src, map[string]string{"f": "other"}) }, file("x", "1"), localDir("d", spec.LocalDirEntry{Source: src}))
	if a.Digest() == b.Digest() {
		t.Error("the second session does not see that a source has changed")
	}
	a, b = twice(nothing, spec.Entry{Kind: spec.EntryFile, Path: "x", File: &spec.FileEntry{Expr: input{}}})
	if a.Digest() == b.Digest() || string(b.Members[0].Content) != "1" {
		t.Errorf("the second run has the file of the first: %q", b.Members[0].Content)
	}
}

// input is the expression run.input.
type input struct{}

func (input) Eval(vars spec.RunVars) (any, error) { return vars.Input, nil }
func (input) Pos() spec.Pos                       { return spec.Pos{} }

func TestTree(t *testing.T) {
	c, err := manifest.Resolve(t.Context(), &spec.Manifest{Root: "/workspace", Entries: []spec.Entry{
		{Kind: spec.EntryFile, Path: "a-b", Description: "the task", File: &spec.FileEntry{Content: make([]byte, 2048)}},
		file("a/b/c/d/e", "1"), file("a/b/c/d/f", "1"), file("a/x", "12"),
		{Kind: spec.EntryMount, Path: "data", Mount: &spec.MountEntry{Kind: "s3", ReadOnly: true}},
	}}, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := `/workspace
  a/
    b/
      c/  (2 files)
    x  2 B
  a-b  2.0 KiB  the task
  data/  (s3 mount, read only)`
	if d := cmp.Diff(want, c.Tree(manifest.TreeOptions{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	var many []spec.Entry
	for i := range 2000 {
		many = append(many, file(fmt.Sprintf("f%04d", i), ""))
	}
	c, err = manifest.Resolve(t.Context(), &spec.Manifest{Root: "/w", Entries: many}, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Tree(manifest.TreeOptions{Bytes: 500}); len(got) > 500 || !strings.Contains(got, "more lines") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

func gitRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestGitRepo(t *testing.T) {
	origin := t.TempDir()
	write(t, origin, map[string]string{"README": "one", "sub/run.sh": "#!/bin/sh\n", "big.bin": "version https://git-lfs.github.com/spec/v1\n"})
	if err := os.Chmod(filepath.Join(origin, "sub/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/absolute/target", filepath.Join(origin, "link")); err != nil {
		t.Fatal(err)
	}
	gitRun(t, origin, "init", "-q", "-b", "main")
	gitRun(t, origin, "add", ".")
	gitRun(t, origin, "commit", "-q", "-m", "one")
	first := gitRun(t, origin, "rev-parse", "HEAD")
	cache := t.TempDir()
	get := func(g spec.GitRepoEntry) (map[string]member, error) {
		g.Repo = "file://" + origin
		m := &spec.Manifest{Entries: []spec.Entry{{Kind: spec.EntryGitRepo, Path: "repo", GitRepo: &g}}}
		c, err := manifest.Resolve(t.Context(), m, manifest.Options{CacheDir: cache})
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := c.Archive(t.Context(), &b, manifest.ArchiveOptions{}); err != nil {
			return nil, err
		}
		return untar(t, b.Bytes()), nil
	}
	got, err := get(spec.GitRepoEntry{Ref: "main", Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got["repo/README"].Body != "one" || got["repo/sub/run.sh"].Mode != 0o755 || got["repo/link"].Link != "/absolute/target" || got["repo/.git/config"].Name != "" {
		t.Errorf("%v", got)
	}
	// A new commit on the branch is seen; a full commit needs no server any more.
	write(t, origin, map[string]string{"README": "two"})
	gitRun(t, origin, "commit", "-q", "-am", "two")
	if got, err = get(spec.GitRepoEntry{Ref: "main", Depth: 1}); err != nil || got["repo/README"].Body != "two" {
		t.Errorf("%v, %v", got["repo/README"], err)
	}
	if err := os.Rename(origin, origin+"-away"); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(origin+"-away", origin)
	if got, err = get(spec.GitRepoEntry{Ref: first, Depth: 1}); err != nil || got["repo/README"].Body != "one" {
		t.Errorf("%v, %v", got["repo/README"], err)
	}
	if got, err = get(spec.GitRepoEntry{Ref: first, Subpath: "sub"}); err != nil || got["repo/run.sh"].Mode != 0o755 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = get(spec.GitRepoEntry{Ref: first, KeepGit: true}); err != nil || !strings.Contains(got["repo/.git/config"].Body, "file://"+origin) {
		t.Errorf("%v, %v", got["repo/.git/config"], err)
	}
	for want, g := range map[string]spec.GitRepoEntry{
		"fetch file://":       {Ref: "main"},
		`"--upload-pack=x"`:   {Ref: "--upload-pack=x"},
		`no directory "nope"`: {Ref: first, Subpath: "nope"},
	} {
		if _, err := get(g); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `git_repo "repo"`) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestGitAddresses(t *testing.T) {
	for _, repo := range []string{"ext::sh -c touch% /tmp/x", "ext://x", "https://user:password@host/x"} {
		m := &spec.Manifest{Entries: []spec.Entry{{Kind: spec.EntryGitRepo, Path: "r", GitRepo: &spec.GitRepoEntry{Repo: repo, Ref: "main"}}}}
		_, err := manifest.Resolve(t.Context(), m, manifest.Options{CacheDir: t.TempDir()})
		if err == nil || (strings.Contains(repo, "password") && !strings.Contains(err.Error(), "credentials")) {
			t.Errorf("%s: %v", repo, err)
		}
	}
	// A token is not sent over anything but HTTP, and never shown.
	m := &spec.Manifest{Entries: []spec.Entry{{Kind: spec.EntryGitRepo, Path: "r", GitRepo: &spec.GitRepoEntry{
		Repo: "git@host:x/y", Ref: "main", Token: value.NewSecret("t", func(context.Context) (string, error) { return "canary", nil }),
	}}}}
	if _, err := manifest.Resolve(t.Context(), m, manifest.Options{CacheDir: t.TempDir()}); err == nil || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}
