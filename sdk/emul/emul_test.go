// SPDX-License-Identifier: Apache-2.0

package emul_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
	"github.com/berth-dev/berth/sdk/errs"
)

// host is a sandbox in name only: it runs commands in a directory of this machine.
type host struct {
	dir, path string
	runs      int
}

func (h *host) Run(ctx context.Context, c *driver.Command, s driver.Streams) (driver.Exit, error) {
	h.runs++
	bin := ""
	for _, dir := range filepath.SplitList(h.path) {
		if _, err := os.Stat(filepath.Join(dir, c.Argv[0])); err == nil {
			bin = filepath.Join(dir, c.Argv[0])
			break
		}
	}
	if bin == "" {
		return driver.Exit{}, errs.New(errs.ExecNotFound, "%s", c.Argv[0])
	}
	cmd := exec.CommandContext(ctx, bin, c.Argv[1:]...)
	cmd.Args[0] = c.Argv[0]
	cmd.Dir, cmd.Env = h.dir, []string{"PATH=" + h.path}
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return driver.Exit{}, errs.Wrap(errs.Canceled, "run", context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return driver.Exit{Code: exit.ExitCode()}, nil
	}
	if cmd.ProcessState != nil {
		return driver.Exit{Code: cmd.ProcessState.ExitCode()}, nil
	}
	return driver.Exit{}, err
}

