// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func importTar(t testing.TB, r *snapshot.Repo, b []byte) (*snapshot.Record, *snapshot.Index, error) {
	t.Helper()
	return r.Import(t.Context(), bytes.NewReader(b), snapshot.ImportOptions{})
}

// What is exported is what GNU tar unpacks, and what is imported again.
func TestExport(t *testing.T) {
	dir, store := nasty(t, 8<<20), t.TempDir()
	r := repo(t, store)
	rec, x := take(t, r, dir, snapshot.TakeOptions{})
	for _, compress := range []bool{false, true} {
		var b bytes.Buffer
		must(t, r.Export(t.Context(), rec, &b, compress))
		again, y, err := importTar(t, repo(t, t.TempDir()), b.Bytes())
		must(t, err)
		y.Left = x.Left // an archive does not tell
		if again.Bytes != rec.Bytes || again.Entries != rec.Entries {
			t.Errorf("%+v", again)
		}
		for c := range snapshot.Diff(x, y) {
			t.Errorf("%+v", c)
		}
		if os.Geteuid() != 0 {
			continue
		}
		out := t.TempDir()
		cmd := exec.Command("tar", "-x", "-p", "--numeric-owner", "-C", out)
		if compress {
			cmd.Args = append(cmd.Args, "--zstd")
		}
		cmd.Stdin = &b
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		if d := cmp.Diff(listing(t, dir), listing(t, out)); d != "" {
			t.Error(d)
		}
	}
}

// Archives of other programs.
func TestImportForeign(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("sub/empty"), 0o750), os.WriteFile(at("sub/file"), []byte("content"), 0o640), os.Link(at("sub/file"), at("link")),
		os.Symlink("/abs", at("sub/sym")), os.WriteFile(at(strings.Repeat("l", 200)), []byte("long name"), 0o644),
		os.WriteFile(at("ünï"), []byte("utf8"), 0o755), os.WriteFile(at("large"), random(9, 700<<10), 0o644))
	sparse, err := os.OpenFile(at("sparse"), os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = sparse.WriteAt([]byte("end"), 3<<20)
	must(t, err, sparse.Close())
	want := listing(t, dir)
	seconds := func(m map[string]file) map[string]file {
		for k, f := range m {
			f.Mtime /= int64(time.Second)
			m[k] = f
		}
		return m
	}
	python := `import tarfile,sys
t=tarfile.open(fileobj=sys.stdout.buffer,mode="w|",format=tarfile.%s)
t.add(".")
t.close()`
	for name, argv := range map[string][]string{
		"gnu":         {"tar", "-c", "."},
		"gnu sparse":  {"tar", "-c", "-S", "."},
		"gnu zstd":    {"tar", "-c", "--zstd", "."},
		"gnu pax":     {"tar", "-c", "-S", "--format=pax", "."},
		"gnu pax 0.1": {"tar", "-c", "-S", "--format=pax", "--sparse-version=0.1", "."},
		"gnu names":   {"sh", "-c", "tar -c *"},
		"bsdtar":      {"bsdtar", "-c", "-f", "-", "."},
		"bsdtar pax":  {"bsdtar", "-c", "--format", "pax", "-f", "-", "."},
		"busybox":     {"busybox", "tar", "-c", "-f", "-", "."},
		"python gnu":  {"python3", "-c", strings.ReplaceAll(python, "%s", "GNU_FORMAT")},
		"python pax":  {"python3", "-c", strings.ReplaceAll(python, "%s", "PAX_FORMAT")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				t.Skipf("%s is not installed", argv[0])
			}
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir = dir
			archive, err := cmd.Output()
			if err != nil {
				t.Skipf("%v: %v", argv, err)
			}
			r := repo(t, t.TempDir())
			rec, x, err := importTar(t, r, archive)
			must(t, err)
			if len(x.Left) > 0 {
				t.Errorf("left out: %v", x.Left)
			}
			got, want := seconds(listing(t, restore(t, r, rec))), seconds(want)
			if name == "gnu names" {
				delete(got, ".")
				want["."] = file{}
				delete(want, ".")
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if !bytes.Contains(archive, []byte("content")) && name != "gnu zstd" {
				t.Error("the test's archive is empty")
			}
		})
		want = listing(t, dir)
	}
}

