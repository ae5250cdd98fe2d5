// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/fsys"
)

func TestEverythingComesBack(t *testing.T) {
	dir, store := nasty(t, 1<<30), t.TempDir()
	r := repo(t, store)
	rec, x := take(t, r, dir, snapshot.TakeOptions{Series: "s"})
	want := listing(t, dir)
	var left []string
	for _, l := range x.Left {
		left = append(left, l.Path+": "+strings.SplitN(l.Reason, ":", 2)[0])
	}
	if d := cmp.Diff([]string{"fifo: FIFO", "socket: socket"}, left); d != "" {
		t.Error(d)
	}
	back := restore(t, repo(t, store), rec)
	if d := cmp.Diff(want, listing(t, back)); d != "" {
		t.Error(d)
	}
	if n := blocks(t, filepath.Join(back, "sparse")); n > 1<<20 {
		t.Errorf("the file with holes takes %d bytes", n)
	}
	if n := len(objectsOf(t, store, "packs")); n != 1 {
		t.Errorf("%d packs for a few small files", n)
	}
	again, _ := take(t, r, back, snapshot.TakeOptions{Series: "s"})
	if again.New > 64<<10 {
		t.Errorf("the same workspace again brought %d new bytes", again.New)
	}
	if again.Parent != rec.ID {
		t.Errorf("its parent is %q", again.Parent)
	}
}

// counting counts what is exported.
type counting struct {
	*fsys.FS
	bytes int64
	lists int
}

func (c *counting) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	return c.FS.Export(ctx, opts, writerFunc(func(p []byte) (int, error) {
		c.bytes += int64(len(p))
		return w.Write(p)
	}))
}

func (c *counting) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	c.lists++
	return c.FS.List(ctx, path, opts)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOnlyChangesAreRead(t *testing.T) {
	dir, store := nasty(t, 8<<20), t.TempDir()
	r := repo(t, store)
	o := snapshot.TakeOptions{Series: "s", Session: "one", Versions: true}
	settle(t, dir)
	take(t, r, dir, o)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, step := range []struct {
		name   string
		change func()
		most   int64
	}{
		{"nothing", func() {}, 4 << 10},
		{"one file", func() { must(t, os.WriteFile(at("many/3/3"), []byte("other"), 0o644)) }, 8 << 10},
		{"odd names", func() {
			must(t, os.WriteFile(at("not-utf8-\xff\xfe"), []byte("BYTES"), 0o644), os.WriteFile(at("ünï\ncode [*?]!#"), []byte("NAMES"), 0o644))
		}, 16 << 10},
		{"a mode", func() { must(t, os.Chmod(at("a/hello"), 0o600)) }, 8 << 10},
		{"the same size and time", func() {
			fi, err := os.Stat(at("a/script"))
			must(t, err, os.WriteFile(at("a/script"), []byte("#!/bin/xx\n"), 0o755), os.Chtimes(at("a/script"), fi.ModTime(), fi.ModTime()))
		}, 8 << 10},
		{"gone and new", func() {
			must(t, os.Remove(at("a.b")), os.RemoveAll(at("many/4")), os.Mkdir(at("new"), 0o700), os.WriteFile(at("new/file"), []byte("x"), 0o600),
				os.Rename(at("exactly"), at("moved")), os.Remove(at("dangling")), os.Symlink("x", at("dangling")))
		}, 1 << 20},
		{"one more link", func() { must(t, os.Link(at("a/hello"), at("hello2"))) }, 16 << 10},
		{"one link less", func() { must(t, os.Remove(at("b/second"))) }, 16 << 10},
		{"a file becomes a directory", func() { must(t, os.Remove(at("-x")), os.MkdirAll(at("-x/y"), 0o755)) }, 8 << 10},
		{"a directory becomes a file", func() { must(t, os.RemoveAll(at("empty")), os.WriteFile(at("empty"), nil, 0o644)) }, 8 << 10},
	} {
		step.change()
		settle(t, dir)
		src := &counting{FS: workspace(t, dir)}
		rec, x, err := r.Take(t.Context(), src, o)
		must(t, err)
		if src.bytes > step.most || src.lists != 1 {
			t.Errorf("%s: %d bytes were exported with %d listings", step.name, src.bytes, src.lists)
		}
		if d := cmp.Diff(listing(t, dir), listing(t, restore(t, r, rec))); d != "" {
			t.Errorf("%s: %s", step.name, d)
		}
		if len(x.Left) != 2 {
			t.Errorf("%s: left out: %v", step.name, x.Left)
		}
	}
	// A change that comes right after a snapshot, with the size and the time of the one before it.
	for i := range 5 {
		var recs []*snapshot.Record
		for _, text := range []string{"one", "two"} {
			when := time.Unix(int64(i), 0)
			must(t, os.WriteFile(at("many/1/1"), []byte(text), 0o644), os.Chtimes(at("many/1/1"), when, when))
			rec, _ := take(t, r, dir, o)
			recs = append(recs, rec)
		}
		if b, err := os.ReadFile(filepath.Join(restore(t, r, recs[1]), "many/1/1")); err != nil || string(b) != "two" {
			t.Errorf("%q, %v", b, err)
		}
	}
}