// each runs a test with the machine's own tools and with busybox's.
func each(t *testing.T, f func(t *testing.T, e *emul.Emulator, h *host)) {
	t.Run("gnu", func(t *testing.T) {
		h := &host{dir: filepath.Join(t.TempDir(), "work space'"), path: os.Getenv("PATH")}
		if err := os.Mkdir(h.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f(t, emul.New(h, emul.Options{}), h)
	})
	t.Run("busybox", func(t *testing.T) {
		box, err := exec.LookPath("busybox")
		if err != nil {
			t.Skip("busybox is not installed")
		}
		bin := t.TempDir()
		for _, name := range []string{"sh", "cat", "tar", "find", "stat", "mkdir", "rmdir", "rm", "mv", "ln", "chmod", "chown", "touch", "head", "tail", "readlink"} {
			if err := os.Symlink(box, filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		h := &host{dir: filepath.Join(t.TempDir(), "work space'"), path: bin}
		if err := os.Mkdir(h.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f(t, emul.New(h, emul.Options{}), h)
	})
}

func write(t *testing.T, e *emul.Emulator, name, content string, opts driver.WriteOptions) driver.WriteResult {
	t.Helper()
	r, err := e.Write(t.Context(), name, opts, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, e *emul.Emulator, name string, opts driver.ReadOptions) string {
	t.Helper()
	_, rc, err := e.Open(t.Context(), name, opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(rc)
	if err = errors.Join(err, rc.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// torture are names that a shell script likes to get wrong; the first ones go through every operation.
var torture = []string{
	"-rf", "new\nline", "end\n", "quote'single", "dollar$HOME", "star*", "back\\slash", "\xff\xfe",
	"plain", "two words", " lead", "trail ", "tab\tin", `quote"double`, "back`tick`", "ques?", "[bracket]", "--help",
	"semi;colon", "amp&", "pipe|", "é", "#hash", "~tilde", "(paren)", "!bang", "{brace}",
}

const worst = 8

func TestTortureNames(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		for i, name := range torture {
			content := "content of " + name
			if i < worst {
				w := write(t, e, name, content, driver.WriteOptions{})
				if w.Info.Path != name || w.SHA256 != sha256.Sum256([]byte(content)) {
					t.Errorf("%q: %+v", name, w)
				}
				if got := read(t, e, name, driver.ReadOptions{}); got != content {
					t.Errorf("%q: read %q", name, got)
				}
				if b, err := os.ReadFile(filepath.Join(h.dir, name)); err != nil || string(b) != content {
					t.Errorf("%q on disk: %q, %v", name, b, err)
				}
			} else if err := os.WriteFile(filepath.Join(h.dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(name, filepath.Join(h.dir, "link-"+name)); err != nil {
				t.Fatal(err)
			}
		}
		stats, err := e.Stat(t.Context(), torture, driver.StatOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range stats {
			if s.Err != nil || s.Info.Type != driver.TypeRegular || s.Info.Size != uint64(len("content of "+torture[i])) {
				t.Errorf("%q: %+v", torture[i], s)
			}
		}
		var got []string
		for f, err := range e.List(t.Context(), ".", driver.ListOptions{Exclude: []string{"plain", "link-plain"}}) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Type == driver.TypeSymlink && "link-"+f.Target != f.Path {
				t.Errorf("%q links to %q", f.Path, f.Target)
			}
			if f.Type == driver.TypeRegular {
				got = append(got, f.Path)
			}
		}
		slices.Sort(got)
		want := slices.DeleteFunc(slices.Clone(torture), func(s string) bool { return s == "plain" })
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		for _, name := range torture[:worst] {
			if err := e.Move(t.Context(), name, "moved "+name, false, ""); err != nil {
				t.Errorf("move %q: %v", name, err)
			}
			if err := e.Remove(t.Context(), "moved "+name, false, ""); err != nil {
				t.Errorf("remove %q: %v", name, err)
			}
		}
	})
}

func TestStatAgreesWithTheMachine(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		w := write(t, e, "d/f", "hello", driver.WriteOptions{Parents: true, Mode: 0o4750})
		if err := os.Symlink("d/f", filepath.Join(h.dir, "l")); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(h.dir, "p"), 0o600); err != nil {
			t.Fatal(err)
		}
		res, err := e.Stat(t.Context(), []string{"d/f", "l", "p", "d", ".", "nope", "d/f/x"}, driver.StatOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []driver.FileType{driver.TypeRegular, driver.TypeSymlink, driver.TypeFIFO, driver.TypeDirectory, driver.TypeDirectory} {
			if res[i].Err != nil || res[i].Info.Type != want {
				t.Errorf("%d: %+v", i, res[i])
			}
		}
		if !errors.Is(res[5].Err, errs.FileNotFound) || !errors.Is(res[6].Err, errs.NotDirectory) && !errors.Is(res[6].Err, errs.FileNotFound) {
			t.Errorf("missing: %v, %v", res[5].Err, res[6].Err)
		}
		fi, err := os.Stat(filepath.Join(h.dir, "d/f"))
		if err != nil {
			t.Fatal(err)
		}
		got := res[0].Info
		if got.Mode != 0o4750 || got.Size != 5 || got.User != "root" && os.Geteuid() == 0 || got.ModTime.Unix() != fi.ModTime().Unix() || got.Nlink != 1 {
			t.Errorf("%+v", got)
		}
		if got.Version != w.Info.Version || res[1].Info.Target != "d/f" {
			t.Errorf("version %q after the write, %q now; target %q", w.Info.Version, got.Version, res[1].Info.Target)
		}
		followed, err := e.Stat(t.Context(), []string{"l"}, driver.StatOptions{Follow: true})
		if err != nil || followed[0].Info.Type != driver.TypeRegular || followed[0].Info.Version != got.Version {
			t.Errorf("%+v, %v", followed, err)
		}
		for f, err := range e.List(t.Context(), "d", driver.ListOptions{}) {
			if err != nil || f.Version != got.Version || f.Mode != got.Mode {
				t.Errorf("listed %+v, %v", f, err)
			}
		}
	})
}

func TestWriteOptions(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		ctx := t.Context()
		first := write(t, e, "f", "one", driver.WriteOptions{Mode: 0o640})
		write(t, e, "f", "+two", driver.WriteOptions{Append: true})
		if got := read(t, e, "f", driver.ReadOptions{}); got != "one+two" {
			t.Errorf("appended: %q", got)
		}
		third := write(t, e, "f", "three", driver.WriteOptions{})
		if third.Info.Mode != 0o640 {
			t.Errorf("the mode was not kept: %o", third.Info.Mode)
		}
		write(t, e, "f", "four", driver.WriteOptions{IfVersion: third.Info.Version, InPlace: true, ModTime: time.Unix(1e9, 0)})
		if fi, err := os.Stat(filepath.Join(h.dir, "f")); err != nil || fi.ModTime().Unix() != 1e9 {
			t.Errorf("%v, %v", fi, err)
		}
		if err := os.Symlink("f", filepath.Join(h.dir, "l")); err != nil {
			t.Fatal(err)
		}
		write(t, e, "l", "five", driver.WriteOptions{})
		if fi, err := os.Lstat(filepath.Join(h.dir, "l")); err != nil || fi.Mode()&os.ModeSymlink == 0 || read(t, e, "f", driver.ReadOptions{}) != "five" {
			t.Errorf("writing through a link: %v, %v", fi, err)
		}
		for name, c := range map[string]struct {
			path string
			opts driver.WriteOptions
			want errs.Code
		}{
			"exclusive": {"f", driver.WriteOptions{Exclusive: true}, errs.FileExists},
			"version":   {"f", driver.WriteOptions{IfVersion: first.Info.Version}, errs.VersionMismatch},
			"not there": {"g", driver.WriteOptions{IfVersion: first.Info.Version}, errs.FileNotFound},
			"directory": {".", driver.WriteOptions{}, errs.IsDirectory},
			"no parent": {"x/y", driver.WriteOptions{}, errs.FileNotFound},
			"file":      {"f/y", driver.WriteOptions{Parents: true}, errs.NotDirectory},
		} {
			if _, err := e.Write(ctx, c.path, c.opts, strings.NewReader("x")); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		write(t, e, "new", "x", driver.WriteOptions{Exclusive: true})
		// A source that fails leaves the file as it was, and no litter.
		cut := io.MultiReader(strings.NewReader("half"), failing{})
		if _, err := e.Write(ctx, "f", driver.WriteOptions{}, cut); !errors.Is(err, errSource) {
			t.Errorf("got %v", err)
		}
		if got := read(t, e, "f", driver.ReadOptions{}); got != "five" {
			t.Errorf("after a failed write: %q", got)
		}
		entries, err := os.ReadDir(h.dir)
		if err != nil || len(entries) != 3 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

var errSource = errors.New("the source broke")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errSource }

func TestReadOptions(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		content := string(random(200_000))
		w := write(t, e, "f", content, driver.WriteOptions{})
		for _, c := range []struct{ offset, length uint64 }{{0, 0}, {0, 10}, {1, 0}, {100_000, 50_000}, {199_999, 5}, {300_000, 0}, {300_000, 7}} {
			want := content[min(c.offset, 200_000):]
			if c.length > 0 {
				want = want[:min(c.length, uint64(len(want)))]
			}
			if got := read(t, e, "f", driver.ReadOptions{Offset: c.offset, Length: c.length, IfVersion: w.Info.Version}); got != want {
				t.Errorf("%+v: %d bytes, want %d", c, len(got), len(want))
			}
		}
		if err := syscall.Mkfifo(filepath.Join(h.dir, "p"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]errs.Code{"nope": errs.FileNotFound, ".": errs.IsDirectory, "p": errs.NotRegular} {
			if _, _, err := e.Open(t.Context(), name, driver.ReadOptions{}); !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, _, err := e.Open(t.Context(), "f", driver.ReadOptions{IfVersion: "x"}); !errors.Is(err, errs.VersionMismatch) {
			t.Errorf("got %v", err)
		}
		// A reader that is closed early ends the command.
		_, rc, err := e.Open(t.Context(), "f", driver.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	})
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b) // never fails
	return b
}

// Nothing is reached outside of the workspace, whatever links say.
func TestEscapes(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		outside := filepath.Join(filepath.Dir(h.dir), "outside")
		if err := errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644),
			os.Symlink(outside, filepath.Join(h.dir, "abs")), os.Symlink("../outside", filepath.Join(h.dir, "rel")),
			os.Symlink("rel/secret", filepath.Join(h.dir, "chain")), os.Symlink("loop", filepath.Join(h.dir, "loop")),
			os.Symlink("..", filepath.Join(h.dir, "up")), os.Mkdir(filepath.Join(h.dir, "d"), 0o755),
			os.Symlink("../../outside/new", filepath.Join(h.dir, "d", "dangling")), os.Mkdir(h.dir+"2", 0o755)); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for _, p := range []string{"../outside/secret", outside + "/secret", "abs/secret", "rel/secret", "chain", "up/outside/secret", "d/../../outside/secret", "/etc/passwd", h.dir + "2"} {
			if _, _, err := e.Open(ctx, p, driver.ReadOptions{}); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("open %s: %v", p, err)
			}
		}
		for _, p := range []string{"abs/x", "rel/x", "d/dangling", "../x", "up/x"} {
			if _, err := e.Write(ctx, p, driver.WriteOptions{Parents: true}, strings.NewReader("x")); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("write %s: %v", p, err)
			}
			if p == "d/dangling" {
				continue // to move or remove the link itself is fine
			}
			if err := e.Mkdir(ctx, p+"/y", 0, true, ""); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("mkdir %s: %v", p, err)
			}
			if err := e.Move(ctx, "d", p, true, ""); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("move to %s: %v", p, err)
			}
		}
		for _, p := range []string{"abs/secret", "up/outside"} {
			if err := e.Remove(ctx, p, true, ""); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("remove %s: %v", p, err)
			}
			if err := e.SetMeta(ctx, p, driver.MetaChange{Mode: new(uint32(0))}); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("chmod %s: %v", p, err)
			}
			if err := e.Export(ctx, driver.ExportOptions{Path: filepath.Dir(p)}, io.Discard); !errors.Is(err, errs.PathEscapes) {
				t.Errorf("export %s: %v", p, err)
			}
		}
		if _, err := e.Stat(ctx, []string{"loop"}, driver.StatOptions{Follow: true}); err != nil {
			t.Error(err)
		}
		for _, p := range []string{".", h.dir, "up/" + filepath.Base(h.dir), "d/.."} {
			if err := e.Remove(ctx, p, true, ""); !errors.Is(err, errs.InvalidArgument) && !errors.Is(err, errs.PathEscapes) {
				t.Errorf("remove the root as %s: %v", p, err)
			}
		}
		// A link is what is removed, and not what it points to.
		if err := e.Remove(ctx, "abs", true, ""); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
			t.Errorf("%q, %v", b, err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

func TestGrants(t *testing.T) {
	h := &host{dir: t.TempDir(), path: os.Getenv("PATH")}
	granted := t.TempDir()
	e := emul.New(h, emul.Options{Grants: []string{granted}})
	write(t, e, filepath.Join(granted, "f"), "x", driver.WriteOptions{})
	if got := read(t, e, filepath.Join(granted, "f"), driver.ReadOptions{}); got != "x" {
		t.Errorf("got %q", got)
	}
}

func TestChanges(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		ctx := t.Context()
		if err := e.Mkdir(ctx, "a/b/c", 0o700, true, ""); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(filepath.Join(h.dir, "a/b/c")); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", fi, err)
		}
		write(t, e, "a/f", "x", driver.WriteOptions{})
		write(t, e, "a/g", "y", driver.WriteOptions{})
		for name, c := range map[string]struct {
			err  error
			want errs.Code
		}{
			"mkdir again":     {e.Mkdir(ctx, "a/b", 0, false, ""), errs.FileExists},
			"mkdir parents":   {e.Mkdir(ctx, "a/b", 0, true, ""), ""},
			"mkdir on file":   {e.Mkdir(ctx, "a/f", 0, true, ""), errs.FileExists},
			"mkdir no parent": {e.Mkdir(ctx, "x/y", 0, false, ""), errs.FileNotFound},
			"remove full":     {e.Remove(ctx, "a", false, ""), errs.DirectoryNotEmpty},
			"remove missing":  {e.Remove(ctx, "x", false, ""), errs.FileNotFound},
			"remove any":      {e.Remove(ctx, "x/y/z", true, ""), ""},
			"move exists":     {e.Move(ctx, "a/f", "a/g", false, ""), errs.FileExists},
			"move missing":    {e.Move(ctx, "a/x", "a/y", true, ""), errs.FileNotFound},
			"move into":       {e.Move(ctx, "a", "a/b/d", true, ""), errs.InvalidArgument},
			"move on dir":     {e.Move(ctx, "a/f", "a/b", true, ""), errs.IsDirectory},
			"move dir on":     {e.Move(ctx, "a/b", "a/f", true, ""), errs.NotDirectory},
			"owner":           {e.SetMeta(ctx, "a/f", driver.MetaChange{Owner: new("nobody-of-this-name")}), errs.InvalidArgument},
		} {
			if errs.CodeOf(c.err) != c.want {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		if err := e.Move(ctx, "a/f", "a/g", true, ""); err != nil || read(t, e, "a/g", driver.ReadOptions{}) != "x" {
			t.Errorf("replace: %v", err)
		}
		if err := e.SetMeta(ctx, "a", driver.MetaChange{Mode: new(uint32(0o750)), Recursive: true, ModTime: time.Unix(1e9, 0)}); err != nil {
			t.Error(err)
		}
		if fi, err := os.Stat(filepath.Join(h.dir, "a/g")); err != nil || fi.Mode().Perm() != 0o750 {
			t.Errorf("%v, %v", fi, err)
		}
		if fi, err := os.Stat(filepath.Join(h.dir, "a")); err != nil || fi.ModTime().Unix() != 1e9 {
			t.Errorf("%v, %v", fi, err)
		}
		if err := e.Remove(ctx, "a", true, ""); err != nil {
			t.Error(err)
		}
	})
}

