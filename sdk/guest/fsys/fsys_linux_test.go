// SPDX-License-Identifier: Apache-2.0

package fsys_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/fsys"
)

// world is a workspace, two granted directories and a place that is neither.
type world struct {
	*fsys.FS
	root, rw, ro, outside string
}

// newWorld makes one; a further grant inside the workspace makes it resolve paths by its own walk instead of the
// kernel's.
func newWorld(t testing.TB, nested ...fsys.Grant) world {
	t.Helper()
	top := t.TempDir()
	w := world{root: top + "/ws", rw: top + "/rw", ro: top + "/ro", outside: top + "/outside"}
	for _, d := range []string{w.root, w.rw, w.ro, w.outside} {
		must(t, os.Mkdir(d, 0o755))
	}
	put(t, w.outside+"/secret", "secret")
	put(t, w.ro+"/data", "granted")
	var err error
	w.FS, err = fsys.Open(w.root, fsys.Options{
		Visible: "/workspace",
		Grants:  append(nested, fsys.Grant{Path: "/rw", Dir: w.rw}, fsys.Grant{Path: "/ro", Dir: w.ro, ReadOnly: true}),
	})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, path, body string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(body), 0o644))
}

func (w world) read(ctx context.Context, path string) (string, error) {
	_, r, err := w.Open(ctx, path, driver.ReadOptions{})
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(r)
	return string(b), err
}

func (w world) write(ctx context.Context, path, body string, opts driver.WriteOptions) (driver.WriteResult, error) {
	return w.Write(ctx, path, opts, strings.NewReader(body))
}

func (w world) untouched(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(w.outside)
	must(t, err)
	b, _ := os.ReadFile(w.outside + "/secret")
	if len(entries) != 1 || string(b) != "secret" {
		t.Errorf("outside has changed: %v, %q", entries, b)
	}
}

func noTemps(t testing.TB, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		_ = filepath.WalkDir(d, func(path string, _ os.DirEntry, _ error) error {
			if strings.Contains(path, ".berth-tmp-") {
				t.Errorf("left behind: %s", path)
			}
			return nil
		})
	}
}

func code(t testing.TB, what string, err error, want errs.Code) {
	t.Helper()
	if got := errs.CodeOf(err); got != want {
		t.Errorf("%s: %v (%q), want %q", what, err, got, want)
	}
}

// bothWalks runs a test with either.
func bothWalks(t *testing.T, test func(t *testing.T, w world)) {
	t.Run("kernel", func(t *testing.T) { test(t, newWorld(t)) })
	t.Run("own", func(t *testing.T) {
		test(t, newWorld(t, fsys.Grant{Path: "/workspace/nested", Dir: t.TempDir()}))
	})
}

func TestPathsAndLinks(t *testing.T) { bothWalks(t, testPathsAndLinks) }