func TestExcludes(t *testing.T) {
	dir, store := nasty(t, 8<<20), t.TempDir()
	r := repo(t, store)
	settle(t, dir)
	o := snapshot.TakeOptions{Series: "s", Session: "one", Versions: true, Exclude: []string{"many/", "/b/second", "*.b", "/z/"}}
	for range 2 { // whole, and from a listing
		rec, _ := take(t, r, dir, o)
		want := listing(t, dir)
		for path := range want {
			if strings.HasPrefix(path, "many") || path == "b/second" || path == "a.b" || path == "z" || strings.HasPrefix(path, "z/") {
				delete(want, path)
			}
		}
		third := want["b/third"]
		third.Twin = ""
		want["b/third"] = third
		if d := cmp.Diff(want, listing(t, restore(t, r, rec))); d != "" {
			t.Error(d)
		}
	}
	o.Exclude = nil
	rec, _ := take(t, r, dir, o)
	if d := cmp.Diff(listing(t, dir), listing(t, restore(t, r, rec))); d != "" {
		t.Error(d)
	}
	o.Exclude = []string{"/b/second"}
	rec, _ = take(t, r, dir, o)
	if _, there := listing(t, restore(t, r, rec))["b/third"]; !there {
		t.Error("a hard link is lost when the first one is left out")
	}
}

// TestDamage flips bytes and cuts objects off: nothing that is damaged is ever restored, and the workspace stays.
func TestDamage(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "random"), random(3, 700<<10), 0o644), os.WriteFile(filepath.Join(dir, "text"), []byte(strings.Repeat("text ", 1000)), 0o644))
	rec, _ := take(t, repo(t, store), dir, snapshot.TakeOptions{})
	for _, kind := range []string{"packs", "snapshots"} {
		for name, b := range objectsOf(t, store, kind) {
			path := filepath.Join(store, kind, name)
			damages := map[string][]byte{"cut": b[:len(b)/2], "empty": {}}
			for at := 0; at < len(b); at += max(1, len(b)/40) {
				flipped := slices.Clone(b)
				flipped[at] ^= 4
				damages[fmt.Sprintf("byte %d", at)] = flipped
			}
			for what, damaged := range damages {
				must(t, os.WriteFile(path, damaged, 0o600))
				broken := repo(t, store)
				back := t.TempDir()
				must(t, os.WriteFile(filepath.Join(back, "mine"), []byte("keep"), 0o600))
				got, err := broken.Get(t.Context(), rec.ID)
				if err == nil {
					_, err = broken.Restore(t.Context(), got, workspace(t, back), snapshot.RestoreOptions{})
				}
				corrupt, isCorrupt := errors.AsType[*chunks.Corrupt](err)
				if err == nil || !isCorrupt || !strings.Contains(err.Error(), name) {
					t.Errorf("%s %s, %s: %v", kind, name, what, err)
				} else if corrupt.Object != kind+"/"+name {
					t.Errorf("%s %s, %s: it names %s", kind, name, what, corrupt.Object)
				}
				if entries, _ := os.ReadDir(back); len(entries) != 1 || entries[0].Name() != "mine" {
					t.Errorf("%s %s, %s: the workspace was changed: %v", kind, name, what, entries)
				}
				problems, err := broken.Verify(t.Context(), nil)
				if err != nil || len(problems) == 0 {
					t.Errorf("%s %s, %s: verify found %v, %v", kind, name, what, problems, err)
				}
			}
			must(t, os.WriteFile(path, b, 0o600))
		}
	}
	whole := repo(t, store)
	if problems, err := whole.Verify(t.Context(), nil); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	must(t, os.Remove(filepath.Join(store, "snapshots", rec.ID)))
	if _, err := whole.Find(t.Context(), rec.ID); !errors.Is(err, errs.SnapshotUnusable) {
		t.Errorf("%v", err)
	}
}