func TestListing(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, _ *host) {
		for _, name := range []string{"a/1", "a/b/2", "a/b/3", "node_modules/x/y", "z"} {
			write(t, e, name, "x", driver.WriteOptions{Parents: true})
		}
		list := func(p string, opts driver.ListOptions) (out []string) {
			for f, err := range e.List(t.Context(), p, opts) {
				if err != nil {
					out = append(out, string(errs.CodeOf(err)))
					continue
				}
				out = append(out, f.Path)
			}
			slices.Sort(out)
			return out
		}
		for i, c := range []struct{ got, want []string }{
			{list(".", driver.ListOptions{}), []string{"a", "node_modules", "z"}},
			{list(".", driver.ListOptions{Recursive: true, Exclude: []string{"node_modules/"}}), []string{"a", "a/1", "a/b", "a/b/2", "a/b/3", "z"}},
			{list("a/b", driver.ListOptions{Recursive: true}), []string{"2", "3"}},
			{list("nope", driver.ListOptions{}), []string{"file_not_found"}},
			{list("z", driver.ListOptions{}), []string{"not_directory"}},
		} {
			if d := cmp.Diff(c.want, c.got); d != "" {
				t.Errorf("%d: %s", i, d)
			}
		}
		if got := list(".", driver.ListOptions{Recursive: true, Limit: 3}); len(got) != 3 {
			t.Errorf("limited: %q", got)
		}
	})
}