func testPathsAndLinks(t *testing.T, w world) {
	ctx := t.Context()
	put(t, w.root+"/dir/file", "hello")
	for link, target := range map[string]string{
		"rel": "dir/file", "up": "dir/../dir/file", "abs": "/workspace/dir/file", "absdir": "/workspace/dir", "togrant": "/ro/data",
		"relgrant": "../ro/data", "out": w.outside + "/secret", "relout": "../outside/secret", "updir": "..", "etc": "/etc/passwd",
		"loop": "loop2", "loop2": "loop", "dangling": "none", "chain": "absdir/../rel", "outdir": w.outside, "self": "/workspace", "proc": "/proc/self/root/etc/passwd",
	} {
		must(t, os.Symlink(target, w.root+"/"+link))
	}
	for path, want := range map[string]any{
		"dir/file": "hello", "./dir//file": "hello", "dir/../dir/file": "hello", "/workspace/dir/file": "hello", "rel": "hello", "up": "hello",
		"abs": "hello", "absdir/file": "hello", "togrant": "granted", "relgrant": "granted", "/ro/data": "granted", "../ro/data": "granted",
		"chain": "hello", "self/dir/file": "hello", "self/self/abs": "hello", "/workspace/../ro/data": "granted",
		"out": errs.PathEscapes, "relout": errs.PathEscapes, "updir": errs.PathEscapes, "etc": errs.PathEscapes, "updir/outside/secret": errs.PathEscapes,
		"outdir/secret": errs.PathEscapes, "../outside/secret": errs.PathEscapes, "/etc/passwd": errs.PathEscapes, "dir/../../outside/secret": errs.PathEscapes,
		"proc": errs.PathEscapes, "/": errs.PathEscapes, "/workspaceX/dir/file": errs.PathEscapes, w.root + "/dir/file": errs.PathEscapes, "..": errs.PathEscapes,
		"loop": errs.InvalidArgument, "": errs.InvalidArgument, "nul\x00": errs.InvalidArgument, "none": errs.FileNotFound, "none/x": errs.FileNotFound,
		"dangling": errs.FileNotFound, "dir/file/x": errs.NotDirectory, "dir": errs.IsDirectory, ".": errs.IsDirectory, "dir/..": errs.IsDirectory,
		strings.Repeat("n", 300): errs.InvalidArgument, `dir\file`: errs.FileNotFound,
	} {
		got, err := w.read(ctx, path)
		if c, bad := want.(errs.Code); bad {
			code(t, fmt.Sprintf("read %q", path), err, c)
		} else if err != nil || got != want {
			t.Errorf("read %q: %q, %v", path, got, err)
		}
	}
	// Writing takes the same ways, and refuses what was granted for reading by any of them.
	for path, want := range map[string]errs.Code{
		"abs": "", "absdir/new": "", "/rw/new": "", "../rw/new2": "", "dangling": "", "togrant": errs.ReadOnly, "/ro/new": errs.ReadOnly, "relgrant": errs.ReadOnly,
		"out": errs.PathEscapes, "outdir/new": errs.PathEscapes, "/etc/berth-test": errs.PathEscapes, "../outside/new": errs.PathEscapes,
		".": errs.IsDirectory, "dir": errs.IsDirectory, "none2/x": errs.FileNotFound, "dir/file/x": errs.NotDirectory,
	} {
		_, err := w.write(ctx, path, "new", driver.WriteOptions{})
		code(t, fmt.Sprintf("write %q", path), err, want)
	}
	if b, _ := os.ReadFile(w.root + "/dir/file"); string(b) != "new" {
		t.Errorf("a write through a link gave %q", b)
	}
	if target, err := os.Readlink(w.root + "/abs"); err != nil || target != "/workspace/dir/file" {
		t.Errorf("the link itself was replaced: %q, %v", target, err)
	}
	if b, _ := os.ReadFile(w.root + "/none"); string(b) != "new" {
		t.Errorf("a write through a dangling link gave %q", b)
	}
	w.untouched(t)
	noTemps(t, w.root, w.rw, w.ro)
}

func TestRemoveAndMoveActOnLinks(t *testing.T) { bothWalks(t, testRemoveAndMoveActOnLinks) }

func testRemoveAndMoveActOnLinks(t *testing.T, w world) {
	ctx := t.Context()
	put(t, w.root+"/d/f", "x")
	for _, l := range []string{"l1", "l2", "l3"} {
		must(t, os.Symlink(w.outside, w.root+"/"+l))
	}
	must(t, w.Remove(ctx, "l1", false, ""))
	must(t, w.Remove(ctx, "l2", true, ""))
	must(t, w.Move(ctx, "l3", "d/moved", false, ""))
	if target, err := os.Readlink(w.root + "/d/moved"); err != nil || target != w.outside {
		t.Errorf("%q, %v", target, err)
	}
	for what, c := range map[string]struct {
		err  error
		want errs.Code
	}{
		"root":           {w.Remove(ctx, ".", true, ""), errs.InvalidArgument},
		"root by name":   {w.Remove(ctx, "/workspace", true, ""), errs.InvalidArgument},
		"root by dots":   {w.Remove(ctx, "d/..", true, ""), errs.InvalidArgument},
		"grant":          {w.Remove(ctx, "/rw", true, ""), errs.InvalidArgument},
		"read only":      {w.Remove(ctx, "/ro/data", false, ""), errs.ReadOnly},
		"above":          {w.Remove(ctx, "..", true, ""), errs.PathEscapes},
		"missing":        {w.Remove(ctx, "none", false, ""), errs.FileNotFound},
		"missing ok":     {w.Remove(ctx, "none/x", true, ""), ""},
		"not empty":      {w.Remove(ctx, "d", false, ""), errs.DirectoryNotEmpty},
		"through a link": {w.Remove(ctx, "d/moved/secret", false, ""), errs.PathEscapes},
		"move root":      {w.Move(ctx, ".", "x", false, ""), errs.InvalidArgument},
		"move onto root": {w.Move(ctx, "d", "/workspace", true, ""), errs.InvalidArgument},
		"move missing":   {w.Move(ctx, "none", "x", false, ""), errs.FileNotFound},
		"move over":      {w.Move(ctx, "d/f", "d/moved", false, ""), errs.FileExists},
		"move into self": {w.Move(ctx, "d", "d/sub", false, ""), errs.InvalidArgument},
		"move away":      {w.Move(ctx, "d/f", w.outside+"/f", false, ""), errs.PathEscapes},
		"move to grant":  {w.Move(ctx, "d/f", "/ro/f", false, ""), errs.ReadOnly},
		"replace":        {w.Move(ctx, "d/f", "d/moved", true, ""), ""},
		"all":            {w.Remove(ctx, "d", true, ""), ""},
	} {
		code(t, what, c.err, c.want)
	}
	w.untouched(t)
}

func TestSpecialFilesAreRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	must(t, unix.Mkfifo(w.root+"/fifo", 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: w.root + "/sock"}))
	names := []string{"fifo", "sock"}
	if unix.Mknod(w.root+"/null", unix.S_IFCHR|0o666, 1<<8|3) == nil {
		names = append(names, "null")
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("it hangs"))
	defer cancel()
	for _, name := range names {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := w.read(ctx, name)
			code(t, "read "+name, err, errs.NotRegular)
			for _, o := range []driver.WriteOptions{{}, {Append: true}, {InPlace: true}} {
				_, err = w.write(ctx, name, "x", o)
				code(t, "write "+name, err, errs.NotRegular)
			}
			mode := uint32(0o640)
			must(t, w.SetMeta(ctx, name, driver.MetaChange{Mode: &mode}))
		}()
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatalf("%s: an operation hangs", name)
		}
		must(t, w.Remove(ctx, name, false, ""))
	}
	noTemps(t, w.root)
}

func TestWriteKinds(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	when := time.Unix(1_600_000_000, 987_654_321)
	big := strings.Repeat("0123456789abcdef", 100_000) + "tail"
	res, err := w.write(ctx, "a/b/c", big, driver.WriteOptions{Parents: true, Mode: 0o4751, ModTime: when})
	must(t, err)
	if res.SHA256 != sha256.Sum256([]byte(big)) || res.Info.Size != uint64(len(big)) || res.Info.Mode != 0o4751 || !res.Info.ModTime.Equal(when) {
		t.Errorf("%+v", res.Info)
	}
	stat, err := w.Stat(ctx, []string{"a/b/c"}, driver.StatOptions{})
	must(t, err)
	if d := cmp.Diff(res.Info, stat[0].Info); d != "" {
		t.Errorf("write and stat differ: %s", d)
	}
	if got, err := w.read(ctx, "a/b/c"); err != nil || got != big {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err = w.write(ctx, "a/b/c", "x", driver.WriteOptions{Exclusive: true})
	code(t, "exclusive", err, errs.FileExists)
	_, err = w.write(ctx, "a/b/c", "x", driver.WriteOptions{IfVersion: "other"})
	code(t, "other version", err, errs.VersionMismatch)
	_, err = w.write(ctx, "a/b/none", "x", driver.WriteOptions{IfVersion: res.Info.Version})
	code(t, "version of nothing", err, errs.VersionMismatch)
	res2, err := w.write(ctx, "a/b/c", "second", driver.WriteOptions{IfVersion: res.Info.Version})
	must(t, err)
	if res2.Info.Version == res.Info.Version || res2.Info.Mode != 0o4751 {
		t.Errorf("%+v", res2.Info)
	}
	_, _, err = w.Open(ctx, "a/b/c", driver.ReadOptions{IfVersion: res.Info.Version})
	code(t, "read the old version", err, errs.VersionMismatch)
	must(t, os.Link(w.root+"/a/b/c", w.root+"/twin"))
	res3, err := w.write(ctx, "a/b/c", "+more", driver.WriteOptions{Append: true})
	must(t, err)
	if res3.SHA256 != sha256.Sum256([]byte("+more")) || res3.Info.Size != 11 {
		t.Errorf("append: %+v", res3)
	}
	_, err = w.write(ctx, "twin", "short", driver.WriteOptions{InPlace: true})
	must(t, err)
	if got, _ := w.read(ctx, "a/b/c"); got != "short" {
		t.Errorf("in place through the other name: %q", got)
	}
	_, err = w.write(ctx, "a/b/c", "apart", driver.WriteOptions{})
	must(t, err)
	if got, _ := w.read(ctx, "twin"); got != "short" {
		t.Errorf("the other name holds %q", got)
	}
	_, err = w.write(ctx, "fresh", "1", driver.WriteOptions{Append: true})
	must(t, err)
	_, err = w.write(ctx, "fresh2", "1", driver.WriteOptions{Exclusive: true})
	must(t, err)
	if st, err := os.Stat(w.root + "/fresh2"); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	_, r, err := w.Open(ctx, "a/b/c", driver.ReadOptions{Offset: 2, Length: 2})
	must(t, err)
	if b, _ := io.ReadAll(r); string(b) != "ar" {
		t.Errorf("part: %q", b)
	}
	must(t, r.Close())
	if _, err := w.write(ctx, "/rw", "x", driver.WriteOptions{}); !errors.Is(err, errs.IsDirectory) {
		t.Error(err)
	}
	noTemps(t, w.root)
}

// endless gives bytes until its context ends it or its error comes.
type endless struct {
	left int
	then func() error
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, e.then()
	}
	n := min(len(p), e.left)
	e.left -= n
	return n, nil
}

