// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/tree"
)

// member is one entry of an archive made for a test.
type member struct {
	tar.Header
	body string
}

func file(name, body string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body))}, body}
}

func dir(name string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func link(name, target string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

func hard(name, target string) member {
	return member{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}}
}

func special(name string, kind byte) member {
	return member{Header: tar.Header{Typeflag: kind, Name: name, Mode: 0o644}}
}

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&m.Header); err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if _, err := io.WriteString(w, m.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// jail is a directory to import into, with a neighbour that must not change.
type jail struct{ root, outside string }

func newJail(t testing.TB) jail {
	t.Helper()
	top := t.TempDir()
	j := jail{top + "/in", top + "/out"}
	for _, d := range []string{j.root, j.outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(j.outside+"/victim", []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j jail) check(t testing.TB) {
	t.Helper()
	got := map[string]string{}
	for _, d := range []string{j.outside, filepath.Dir(j.root)} {
		entries, err := os.ReadDir(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			got[e.Name()] = ""
		}
	}
	b, err := os.ReadFile(j.outside + "/victim")
	if err != nil {
		t.Fatal(err)
	}
	got["victim"] = string(b)
	if d := cmp.Diff(map[string]string{"in": "", "out": "", "victim": "untouched"}, got); d != "" {
		t.Errorf("outside of the root has changed:\n%s", d)
	}
	var st unix.Stat_t
	if err := unix.Stat(j.outside+"/victim", &st); err != nil || st.Nlink != 1 || st.Mode&0o7777 != 0o600 {
		t.Errorf("the file outside has %d names and mode %o (%v)", st.Nlink, st.Mode, err)
	}
}

func TestHostileArchives(t *testing.T) {
	deep := strings.Repeat("d/", 300)
	for _, c := range []struct {
		name    string
		members []member
		prepare func(root string) error
		limits  driver.TreeLimits
		want    errs.Code // "" = accepted
		member  string    // that the error names
		skipped int
	}{
		{name: "absolute name", members: []member{file("/etc/x", "x")}, want: errs.ArchiveInvalid, member: "/etc/x"},
		{name: "dot dot", members: []member{file("a/../../out/victim", "x")}, want: errs.ArchiveInvalid, member: "a/../../out/victim"},
		{name: "dot dot that stays inside", members: []member{file("a/../b", "x")}, want: errs.ArchiveInvalid, member: "a/../b"},
		{name: "only dot dot", members: []member{dir("..")}, want: errs.ArchiveInvalid, member: ".."},
		{name: "the top as a file", members: []member{file(".", "x")}, want: errs.ArchiveInvalid, member: "."},
		{name: "drive and backslashes are bytes", members: []member{file(`C:\..\..\x`, "x"), file(`..\y`, "y")}},
		{name: "through a link to outside", members: []member{link("l", "../out"), file("l/victim", "x")}, want: errs.ArchiveInvalid, member: "l/victim"},
		{name: "through an absolute link", members: []member{link("l", "/tmp"), file("l/berth-escaped", "x")}, want: errs.ArchiveInvalid, member: "l/berth-escaped"},
		{
			name: "through a link that was there", members: []member{file("l/victim", "x")},
			prepare: func(root string) error { return os.Symlink("../out", root+"/l") }, want: errs.NotDirectory, member: "l/victim",
		},
		{
			name: "onto a link that was there", members: []member{file("l", "x")},
			prepare: func(root string) error { return os.Symlink("../out/victim", root+"/l") },
		},
		{
			name: "a directory onto a link that was there", members: []member{dir("l"), file("l/victim", "x")},
			prepare: func(root string) error { return os.Symlink("../out", root+"/l") },
		},
		{name: "file over link of the archive", members: []member{link("l", "../out/victim"), file("l", "x")}, want: errs.ArchiveInvalid, member: "l"},
		{name: "twice", members: []member{file("a", "1"), file("./a", "2")}, want: errs.ArchiveInvalid, member: "./a"},
		{name: "a directory twice", members: []member{dir("a"), file("a/b", "1"), dir("./a/")}},
		{name: "file over directory", members: []member{file("a/b", "1"), file("a", "2")}, want: errs.ArchiveInvalid, member: "a"},
		{name: "directory over file", members: []member{file("a", "1"), dir("a")}, want: errs.ArchiveInvalid, member: "a"},
		{name: "below a file", members: []member{file("a", "1"), file("a/b", "2")}, want: errs.ArchiveInvalid, member: "a/b"},
		{
			name: "file over a directory that was there", members: []member{file("a", "1")},
			prepare: func(root string) error { return os.Mkdir(root+"/a", 0o755) }, want: errs.IsDirectory, member: "a",
		},
		{name: "hard link outside", members: []member{hard("h", "../out/victim")}, want: errs.ArchiveInvalid, member: "h"},
		{name: "absolute hard link", members: []member{hard("h", "/etc/passwd")}, want: errs.ArchiveInvalid, member: "h"},
		{name: "hard link through a link", members: []member{link("l", "../out"), hard("h", "l/victim")}, want: errs.ArchiveInvalid, member: "h"},
		{name: "hard link to a link, then a file", members: []member{link("l", "../out/victim"), hard("h", "l"), file("h/x", "1")}, want: errs.ArchiveInvalid, member: "h/x"},
		{name: "hard link to nothing", members: []member{hard("h", "none")}, want: errs.ArchiveInvalid, member: "h"},
		{name: "hard link to a directory", members: []member{dir("d"), hard("h", "d")}, want: errs.ArchiveInvalid, member: "h"},
		{name: "hard link to itself", members: []member{hard("h", "h")}, want: errs.ArchiveInvalid, member: "h"},
		{name: "link without a target", members: []member{link("l", "")}, want: errs.ArchiveInvalid, member: "l"},
		{name: "devices and FIFOs", members: []member{special("c", tar.TypeChar), special("b", tar.TypeBlock), special("f", tar.TypeFifo), file("a", "1")}, skipped: 3},
		{name: "name of 300 bytes", members: []member{file(strings.Repeat("n", 300), "1")}, want: errs.InvalidArgument, member: strings.Repeat("n", 300)},
		{name: "deep", members: []member{file(deep+"f", "1")}},
		{name: "too many", members: []member{file("a", ""), file("b", ""), file("c", "")}, limits: driver.TreeLimits{MaxMembers: 2}, want: errs.ArchiveLimit, member: "c"},
		{
			name: "too many that are skipped", members: []member{special("a", tar.TypeFifo), special("b", tar.TypeFifo), special("c", tar.TypeFifo)},
			limits: driver.TreeLimits{MaxMembers: 2}, want: errs.ArchiveLimit, member: "c",
		},
		{name: "too many directories that nobody named", members: []member{file("a/b/c/d", "")}, limits: driver.TreeLimits{MaxMembers: 2}, want: errs.ArchiveLimit, member: "a/b/c/d"},
		{name: "too big", members: []member{file("a", "12345"), file("b", "123456")}, limits: driver.TreeLimits{MaxExtractedBytes: 10}, want: errs.ArchiveLimit, member: "b"},
		{name: "just not too big", members: []member{file("a", "12345"), file("b", "12345")}, limits: driver.TreeLimits{MaxExtractedBytes: 10}},
		{name: "too much input", members: []member{file("a", strings.Repeat("x", 1<<20))}, limits: driver.TreeLimits{MaxInputBytes: 1 << 19}, want: errs.ArchiveLimit, member: "a"},
		{name: "host reference that is not allowed", members: []member{{Header: tar.Header{
			Typeflag: tar.TypeReg, Name: "h",
			PAXRecords: map[string]string{driver.PAXSource: "/etc/passwd", driver.PAXSourceID: "1:1:1:1"},
		}}}, want: errs.ArchiveInvalid, member: "h"},
	} {
		for _, replace := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/replace=%v", c.name, replace), func(t *testing.T) {
				j := newJail(t)
				if c.prepare != nil {
					if replace {
						t.Skip("there is nothing when the content is replaced")
					}
					if err := c.prepare(j.root); err != nil {
						t.Fatal(err)
					}
				}
				if replace {
					if err := os.WriteFile(j.root+"/old", []byte("old"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				res, err := importTree(t, j.root, archive(t, c.members...), tree.ImportOptions{Limits: c.limits, Replace: replace})
				j.check(t)
				if got := errs.CodeOf(err); got != c.want {
					t.Fatalf("got %q, want %q: %v", got, c.want, err)
				}
				noTemps(t, j.root)
				if err != nil {
					var e *errs.Error
					if !errors.As(err, &e) || e.Context["member"] != c.member {
						t.Errorf("the error names %q: %v", e.Context["member"], err)
					}
				} else if len(res.Skipped) != c.skipped || res.Members != uint64(len(c.members)-c.skipped) {
					t.Errorf("%+v", res)
				}
				if replace {
					_, statErr := os.Stat(j.root + "/old")
					if gone := errors.Is(statErr, os.ErrNotExist); gone != (err == nil) {
						t.Errorf("old content gone: %v, after %v", gone, err)
					}
				}
			})
		}
	}
}

func noTemps(t testing.TB, root string) {
	t.Helper()
	_ = filepath.WalkDir(root, func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(path, ".berth-tmp-") {
			t.Errorf("left behind: %s", path)
		}
		return nil
	})
}

func TestBrokenStreams(t *testing.T) {
	whole := archive(t, dir("d"), file("d/zero", strings.Repeat("\x00", 512)), file("d/big", strings.Repeat("x", 70_000)), file("d/last", strings.Repeat("\x00", 1024)))
	for n := 0; n < len(whole)-1024; n += 512 * (1 + n/8192*4) {
		root := t.TempDir()
		_, err := importTree(t, root, whole[:n], tree.ImportOptions{})
		if !errors.Is(err, errs.ArchiveInvalid) {
			t.Errorf("cut at %d of %d: %v", n, len(whole), err)
		}
		noTemps(t, root)
	}
	if _, err := importTree(t, t.TempDir(), append(whole, "garbage after the end"...), tree.ImportOptions{}); err != nil {
		t.Errorf("bytes after the end marker: %v", err)
	}
	if _, err := importTree(t, t.TempDir(), []byte(strings.Repeat("no archive ", 100)), tree.ImportOptions{}); !errors.Is(err, errs.ArchiveInvalid) {
		t.Errorf("garbage: %v", err)
	}
	for n := range 2048 {
		for _, boom := range []error{errors.New("connection lost"), io.ErrUnexpectedEOF} {
			if n%256 > 1 {
				continue
			}
			_, err := tree.Import(t.Context(), dirFD(t, t.TempDir()), io.MultiReader(bytes.NewReader(whole[:n]), failing{boom}), tree.ImportOptions{})
			if !errors.Is(err, boom) {
				t.Errorf("an error of the stream after %d bytes: %v", n, err)
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestReplaceIsAllOrNothing(t *testing.T) {
	root := t.TempDir()
	for name, body := range map[string]string{"keep/a": "1", "b": "2"} {
		if err := os.MkdirAll(filepath.Dir(root+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+"/"+name, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := listing(t, root)
	var ino unix.Stat_t
	if err := unix.Stat(root, &ino); err != nil {
		t.Fatal(err)
	}
	whole := archive(t, dir("./"), file("new", "n"), file("keep", "now a file"))
	if _, err := importTree(t, root, whole[:2500], tree.ImportOptions{Replace: true}); !errors.Is(err, errs.ArchiveInvalid) {
		t.Fatal(err)
	}
	after := listing(t, root)
	for _, m := range []map[string]entry{before, after} {
		e := m["."]
		e.Mtime = 0 // entries came and went
		m["."] = e
	}
	if d := cmp.Diff(before, after); d != "" {
		t.Fatalf("a broken archive changed the workspace:\n%s", d)
	}
	if _, err := importTree(t, root, whole, tree.ImportOptions{Replace: true}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 2 || entries[0].Name() != "keep" || entries[1].Name() != "new" {
		t.Errorf("%v, %v", entries, err)
	}
	var now unix.Stat_t
	if err := unix.Stat(root, &now); err != nil || now.Ino != ino.Ino {
		t.Errorf("the directory itself was replaced (%v)", err)
	}
}

func TestModesOwnersAndTimes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	root := t.TempDir()
	when := time.Unix(1_500_000_000, 123_456_789)
	m := func(name string, kind byte, mode int64) member {
		return member{Header: tar.Header{Typeflag: kind, Name: name, Mode: mode, ModTime: when, Uid: 1234, Gid: 4321, Format: tar.FormatPAX, Linkname: map[byte]string{tar.TypeSymlink: "x"}[kind]}}
	}
	data := archive(t, m("d", tar.TypeDir, 0o2750), m("d/x", tar.TypeReg, 0o6755), m("d/s", tar.TypeSymlink, 0o777), m("implicit/y", tar.TypeReg, 0o600), m("closed", tar.TypeDir, 0), m("closed/z", tar.TypeReg, 0))
	if _, err := importTree(t, root, data, tree.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint32{"d": 0o2750, "d/x": 0o755, "d/s": 0o777, "implicit/y": 0o600, "closed": 0, "closed/z": 0} {
		var st unix.Stat_t
		if err := unix.Lstat(root+"/"+name, &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode&0o7777 != mode || st.Uid != 1234 || st.Gid != 4321 || st.Mtim.Nano() != when.UnixNano() {
			t.Errorf("%s: mode %o, owner %d:%d, time %v", name, st.Mode&0o7777, st.Uid, st.Gid, time.Unix(st.Mtim.Unix()))
		}
	}
	uid, gid := uint32(77), uint32(88)
	root = t.TempDir()
	if _, err := importTree(t, root, data, tree.ImportOptions{Owner: &uid, Group: &gid}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/x", "d/s", "implicit", "implicit/y"} {
		var st unix.Stat_t
		if err := unix.Lstat(root+"/"+name, &st); err != nil || st.Uid != uid || st.Gid != gid {
			t.Errorf("%s belongs to %d:%d (%v)", name, st.Uid, st.Gid, err)
		}
	}
}

func TestCancelLeavesNoTemporaryFiles(t *testing.T) {
	for _, replace := range []bool{false, true} {
		root := t.TempDir()
		if err := os.WriteFile(root+"/a", []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		pr, pw := io.Pipe()
		go func() {
			w := tar.NewWriter(pw)
			_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 1 << 30, Mode: 0o600})
			for range 20 {
				_, _ = w.Write(make([]byte, 1<<18))
			}
			cancel(errors.New("enough"))
			_ = pw.CloseWithError(io.ErrClosedPipe)
		}()
		_, err := tree.Import(ctx, dirFD(t, root), pr, tree.ImportOptions{Replace: replace})
		if !errors.Is(err, errs.Canceled) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
		noTemps(t, root)
		if b, _ := os.ReadFile(root + "/a"); string(b) != "old" {
			t.Errorf("the file that was to be replaced holds %q", b)
		}
	}
}

// TestImportUnderAttack lets a process of the sandbox swap directories and links while archives are unpacked.
func TestImportUnderAttack(t *testing.T) {
	j := newJail(t)
	data := archive(t, dir("a"), dir("a/b"), file("a/b/victim", "evil"), file("a/victim", "evil"), link("a/l", "../../out"), hard("a/h", "a/victim"),
		file("a/b/big", strings.Repeat("e", 100_000)))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	// The attacker stays inside itself, whatever its own links say: damage outside is ours.
	sandbox, err := os.OpenRoot(j.root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sandbox.Close() }()
	for _, path := range []string{"a", "a/b", "a/victim"} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = sandbox.Rename(path, path+".away")
				_ = sandbox.Symlink(j.outside, path)
				_ = sandbox.Remove(path)
				_ = sandbox.Rename(path+".away", path)
				_ = sandbox.RemoveAll(path + ".away")
			}
		})
	}
	done, failed := 0, 0
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); done++ {
		if _, err := importTree(t, j.root, data, tree.ImportOptions{Replace: done%2 == 1}); err != nil {
			failed++
		}
	}
	close(stop)
	wg.Wait()
	j.check(t)
	t.Logf("%d imports, %d failed, none escaped", done, failed)
	if done < 10 {
		t.Errorf("only %d imports", done)
	}
}

func FuzzImport(f *testing.F) {
	f.Add(archive(f, dir("d"), file("d/a", "1"), link("d/l", "../x"), hard("h", "d/a")))
	f.Add(archive(f, link("l", ".."), file("l/x", "1")))
	f.Add(archive(f, file("a/../../x", "1"), special("f", tar.TypeFifo)))
	f.Add(archive(f, file(strings.Repeat("p", 200), strings.Repeat("x", 700))))
	f.Add(archive(f, member{tar.Header{Typeflag: tar.TypeReg, Name: "pax", Size: 1, ModTime: time.Unix(1, 5), Format: tar.FormatPAX}, "x"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		const members, size = 20, 1 << 16
		j := newJail(t)
		for _, replace := range []bool{false, true} {
			res, err := importTree(t, j.root, data, tree.ImportOptions{
				Replace: replace, Limits: driver.TreeLimits{MaxMembers: members, MaxExtractedBytes: size, MaxInputBytes: math.MaxUint64},
			})
			j.check(t)
			noTemps(t, j.root)
			if err == nil && (res.Members > members || res.Bytes > size) {
				t.Errorf("limits did not hold: %+v", res)
			}
			var e *errs.Error
			if err != nil && (!errors.As(err, &e) || e.Code == errs.Internal) {
				t.Errorf("untyped error: %v", err)
			}
			var total int64
			_ = filepath.Walk(j.root, func(_ string, fi os.FileInfo, _ error) error {
				if fi != nil && fi.Mode().IsRegular() {
					total += fi.Size()
				}
				return nil
			})
			if total > 2*size {
				t.Errorf("%d bytes were written", total)
			}
		}
	})
}