func TestTreeRoundTrip(t *testing.T) {
	for _, compression := range []string{"", "zstd"} {
		each(t, func(t *testing.T, e *emul.Emulator, h *host) {
			long := strings.Repeat("long", 60) + "/" + strings.Repeat("name", 40)
			for _, name := range []string{"src/f", "src/d/g", "src/skip/x", "src/" + long, "src/new\nline"} {
				write(t, e, name, "content of "+name, driver.WriteOptions{Parents: true, Mode: 0o751})
			}
			if err := errors.Join(os.Symlink("../f", filepath.Join(h.dir, "src/d/l")), os.Link(filepath.Join(h.dir, "src/f"), filepath.Join(h.dir, "src/hard")),
				os.Mkdir(filepath.Join(h.dir, "src/empty"), 0o700)); err != nil {
				t.Fatal(err)
			}
			var archive bytes.Buffer
			if err := e.Export(t.Context(), driver.ExportOptions{Path: "src", Exclude: []string{"skip"}, Compression: compression}, &archive); err != nil {
				t.Fatal(err)
			}
			write(t, e, "dst/old", "x", driver.WriteOptions{Parents: true})
			res, err := e.Import(t.Context(), driver.ImportOptions{Path: "dst", Replace: true, Compression: compression}, &archive)
			if err != nil || len(res.Skipped) != 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			diff := exec.CommandContext(t.Context(), "diff", "-r", "--no-dereference", "--exclude=skip", "src", "dst")
			diff.Dir = h.dir
			if out, err := diff.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			fi, err := os.Stat(filepath.Join(h.dir, "dst/d/g"))
			if err != nil || fi.Mode().Perm() != 0o751 {
				t.Errorf("%v, %v", fi, err)
			}
			a, aerr := os.Stat(filepath.Join(h.dir, "dst/f"))
			b, berr := os.Stat(filepath.Join(h.dir, "dst/hard"))
			if aerr != nil || berr != nil || !os.SameFile(a, b) {
				t.Errorf("the hard link is none any more: %v, %v", aerr, berr)
			}
		})
	}
}