func TestFailedWriteChangesNothing(t *testing.T) {
	w := newWorld(t)
	put(t, w.root+"/f", "old")
	for _, size := range []int{0, 10, 3 << 20} {
		boom := errors.New("source failed")
		if size != 10 {
			boom = io.ErrUnexpectedEOF // a stream that was cut is not one that ended
		}
		_, err := w.Write(t.Context(), "f", driver.WriteOptions{}, &endless{size, func() error { return boom }})
		if !errors.Is(err, boom) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err = w.Write(ctx, "g", driver.WriteOptions{Append: true}, &endless{size, func() error { cancel(boom); return io.EOF }})
		code(t, "canceled", err, errs.Canceled)
	}
	if got, _ := w.read(t.Context(), "f"); got != "old" {
		t.Errorf("the file holds %q", got)
	}
	if _, err := os.Stat(w.root + "/g"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("g is there: %v", err)
	}
	noTemps(t, w.root)
}

func TestTortureNames(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	names := []string{
		"-rf", " lead", "trail ", "new\nline", "\xff\xfe\x80", "quo\"te", `back\slash`, "C:\\x", "*", "?", "~", "...", ".hidden", "$(x)", "%s%n",
		"\x01\x7f", "ünïcödé", strings.Repeat("n", 255), strings.Repeat("é", 127), "a=b", "#", "!x",
	}
	for _, n := range names {
		_, err := w.write(ctx, n, n, driver.WriteOptions{})
		must(t, err)
		must(t, w.Mkdir(ctx, "dir/"+n, 0o700, true, ""))
		must(t, w.Move(ctx, n, "dir/"+n+"/moved", false, ""))
		if got, err := w.read(ctx, "/workspace/dir/"+n+"/moved"); err != nil || got != n {
			t.Errorf("%q: %q, %v", n, got, err)
		}
	}
	var listed []string
	for fi, err := range w.List(ctx, "dir", driver.ListOptions{}) {
		must(t, err)
		listed = append(listed, fi.Path)
	}
	if len(listed) != len(names) || !isSorted(listed) {
		t.Errorf("%d of %d listed, sorted %v", len(listed), len(names), isSorted(listed))
	}
	must(t, w.Remove(ctx, "dir", true, ""))
}

func isSorted(s []string) bool {
	for i := 1; i < len(s); i++ {
		if s[i-1] >= s[i] {
			return false
		}
	}
	return true
}

func TestList(t *testing.T) {
	w := newWorld(t)
	for _, f := range []string{"b/2", "b/1", "b/node_modules/x/y", "a.o", "a", "b.txt", "keep.o", "c/.git/config"} {
		put(t, w.root+"/"+f, f)
	}
	must(t, os.Symlink("/nowhere", w.root+"/link"))
	list := func(path string, o driver.ListOptions) (out []string) {
		for fi, err := range w.List(t.Context(), path, o) {
			must(t, err)
			out = append(out, fi.Path)
		}
		return out
	}
	for _, c := range []struct {
		path string
		opts driver.ListOptions
		want string
	}{
		{".", driver.ListOptions{}, "a a.o b b.txt c keep.o link"},
		{"/workspace/b", driver.ListOptions{}, "1 2 node_modules"},
		{".", driver.ListOptions{Recursive: true}, "a a.o b b/1 b/2 b/node_modules b/node_modules/x b/node_modules/x/y b.txt c c/.git c/.git/config keep.o link"},
		{".", driver.ListOptions{Recursive: true, Limit: 4}, "a a.o b b/1"},
		{".", driver.ListOptions{Recursive: true, Exclude: []string{"*.o", "!keep.o", "node_modules/", ".git"}}, "a b b/1 b/2 b.txt c keep.o link"},
		{".", driver.ListOptions{Recursive: true, Limit: 3, Exclude: []string{"a*"}}, "b b/1 b/2"},
	} {
		if got := strings.Join(list(c.path, c.opts), " "); got != c.want {
			t.Errorf("%s %+v:\n got %s\nwant %s", c.path, c.opts, got, c.want)
		}
	}
	for fi, err := range w.List(t.Context(), ".", driver.ListOptions{}) {
		must(t, err)
		if fi.Path == "link" && (fi.Type != driver.TypeSymlink || fi.Target != "/nowhere") {
			t.Errorf("%+v", fi)
		}
		if fi.Version == "" || fi.User == "" {
			t.Errorf("%+v", fi)
		}
	}
	for path, want := range map[string]errs.Code{"a": errs.NotDirectory, "none": errs.FileNotFound, "..": errs.PathEscapes} {
		for _, err := range w.List(t.Context(), path, driver.ListOptions{}) {
			code(t, path, err, want)
		}
	}
}
