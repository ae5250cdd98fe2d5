// SPDX-License-Identifier: Apache-2.0

package fsys_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/fsys"
)

// TestNestedGrants puts a read-only part into the workspace; no way to it may allow writing.
func TestNestedGrants(t *testing.T) {
	top := t.TempDir()
	put(t, top+"/ws/open/f", "1")
	put(t, top+"/ws/data/f", "2")
	put(t, top+"/single", "3")
	must(t, os.Symlink("data", top+"/ws/link"))
	must(t, os.Symlink("/workspace/data", top+"/ws/abs"))
	fs, err := fsys.Open(top+"/ws", fsys.Options{Visible: "/workspace", Grants: []fsys.Grant{
		{Path: "/workspace/data", Dir: top + "/ws/data", ReadOnly: true}, {Path: "/workspace/single", Dir: top + "/single"},
	}})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	w := world{FS: fs}
	for path, want := range map[string]errs.Code{
		"open/f": "", "data/f": errs.ReadOnly, "/workspace/data/f": errs.ReadOnly, "open/../data/f": errs.ReadOnly, "link/f": errs.ReadOnly, "abs/f": errs.ReadOnly,
		"data/new": errs.ReadOnly, "link/../open/f": "", "data/../open/f": "", "single": "", "single/x": errs.NotDirectory,
	} {
		_, err := w.write(t.Context(), path, "new", driver.WriteOptions{})
		code(t, path, err, want)
	}
	if b, _ := os.ReadFile(top + "/single"); string(b) != "new" {
		t.Errorf("the granted file holds %q", b)
	}
	code(t, "remove a granted file", fs.Remove(t.Context(), "single", false, ""), errs.InvalidArgument)
	code(t, "remove a grant", fs.Remove(t.Context(), "data", true, ""), errs.InvalidArgument)
	if got, err := w.read(t.Context(), "link/f"); err != nil || got != "2" {
		t.Errorf("%q, %v", got, err)
	}
	noTemps(t, top)
}

func TestOperationsAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("acting as others needs root")
	}
	top := t.TempDir()
	must(t, os.Chmod(top, 0o755))
	for p := top; len(p) > 1; p = p[:strings.LastIndexByte(p, '/')] {
		if st, err := os.Stat(p); err == nil && st.Mode().Perm()&1 == 0 {
			must(t, os.Chmod(p, st.Mode().Perm()|1)) // the test's own directories
		}
	}
	put(t, top+"/passwd", "root:x:0:0::/:\nann:x:12345:12345::/:\nbob:x:12346:12346::/:")
	put(t, top+"/group", "team:x:500:ann")
	put(t, top+"/ws/root-only", "secret")
	must(t, os.Chmod(top+"/ws/root-only", 0o600))
	put(t, top+"/ws/team", "team")
	must(t, os.Chown(top+"/ws/team", 0, 500))
	must(t, os.Chmod(top+"/ws/team", 0o660))
	must(t, os.Mkdir(top+"/ws/anns", 0o700))
	must(t, os.Chown(top+"/ws/anns", 12345, 12345))
	fs, err := fsys.Open(top+"/ws", fsys.Options{Passwd: top + "/passwd", Group: top + "/group"})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	ctx := t.Context()
	read := func(path, user string) error {
		_, r, err := fs.Open(ctx, path, driver.ReadOptions{User: user})
		if err == nil {
			must(t, r.Close())
		}
		return err
	}
	write := func(path, user string) error {
		_, err := fs.Write(ctx, path, driver.WriteOptions{User: user}, strings.NewReader("by "+user))
		return err
	}
	var wg sync.WaitGroup
	for range 20 { // other threads keep their rights
		wg.Go(func() {
			code(t, "root reads", read("root-only", ""), "")
			code(t, "ann reads root's", read("root-only", "ann"), errs.PermissionDenied)
		})
	}
	wg.Wait()
	code(t, "ann by group", read("team", "ann"), "")
	code(t, "bob without group", read("team", "bob"), errs.PermissionDenied)
	code(t, "ann writes by group, in place", write("team", "ann"), "")
	code(t, "bob writes", write("team", "bob"), errs.PermissionDenied)
	code(t, "ann makes", write("anns/f", "ann"), "")
	code(t, "bob makes", write("anns/g", "bob"), errs.PermissionDenied)
	code(t, "ann in the root's", write("f", "ann"), errs.PermissionDenied)
	code(t, "nobody such", read("team", "carol"), errs.InvalidArgument)
	code(t, "ann mkdir", fs.Mkdir(ctx, "anns/d", 0, false, "ann"), "")
	code(t, "bob removes", fs.Remove(ctx, "anns/f", false, "bob"), errs.PermissionDenied)
	code(t, "ann removes root's", fs.Remove(ctx, "root-only", false, "ann"), errs.PermissionDenied)
	for name, want := range map[string]uint32{"anns/f": 12345, "anns/d": 12345, "team": 0} {
		var st unix.Stat_t
		must(t, unix.Stat(top+"/ws/"+name, &st))
		if st.Uid != want {
			t.Errorf("%s belongs to %d", name, st.Uid)
		}
	}
	var n int
	for _, err := range fs.List(ctx, "anns", driver.ListOptions{User: "bob"}) {
		code(t, "bob lists", err, errs.PermissionDenied)
		n++
	}
	for fi, err := range fs.List(ctx, "anns", driver.ListOptions{User: "ann"}) {
		if err != nil || fi.User != "ann" {
			t.Errorf("%+v, %v", fi, err)
		}
		n++
		break // the lister must end too
	}
	if n != 2 {
		t.Errorf("%d answers", n)
	}
	// The owner is kept when root writes, and by a copy the mode as well.
	code(t, "root writes", write("anns/f", ""), "")
	var st unix.Stat_t
	must(t, unix.Stat(top+"/ws/anns/f", &st))
	if st.Uid != 12345 {
		t.Errorf("root's write took the file away from its owner: %d", st.Uid)
	}
	noTemps(t, top)
}