func archive(t *testing.T, members ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestHostileArchives(t *testing.T) {
	file := func(name string, size int64) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size}
	}
	link := func(name, to string, kind byte) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: kind}
	}
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		for name, c := range map[string]struct {
			members []tar.Header
			limits  driver.TreeLimits
			want    errs.Code
		}{
			"up":          {[]tar.Header{file("../x", 1)}, driver.TreeLimits{}, errs.ArchiveInvalid},
			"up inside":   {[]tar.Header{file("a/../../x", 1)}, driver.TreeLimits{}, errs.ArchiveInvalid},
			"absolute":    {[]tar.Header{file("/etc/x", 1)}, driver.TreeLimits{}, errs.ArchiveInvalid},
			"link":        {[]tar.Header{link("l", "/tmp", tar.TypeSymlink), file("l/x", 1)}, driver.TreeLimits{}, errs.ArchiveInvalid},
			"hard link":   {[]tar.Header{link("l", "../../x", tar.TypeLink)}, driver.TreeLimits{}, errs.ArchiveInvalid},
			"hard of sym": {[]tar.Header{link("s", "/etc/passwd", tar.TypeSymlink), link("l", "s", tar.TypeLink)}, driver.TreeLimits{}, errs.ArchiveInvalid},
			"members":     {[]tar.Header{file("a", 1), file("b", 1), file("c", 1)}, driver.TreeLimits{MaxMembers: 2}, errs.ArchiveLimit},
			"extracted":   {[]tar.Header{file("a", 100)}, driver.TreeLimits{MaxExtractedBytes: 99}, errs.ArchiveLimit},
			"input":       {[]tar.Header{file("a", 10000)}, driver.TreeLimits{MaxInputBytes: 5000}, errs.ArchiveLimit},
			"device":      {[]tar.Header{{Name: "dev", Typeflag: tar.TypeChar}}, driver.TreeLimits{}, ""},
		} {
			res, err := e.Import(t.Context(), driver.ImportOptions{Path: "in", Limits: c.limits}, archive(t, c.members...))
			if errs.CodeOf(err) != c.want {
				t.Errorf("%s: %v", name, err)
			}
			if name == "device" && len(res.Skipped) != 1 {
				t.Errorf("%+v", res)
			}
		}
		if entries, err := os.ReadDir(h.dir); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
		for _, rubble := range []string{"rubble", strings.Repeat("x", 5000)} {
			if _, err := e.Import(t.Context(), driver.ImportOptions{Path: "in"}, strings.NewReader(rubble)); !errors.Is(err, errs.ArchiveInvalid) {
				t.Errorf("rubble: %v", err)
			}
		}
	})
}