// A full disk: what was there stays.
func TestFullDisk(t *testing.T) {
	small := tmpfs(t, "size=2m")
	dir, store := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "large"), random(4, 4<<20), 0o644), os.WriteFile(filepath.Join(small, "mine"), []byte("keep"), 0o644))
	r := repo(t, store)
	rec, _ := take(t, r, dir, snapshot.TakeOptions{})
	before := listing(t, small)
	_, err := r.Restore(t.Context(), rec, workspace(t, small), snapshot.RestoreOptions{})
	if !errors.Is(err, errs.SnapshotRestore) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("%v", err)
	}
	after := listing(t, small)
	delete(before, ".")
	delete(after, ".")
	if d := cmp.Diff(before, after); d != "" {
		t.Error(d)
	}
	// The store's disk is full: no snapshot, and what was there holds.
	full := repo(t, tmpfs(t, "size=3m"))
	if _, _, err := full.Take(t.Context(), workspace(t, dir), snapshot.TakeOptions{}); !errors.Is(err, errs.SnapshotPersist) {
		t.Errorf("%v", err)
	}
	if recs, err := full.List(t.Context()); err != nil || len(recs) > 0 {
		t.Errorf("%v, %v", recs, err)
	}
}

func TestSharedOnce(t *testing.T) {
	store := t.TempDir()
	r := repo(t, store)
	var first, rest int64
	for i := range 20 {
		dir := t.TempDir()
		for j := range 200 {
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(j)), random(uint64(j), 5000), 0o644))
		}
		rec, _ := take(t, r, dir, snapshot.TakeOptions{Series: fmt.Sprint(i)})
		if i == 0 {
			first = rec.Stored
		} else {
			rest += rec.Stored
		}
	}
	if first < 200*5000 || rest > first/2 {
		t.Errorf("the first took %d bytes, the 19 others %d", first, rest)
	}
}

