// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/sdk/guest/fsys"
)

// workspace opens a directory as a guest does.
func workspace(t testing.TB, dir string) *fsys.FS {
	t.Helper()
	fs, err := fsys.Open(dir, fsys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

func repo(t testing.TB, dir string) *snapshot.Repo {
	t.Helper()
	f, err := objects.NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := snapshot.Open(t.Context(), f, snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func take(t testing.TB, r *snapshot.Repo, dir string, o snapshot.TakeOptions) (*snapshot.Record, *snapshot.Index) {
	t.Helper()
	rec, x, err := r.Take(t.Context(), workspace(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	return rec, x
}

func restore(t testing.TB, r *snapshot.Repo, rec *snapshot.Record) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := r.Restore(t.Context(), rec, workspace(t, dir), snapshot.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// file is what a file system knows of a file.
type file struct {
	Mode     uint32
	UID, GID uint32
	Size     int64
	Mtime    int64
	Target   string
	Sum      string
	Twin     string // first path of the same file
}

// listing describes a tree; what snapshots do not hold is left out.
func listing(t testing.TB, root string) map[string]file {
	t.Helper()
	out, first := map[string]file{}, map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		f := file{Mode: st.Mode, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano()}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			if f.Target, err = os.Readlink(path); err != nil {
				return err
			}
		case unix.S_IFREG:
			f.Size = st.Size
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			f.Sum = hex.EncodeToString(sum[:])
		case unix.S_IFDIR:
		default:
			return nil
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if first[st.Ino] == "" {
				first[st.Ino] = rel
			}
			f.Twin = first[st.Ino]
		}
		out[rel] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// must is for steps of a test that only fail when the machine does.
func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b) // never fails
	return b
}

// nasty makes what real workspaces hold, and what is hard to keep.
func nasty(t testing.TB, sparseSize int64) string {
	t.Helper()
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	write := func(name string, b []byte, mode os.FileMode) {
		must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755), os.WriteFile(at(name), b, 0o600), os.Chmod(at(name), mode))
	}
	write("a/hello", []byte("hello\n"), 0o644)
	write("a/empty", nil, 0o600)
	write("a/script", []byte("#!/bin/sh\n"), 0o755)
	write("a/read-only", []byte("ro"), 0o444)
	write("a/no-rights", []byte("none"), 0)
	write("large", random(1, 3<<20+17), 0o640)
	write("exactly", random(2, 512<<10), 0o644)
	write("zeros", make([]byte, 300<<10), 0o644)
	write("z/first", []byte("linked"), 0o644)
	must(t, os.MkdirAll(at("b"), 0o755), os.Link(at("z/first"), at("b/second")), os.Link(at("z/first"), at("b/third")))
	must(t, os.Symlink("/nowhere/at/all", at("dangling")), os.Symlink("/etc/hostname", at("absolute")), os.Symlink("../../..", at("a/up")))
	must(t, os.MkdirAll(at("empty/dir"), 0o700), os.MkdirAll(at("sticky"), 0o755), os.Chmod(at("sticky"), 0o777|os.ModeSticky))
	write(strings.Repeat("n", 255), []byte("long"), 0o644)
	write("not-utf8-\xff\xfe", []byte("bytes"), 0o644)
	write("ünï\ncode [*?]!#", []byte("names"), 0o644)
	write("-x", []byte("dash"), 0o644)
	write("a-b/c", []byte("order"), 0o644)
	write("a.b", []byte("order"), 0o644)
	deep := strings.Repeat("d/", 120) + "end"
	write(deep, []byte("deep"), 0o644)
	for i := range 300 {
		write(fmt.Sprintf("many/%d/%d", i%7, i), fmt.Appendf(nil, "file %d", i), 0o644)
	}
	f, err := os.OpenFile(at("sparse"), os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	for _, off := range []int64{0, 300 << 10, 7<<20 + 4096, sparseSize - 10} {
		_, err := f.WriteAt([]byte("0123456789"), off)
		must(t, err)
	}
	must(t, f.Close())
	must(t, os.Truncate(at("a/empty"), 0))
	h, err := os.OpenFile(at("all-hole"), os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err, h.Truncate(10<<20), h.Close())
	must(t, unix.Mkfifo(at("fifo"), 0o644))
	l, err := net.Listen("unix", at("socket"))
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if os.Geteuid() == 0 {
		must(t, os.Lchown(at("a/hello"), 12345, 54321), os.Lchown(at("dangling"), 7, 8), os.Lchown(at("b"), 1, 2))
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	must(t, os.Chtimes(at("a/script"), old, old), os.Chtimes(at("a"), old, old), os.Chtimes(at("large"), time.Unix(-5, 5), time.Unix(-5, 5)))
	return root
}

func blocks(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Blocks * 512
}

// settle waits until what was changed last is older than a file system's clock can hide.
func settle(t testing.TB, dir string) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	newest := st.Ctim.Nano()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			newest = max(newest, st.Ctim.Nano())
		}
		return err
	}))
	for time.Now().UnixNano()-newest < 60e6 {
		time.Sleep(time.Millisecond)
	}
}

func objectsOf(t testing.TB, dir, kind string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(dir, kind))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, kind, e.Name()))
		must(t, err)
		out[e.Name()] = bytes.Clone(b)
	}
	return out
}