func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		must(t, w.WriteHeader(h))
		_, err := io.CopyN(w, bytes.NewReader(make([]byte, h.Size)), h.Size)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func TestHostileArchives(t *testing.T) {
	link := func(name, to string, kind byte) *tar.Header {
		return &tar.Header{Name: name, Linkname: to, Typeflag: kind}
	}
	good := archive(t, &tar.Header{Name: "a", Size: 1000})
	store := t.TempDir()
	r := repo(t, store)
	for what, in := range map[string]struct {
		archive []byte
		code    errs.Code
	}{
		"up":              {archive(t, &tar.Header{Name: "a/../../x"}), errs.ArchiveInvalid},
		"absolute":        {archive(t, &tar.Header{Name: "/etc/passwd"}), errs.ArchiveInvalid},
		"twice":           {archive(t, &tar.Header{Name: "a"}, &tar.Header{Name: "./a"}), errs.ArchiveInvalid},
		"file and dir":    {archive(t, &tar.Header{Name: "a"}, &tar.Header{Name: "a/", Typeflag: tar.TypeDir}), errs.ArchiveInvalid},
		"below a file":    {archive(t, &tar.Header{Name: "a"}, &tar.Header{Name: "a/b"}), errs.ArchiveInvalid},
		"below a link":    {archive(t, link("a", "/etc", tar.TypeSymlink), &tar.Header{Name: "a/passwd"}), errs.ArchiveInvalid},
		"link before":     {archive(t, &tar.Header{Name: "a/x"}, link("a", "/etc", tar.TypeSymlink)), errs.ArchiveInvalid},
		"hard link out":   {archive(t, link("a", "../../etc/passwd", tar.TypeLink)), errs.ArchiveInvalid},
		"hard link cycle": {archive(t, link("a", "b", tar.TypeLink), link("b", "a", tar.TypeLink)), errs.ArchiveInvalid},
		"hard link self":  {archive(t, link("a", "a", tar.TypeLink)), errs.ArchiveInvalid},
		"hard link none":  {archive(t, link("a", "none", tar.TypeLink)), errs.ArchiveInvalid},
		"hard link dir":   {archive(t, &tar.Header{Name: "d/", Typeflag: tar.TypeDir}, link("a", "d", tar.TypeLink)), errs.ArchiveInvalid},
		"empty":           {nil, errs.ArchiveInvalid},
		"no archive":      {bytes.Repeat([]byte("text"), 1000), errs.ArchiveInvalid},
		"cut in content":  {good[:600], errs.ArchiveInvalid},
		"cut before end":  {good[:1536], errs.ArchiveInvalid},
		"gzip":            {[]byte("\x1f\x8b\x08\x00rest"), errs.ArchiveInvalid},
		"broken zstd":     {[]byte("\x28\xb5\x2f\xfdgarbage"), errs.ArchiveInvalid},
		"zstd bomb":       {zstdBomb(t, 64<<20), errs.ArchiveLimit},
		"large":           {archive(t, &tar.Header{Name: "a", Size: 3 << 20}), errs.ArchiveLimit},
		"many":            {archive(t, &tar.Header{Name: "1"}, &tar.Header{Name: "2"}, &tar.Header{Name: "3"}, &tar.Header{Name: "4"}), errs.ArchiveLimit},
		"size that lies":  {good[:512:512], errs.ArchiveInvalid},
	} {
		_, _, err := r.Import(t.Context(), bytes.NewReader(in.archive), snapshot.ImportOptions{
			Limits: driver.TreeLimits{MaxExtractedBytes: 2 << 20, MaxMembers: 3},
		})
		if !errors.Is(err, in.code) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if recs, err := r.List(t.Context()); err != nil || len(recs) > 0 {
		t.Errorf("%v, %v", recs, err)
	}
	// Devices and FIFOs are left out, links out of the tree are only data.
	rec, x, err := importTar(t, r, archive(t, &tar.Header{Name: "null", Typeflag: tar.TypeChar}, &tar.Header{Name: "f", Typeflag: tar.TypeFifo}, link("l", "../../etc", tar.TypeSymlink)))
	if err != nil || len(x.Left) != 2 || rec.Entries != 2 {
		t.Errorf("%+v, %+v, %v", rec, x, err)
	}
}

// zstdBomb is many bytes of nothing in few.
func zstdBomb(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	must(t, err)
	must(t, z.Close())
	b.Reset()
	z.Reset(&b)
	w := tar.NewWriter(z)
	must(t, w.WriteHeader(&tar.Header{Name: "a", Size: int64(n)}))
	_, err = io.CopyN(w, zeroReader{}, int64(n))
	must(t, err, w.Close(), z.Close())
	return b.Bytes()
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// memory is a store for the fuzzer, which has no time for disks.
type memory struct {
	mu   sync.Mutex
	objs map[string][]byte
}

func (*memory) Where() string { return "memory" }

func (m *memory) Put(_ context.Context, name string, data []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.objs[name]; there {
		return false, objects.CheckName(name)
	}
	m.objs[name] = bytes.Clone(data)
	return true, objects.CheckName(name)
}

func (m *memory) Open(_ context.Context, name string, off, n int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objs[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if n < 0 {
		n = int64(len(b)) - off
	}
	return io.NopCloser(bytes.NewReader(b[off : off+n])), nil
}

func (m *memory) List(_ context.Context, prefix string) iter.Seq2[objects.Info, error] {
	return func(yield func(objects.Info, error) bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for name, b := range m.objs {
			if strings.HasPrefix(name, prefix) && !yield(objects.Info{Name: name, Size: int64(len(b))}, nil) {
				return
			}
		}
	}
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objs, name)
	return nil
}

// Whatever an archive holds, it is refused, or it makes a snapshot that can be loaded and stays within its directory.
func FuzzImport(f *testing.F) {
	f.Add(archive(f, &tar.Header{Name: "a", Size: 10}, &tar.Header{Name: "b", Linkname: "a", Typeflag: tar.TypeLink}, &tar.Header{Name: "d/e/", Typeflag: tar.TypeDir}))
	f.Add(archive(f, &tar.Header{Name: "s", Linkname: "/x", Typeflag: tar.TypeSymlink}, &tar.Header{Name: "t", Linkname: "s", Typeflag: tar.TypeLink}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		r, err := snapshot.Open(t.Context(), &memory{objs: map[string][]byte{}}, snapshot.Options{})
		must(t, err)
		rec, x, err := r.Import(t.Context(), bytes.NewReader(b), snapshot.ImportOptions{Limits: driver.TreeLimits{MaxExtractedBytes: 1 << 20, MaxMembers: 100}})
		if err != nil {
			return
		}
		y, err := r.Load(t.Context(), rec)
		if err != nil {
			t.Fatal(err)
		}
		for c := range snapshot.Diff(x, y) {
			t.Errorf("%+v", c)
		}
	})
}