// mount makes a file system for the test.
func mount(t testing.TB, kind, path, data string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	must(t, os.MkdirAll(path, 0o755))
	if err := unix.Mount(kind, path, kind, 0, data); err != nil {
		t.Skipf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func TestFullDisk(t *testing.T) {
	top := t.TempDir()
	mount(t, "tmpfs", top+"/ws", "size=1m")
	fs, err := fsys.Open(top+"/ws", fsys.Options{})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	w := world{FS: fs}
	_, err = w.write(t.Context(), "f", "old", driver.WriteOptions{})
	must(t, err)
	_, err = w.write(t.Context(), "f", strings.Repeat("x", 2<<20), driver.WriteOptions{})
	code(t, "write", err, errs.NoSpace)
	for _, replace := range []bool{false, true} {
		for _, size := range []int{2 << 20, 60_000} {
			var b bytes.Buffer
			tw := tar.NewWriter(&b)
			for i := range (2 << 20) / size {
				must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint("n", i), Size: int64(size), Mode: 0o644}))
				_, err = tw.Write(make([]byte, size))
				must(t, err)
			}
			must(t, tw.Close())
			_, err = fs.Import(t.Context(), driver.ImportOptions{Replace: replace, Path: "sub"}, &b)
			code(t, "import", err, errs.NoSpace)
			must(t, fs.Remove(t.Context(), "sub", true, ""))
		}
	}
	if got, err := w.read(t.Context(), "f"); err != nil || got != "old" {
		t.Errorf("%q, %v", got, err)
	}
	noTemps(t, top)
}