func TestMissingTools(t *testing.T) {
	bare := t.TempDir()
	h := &host{dir: t.TempDir(), path: bare}
	var e *errs.Error
	for range 2 {
		_, err := emul.New(h, emul.Options{}).Stat(t.Context(), []string{"."}, driver.StatOptions{})
		if !errors.As(err, &e) || e.Code != errs.Unsupported || !strings.Contains(e.Message, "no shell") || e.Hint == "" {
			t.Fatalf("no shell: %v", err)
		}
	}
	for _, name := range []string{"sh", "find", "stat", "readlink"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(bare, name)); err != nil {
			t.Fatal(err)
		}
	}
	em := emul.New(h, emul.Options{})
	if _, err := em.Stat(t.Context(), []string{"."}, driver.StatOptions{}); err != nil {
		t.Error(err)
	}
	runs := h.runs
	if err := em.Export(t.Context(), driver.ExportOptions{Path: "."}, io.Discard); !errors.As(err, &e) || e.Code != errs.Unsupported || !strings.Contains(e.Message, "no tar") {
		t.Errorf("no tar: %v", err)
	}
	if h.runs != runs {
		t.Error("the tools were looked for again")
	}
}

func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, h *host) {
		write(t, e, "f", "x", driver.WriteOptions{})
		why := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		r, w := io.Pipe()
		go func() {
			fmt.Fprint(w, "half")
			cancel(why)
			w.Close()
		}()
		if _, err := e.Write(ctx, "f", driver.WriteOptions{}, r); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		if got := read(t, e, "f", driver.ReadOptions{}); got != "x" {
			t.Errorf("got %q", got)
		}
	})
}

func TestLargeFile(t *testing.T) {
	each(t, func(t *testing.T, e *emul.Emulator, _ *host) {
		content := random(8 << 20)
		w, err := e.Write(t.Context(), "big", driver.WriteOptions{}, bytes.NewReader(content))
		if err != nil || w.SHA256 != sha256.Sum256(content) || w.Info.Size != 8<<20 {
			t.Fatalf("%+v, %v", w.Info, err)
		}
		if got := read(t, e, "big", driver.ReadOptions{}); got != string(content) {
			t.Error("it reads otherwise")
		}
	})
}