func TestNamesAndIDs(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	now := time.Now()
	r := repo(t, store)
	one, _ := take(t, r, dir, snapshot.TakeOptions{Series: "s"})
	two, _ := take(t, r, dir, snapshot.TakeOptions{Series: "s"})
	if one.ID == two.ID || !two.Created.After(now) {
		t.Errorf("%+v, %+v", one, two)
	}
	must(t, r.Name(t.Context(), one.ID, "good.one-1"), r.Name(t.Context(), two.ID, "good.one-1"), r.Name(t.Context(), two.ID, "other"))
	for _, what := range []string{"good.one-1", "other", two.ID, two.ID[:12]} {
		if got, err := repo(t, store).Find(t.Context(), what); err != nil || got.ID != two.ID {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	if len(objectsOf(t, store, "names")) != 2 {
		t.Error("a name that was moved is there twice")
	}
	for _, name := range []string{"", "latest", "UP", "a/b", "..", "abc123", "x y", strings.Repeat("x", 64)} {
		if err := r.Name(t.Context(), one.ID, name); !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, what := range []string{"", "no", "../x", "ffff", one.ID + "0"} {
		if _, err := r.Find(t.Context(), what); err == nil {
			t.Errorf("%q was found", what)
		}
	}
	if last, err := r.Latest(t.Context(), "s"); err != nil || last.ID != two.ID {
		t.Errorf("%v, %v", last, err)
	}
	must(t, r.Unname(t.Context(), "other"), r.Remove(t.Context(), two))
	if names, err := r.Names(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestRetentionAndSweep(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	r := repo(t, store)
	var recs []*snapshot.Record
	for i := range 5 {
		must(t, os.WriteFile(filepath.Join(dir, "changing"), random(uint64(i), 300<<10), 0o644), os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), random(uint64(10+i), 40<<10), 0o644))
		rec, _ := take(t, r, dir, snapshot.TakeOptions{Series: "s"})
		recs = append(recs, rec)
	}
	must(t, r.Name(t.Context(), recs[0].ID, "first"))
	gone, err := r.Prune(t.Context(), "s", snapshot.Retention{Keep: 2})
	if err != nil || len(gone) != 2 {
		t.Fatalf("%d gone, %v", len(gone), err)
	}
	if gone, err := r.Prune(t.Context(), "other", snapshot.Retention{Keep: 1}); err != nil || len(gone) > 0 {
		t.Errorf("%v, %v", gone, err)
	}
	dry, err := r.Sweep(t.Context(), true)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(store, "packs", ".new-left"), []byte("x"), 0o600))
	swept, err := r.Sweep(t.Context(), false)
	must(t, err)
	if dry.Packs != swept.Packs || swept.Bytes < 500<<10 || swept.Packs != 2 {
		t.Errorf("%+v, %+v", dry, swept)
	}
	if _, err := os.Stat(filepath.Join(store, "packs", ".new-left")); err == nil {
		t.Error("what a writer left is still there")
	}
	for _, rec := range []*snapshot.Record{recs[0], recs[3], recs[4]} {
		restore(t, repo(t, store), rec)
	}
	if d := cmp.Diff(listing(t, dir), listing(t, restore(t, r, recs[4]))); d != "" {
		t.Error(d)
	}
	if problems, err := r.Verify(t.Context(), nil); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if gone, err := r.Prune(t.Context(), "s", snapshot.Retention{MaxAge: time.Nanosecond}); err != nil || len(gone) != 1 {
		t.Errorf("%v, %v", gone, err)
	}
	// A record that cannot be read keeps its chunks.
	must(t, os.WriteFile(filepath.Join(store, "snapshots", recs[4].ID), []byte("{}"), 0o600))
	if _, err := r.Sweep(t.Context(), false); err == nil || !strings.Contains(err.Error(), recs[4].ID) {
		t.Errorf("%v", err)
	}
}

func TestDiff(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("same"), []byte("x"), 0o644), os.WriteFile(at("gone"), []byte("x"), 0o644), os.WriteFile(at("other"), []byte("x"), 0o644),
		os.WriteFile(at("mode"), []byte("x"), 0o644), os.Mkdir(at("dir"), 0o755))
	r := repo(t, store)
	rec, x := take(t, r, dir, snapshot.TakeOptions{})
	must(t, os.Remove(at("gone")), os.WriteFile(at("other"), []byte("yy"), 0o644), os.Chmod(at("mode"), 0o600), os.WriteFile(at("dir/new"), []byte("123"), 0o644))
	now, err := r.Scan(t.Context(), workspace(t, dir), snapshot.TakeOptions{})
	must(t, err)
	want := []snapshot.Change{
		{Path: "dir/new", Kind: snapshot.Added, New: 3},
		{Path: "gone", Kind: snapshot.Removed, Old: 1},
		{Path: "mode", Kind: snapshot.Meta, Old: 1, New: 1},
		{Path: "other", Kind: snapshot.Modified, Old: 1, New: 2},
	}
	if d := cmp.Diff(want, slices.Collect(snapshot.Diff(x, now))); d != "" {
		t.Error(d)
	}
	if n := len(objectsOf(t, store, "packs")); n != 1 {
		t.Errorf("looking stored something: %d packs", n)
	}
	back, err := r.Load(t.Context(), rec)
	if err != nil || len(slices.Collect(snapshot.Diff(x, back))) > 0 {
		t.Errorf("what was taken is not what is read: %v", err)
	}
}

func TestForeignFolder(t *testing.T) {
	store := t.TempDir()
	take(t, repo(t, store), t.TempDir(), snapshot.TakeOptions{})
	must(t, os.WriteFile(filepath.Join(store, "format"), []byte("berth snapshots 2\n"), 0o600))
	defer func() {
		if !t.Failed() {
			t.Log("refused as it should be")
		}
	}()
	if _, err := openRepo(t, store); !errors.Is(err, errs.SnapshotUnusable) {
		t.Errorf("%v", err)
	}
}