// TestMountsSurvive has another file system below the workspace: what is in it is neither exported nor removed.
func TestMountsSurvive(t *testing.T) {
	top := t.TempDir()
	must(t, os.Mkdir(top+"/ws", 0o755))
	mount(t, "tmpfs", top+"/ws/a/mnt", "size=1m")
	put(t, top+"/ws/a/mnt/treasure", "t")
	put(t, top+"/ws/a/old", "o")
	put(t, top+"/ws/b/old", "o")
	fs, err := fsys.Open(top+"/ws", fsys.Options{})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	ctx := t.Context()
	var b bytes.Buffer
	must(t, fs.Export(ctx, driver.ExportOptions{}, &b))
	if bytes.Contains(b.Bytes(), []byte("treasure")) || !bytes.Contains(b.Bytes(), []byte(driver.PAXSkippedReason+"=mount point")) {
		t.Error("the export entered the mount, or does not say that it did not")
	}
	put(t, top+"/ws/a/newer", "n")
	_, err = fs.Import(ctx, driver.ImportOptions{Replace: true}, bytes.NewReader(b.Bytes()))
	must(t, err)
	var got []string
	for fi, err := range fs.List(ctx, ".", driver.ListOptions{Recursive: true}) {
		must(t, err)
		got = append(got, fi.Path)
	}
	if want := "a a/mnt a/mnt/treasure a/old b b/old"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	if err := fs.Remove(ctx, "a", true, ""); err == nil {
		t.Error("removed a directory with a mount in it")
	}
	if _, err := os.Stat(top + "/ws/a/mnt/treasure"); err != nil {
		t.Errorf("the mount was emptied: %v", err)
	}
	// Between file systems a move copies.
	put(t, top+"/ws/tree/x/y", "deep")
	must(t, fs.Move(ctx, "tree", "a/mnt/tree", false, ""))
	if body, err := os.ReadFile(top + "/ws/a/mnt/tree/x/y"); err != nil || string(body) != "deep" {
		t.Errorf("%q, %v", body, err)
	}
	if _, err := os.Stat(top + "/ws/tree"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the source is still there: %v", err)
	}
	must(t, unix.Mkfifo(top+"/ws/b/fifo", 0o600))
	code(t, "move a FIFO to another file system", fs.Move(ctx, "b", "a/mnt/b", false, ""), errs.Unsupported)
	if _, err := os.Stat(top + "/ws/b/old"); err != nil {
		t.Errorf("a move that failed removed its source: %v", err)
	}
}

// TestReplaceOnOverlay replaces directories that lie in the lower layer and therefore cannot be renamed.
func TestReplaceOnOverlay(t *testing.T) {
	top := t.TempDir()
	mount(t, "tmpfs", top+"/t", "size=8m")
	for _, d := range []string{"upper", "work"} {
		must(t, os.Mkdir(top+"/t/"+d, 0o755))
	}
	put(t, top+"/t/lower/dir/sub/f", "old")
	put(t, top+"/t/lower/g", "old")
	mount(t, "overlay", top+"/ws", fmt.Sprintf("lowerdir=%s/t/lower,upperdir=%s/t/upper,workdir=%s/t/work", top, top, top))
	fs, err := fsys.Open(top+"/ws", fsys.Options{})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	var b bytes.Buffer
	writeTar(t, &b, "dir/new", "new")
	plain := bytes.Clone(b.Bytes())
	_, err = fs.Import(t.Context(), driver.ImportOptions{Replace: true}, &b)
	must(t, err)
	var got []string
	for fi, err := range fs.List(t.Context(), ".", driver.ListOptions{Recursive: true}) {
		must(t, err)
		got = append(got, fi.Path)
	}
	if strings.Join(got, " ") != "dir dir/new" {
		t.Errorf("%q", got)
	}
	_, err = fs.Import(t.Context(), driver.ImportOptions{}, bytes.NewReader(plain))
	must(t, err)
	must(t, fs.Move(t.Context(), "dir", "moved", false, ""))
}

func TestImportOptions(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	var b bytes.Buffer
	writeTar(t, &b, "f", "1")
	data := b.Bytes()
	for what, c := range map[string]struct {
		opts driver.ImportOptions
		want errs.Code
	}{
		"made when missing": {driver.ImportOptions{Path: "x/y/z"}, ""},
		"a grant":           {driver.ImportOptions{Path: "/rw"}, ""},
		"read only":         {driver.ImportOptions{Path: "/ro"}, errs.ReadOnly},
		"below read only":   {driver.ImportOptions{Path: "/ro/new"}, errs.ReadOnly},
		"outside":           {driver.ImportOptions{Path: "../outside"}, errs.PathEscapes},
		"host references":   {driver.ImportOptions{HostReferences: true}, errs.Unsupported},
		"compression":       {driver.ImportOptions{Compression: "zstd"}, errs.Unsupported},
		"owner":             {driver.ImportOptions{Owner: "no-such-user"}, errs.InvalidArgument},
	} {
		_, err := w.Import(ctx, c.opts, bytes.NewReader(data))
		code(t, what, err, c.want)
	}
	if got, err := w.read(ctx, "x/y/z/f"); err != nil || got != "1" {
		t.Errorf("%q, %v", got, err)
	}
	w.untouched(t)
}
