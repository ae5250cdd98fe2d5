// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filesystem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/capability/filesystem"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/sdk/driver"
)

// The three forms in which apply_patch is offered.
var (
	custom   = model.Support{CustomTools: true, ImageToolOutput: true}
	builtin  = model.Support{BuiltinPatch: true, ImageToolOutput: true}
	function = model.Support{ImageToolOutput: true}
)

func call(ctx context.Context, t testing.TB, f *filesystem.Filesystem, support model.Support, name, arguments string) tool.Result {
	t.Helper()
	for _, tl := range f.Tools(support) {
		if tl.Spec().Name == name {
			res, err := tl.Call(ctx, tool.Call{ID: "call", Arguments: arguments, Progress: func(tool.Progress) {}})
			if err != nil {
				t.Fatalf("%s: an error that is no result: %v", name, err)
			}
			return res
		}
	}
	t.Fatalf("no tool %q", name)
	return tool.Result{}
}

func patch(t testing.TB, f *filesystem.Filesystem, lines ...string) tool.Result {
	t.Helper()
	text := "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch\n"
	return call(t.Context(), t, f, custom, "apply_patch", text)
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t testing.TB, s *sandbox.Session, path, content string, mode uint32) {
	t.Helper()
	if _, err := s.Write(t.Context(), path, driver.WriteOptions{Mode: mode, Parents: true}, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func TestPatch(t *testing.T) {
	host := localtest.New(t, nil)
	readOnly, readWrite := filepath.Join(host.Dir, "ro"), filepath.Join(host.Dir, "rw")
	for _, dir := range []string{readOnly, readWrite} {
		if err := os.Mkdir(dir, 0o777); err != nil { // the sandbox's user is another
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil { // likewise
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("granted\n"), 0o666); err != nil { // likewise
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "f"), 0o666); err != nil { // likewise
			t.Fatal(err)
		}
	}
	if err := os.Chmod(host.Dir, 0o755); err != nil { // likewise
		t.Fatal(err)
	}
	s := host.Open(t, sandbox.Config{Manifest: &spec.Manifest{Root: spec.DefaultRoot, Grants: []spec.PathGrant{
		{Path: "/ro", HostPath: readOnly, ReadOnly: true}, {Path: "/rw", HostPath: readWrite},
	}}})
	f := filesystem.New(s, filesystem.Config{})

	t.Run("forms", func(t *testing.T) {
		text := "*** Begin Patch\n*** Add File: %s\n+made\n*** End Patch\n"
		for name, c := range map[string]struct {
			support   model.Support
			kind      model.ToolKind
			arguments string
		}{
			"custom":         {custom, model.ToolCustom, fmt.Sprintf(text, "f1")},
			"function":       {function, model.ToolFunction, encode(t, map[string]string{"patch": fmt.Sprintf(text, "f2")})},
			"text in a func": {function, model.ToolFunction, fmt.Sprintf(text, "f3")},
			"built in":       {builtin, model.ToolPatch, encode(t, map[string]any{"type": "create_file", "path": "f4", "diff": "+made\n"})},
		} {
			if kind := f.Tools(c.support)[0].Spec().Kind; kind != c.kind {
				t.Errorf("%s: offered as %v", name, kind)
			}
			if res := call(t.Context(), t, f, c.support, "apply_patch", c.arguments); res.Error != nil || !strings.HasPrefix(res.Text, "Patch applied:\nA f") {
				t.Errorf("%s: %+v, %+v", name, res, res.Error)
			}
		}
		if got := localtest.Sh(t, s, "cat f1 f2 f3 f4"); got != "made\nmade\nmade\nmade" {
			t.Errorf("%q", got)
		}
	})

	t.Run("bytes", func(t *testing.T) {
		for name, c := range map[string]struct{ old, want string }{
			"crlf":       {"a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"},
			"mixed":      {"a\nb\r\nc\n", "a\nB\r\nc\n"},
			"bom":        {"\ufeffa\nb\nc\n", "\ufeffa\nB\nc\n"},
			"no newline": {"a\nb\nc", "a\nB\nc"},
			"trailing":   {"a\nb\nc\n\n\n", "a\nB\nc\n\n\n"},
		} {
			write(t, s, "bytes.txt", c.old, 0o640)
			res := patch(t, f, "*** Update File: bytes.txt", "@@", " a", "-b", "+B", " c")
			if got := localtest.Read(t, s, "bytes.txt"); res.Error != nil || got != c.want {
				t.Errorf("%s: %q, want %q (%+v)", name, got, c.want, res.Error)
			}
		}
		if got := localtest.Sh(t, s, "stat -c %a bytes.txt"); got != "640" {
			t.Errorf("mode %s", got)
		}
	})

	t.Run("files as they are", func(t *testing.T) {
		localtest.Sh(t, s, `printf 'x\n' > run.sh; chmod 751 run.sh; printf 'x\n' > target; ln -s target link; printf 'x\n' > one; ln one two; printf 'x\n' > "odd name é"`)
		for _, name := range []string{"run.sh", "link", "one", "odd name é"} {
			if res := patch(t, f, "*** Update File: "+name, "@@", "-x", "+y"); res.Error != nil {
				t.Errorf("%s: %+v", name, res.Error)
			}
		}
		if got := localtest.Sh(t, s, "stat -c %a run.sh; readlink link; cat target two one; stat -c %h one; cat odd*"); got != "751\ntarget\ny\ny\ny\n2\ny" {
			t.Errorf("%q", got)
		}
		// Moving keeps the mode, deleting a link keeps what it points to.
		if res := patch(t, f, "*** Update File: run.sh", "*** Move to: deep/er/moved.sh", "@@", "-y", "+z", "*** Delete File: link"); res.Error != nil {
			t.Errorf("%+v", res.Error)
		}
		if got := localtest.Sh(t, s, "stat -c %a deep/er/moved.sh; cat deep/er/moved.sh target; ls run.sh link 2>/dev/null; true"); got != "751\nz\ny" {
			t.Errorf("%q", got)
		}
	})

	t.Run("outside", func(t *testing.T) {
		localtest.Sh(t, s, "ln -s /etc/passwd out; ln -s /etc etc; ln -s ../../../../etc/hostname up")
		for _, name := range []string{"../x", "/etc/x", "etc/x", "/ro/new", "/proc/self/environ", "a/../../x"} {
			if res := patch(t, f, "*** Add File: "+name, "+x"); res.Error == nil {
				t.Errorf("%s was made: %+v", name, res)
			}
		}
		for _, name := range []string{"out", "up", "/etc/passwd", "etc/passwd"} {
			if res := patch(t, f, "*** Delete File: etc/passwd"); res.Error == nil {
				t.Errorf("%s was deleted: %+v", name, res)
			}
			if res := patch(t, f, "*** Update File: "+name, "@@", "-x", "+y"); res.Error == nil || res.Error.Retryable {
				t.Errorf("%s: %+v", name, res)
			}
		}
	})

	t.Run("all or nothing", func(t *testing.T) {
		localtest.Sh(t, s, "printf 'x\\n' > a; mkdir -p d; printf 'x\\n' > gone; rm -f made")
		for name, last := range map[string][]string{
			"read only":   {"*** Update File: /ro/f", "@@", "-granted", "+changed"},
			"directory":   {"*** Update File: d", "@@", "-x", "+y"},
			"missing":     {"*** Update File: no/such", "@@", "-x", "+y"},
			"mismatch":    {"*** Update File: gone", "@@", "-other", "+y"},
			"exists":      {"*** Add File: gone", "+x"},
			"under file":  {"*** Add File: gone/x", "+x"},
			"delete dir":  {"*** Delete File: d"},
			"move over":   {"*** Update File: gone", "*** Move to: a", "@@", "-x", "+y"},
			"into ro":     {"*** Update File: gone", "*** Move to: /ro/new", "@@", "-x", "+y"},
			"no such ref": {"*** Delete File: nothing"},
		} {
			res := patch(t, f, append([]string{"*** Update File: a", "@@", "-x", "+y", "*** Add File: made", "+m"}, last...)...)
			if res.Error == nil || res.Error.Code == "" || res.Error.Message == "" {
				t.Errorf("%s: %+v", name, res)
			}
			if got := localtest.Sh(t, s, "cat a gone /ro/f; ls made d no 2>/dev/null; true"); got != "x\nx\ngranted\nd:" && got != "x\nx\ngranted" {
				t.Errorf("%s: something was changed: %q", name, got)
			}
		}
		// What was deleted already comes back as it was.
		localtest.Sh(t, s, "printf 'x\\n' > old; chmod 751 old")
		if res := patch(t, f, "*** Delete File: old", "*** Delete File: /ro/f"); res.Error == nil || res.Error.Code == "" {
			t.Errorf("%+v", res)
		}
		if got := localtest.Sh(t, s, "stat -c %a old; cat old"); got != "751\nx" {
			t.Errorf("%q", got)
		}
		// A granted directory that may be written takes part.
		if res := patch(t, f, "*** Update File: a", "@@", "-x", "+y", "*** Update File: /rw/f", "@@", "-granted", "+changed"); res.Error != nil {
			t.Errorf("%+v", res.Error)
		}
		if b, err := os.ReadFile(filepath.Join(readWrite, "f")); err != nil || string(b) != "changed\n" {
			t.Errorf("%q, %v", b, err)
		}
	})

	t.Run("changed meanwhile", func(t *testing.T) {
		write(t, s, "race", "x\n", 0)
		meddling := filesystem.New(&meddler{FileSystem: s, path: "race", meddle: func() { localtest.Sh(t, s, "printf 'x\\nby a command\\n' > race") }}, filesystem.Config{})
		res := patch(t, meddling, "*** Update File: race", "@@", "-x", "+y")
		if res.Error == nil || res.Error.Hint == "" || !res.Error.Retryable {
			t.Errorf("%+v, %+v", res, res.Error)
		}
		if got := localtest.Read(t, s, "race"); got != "x\nby a command\n" {
			t.Errorf("the command's change was lost: %q", got)
		}
	})

	t.Run("in a directory", func(t *testing.T) {
		localtest.Sh(t, s, "mkdir -p sub")
		own := filesystem.New(s, filesystem.Config{Dir: "sub"})
		if res := patch(t, own, "*** Add File: here", "+x", "*** Add File: /workspace/there", "+x"); res.Error != nil {
			t.Errorf("%+v", res.Error)
		}
		localtest.Sh(t, s, "test -e sub/here && test -e there")
	})
}

// meddler changes a file after it was read.
type meddler struct {
	driver.FileSystem
	path   string
	meddle func()
}

func (m *meddler) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	if m.meddle != nil && path == m.path {
		m.meddle()
		m.meddle = nil
	}
	return m.FileSystem.Write(ctx, path, opts, r)
}

func TestViewImage(t *testing.T) {
	host := localtest.New(t, nil)
	s := host.Open(t, sandbox.Config{})
	f := filesystem.New(s, filesystem.Config{})
	img := image.NewPaletted(image.Rect(0, 0, 2, 2), color.Palette{color.Black, color.White})
	var p, j, g bytes.Buffer
	if err := png.Encode(&p, img); err != nil {
		t.Fatal(err)
	}
	if err := jpeg.Encode(&j, img, nil); err != nil {
		t.Fatal(err)
	}
	if err := gif.Encode(&g, img, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ content, mime string }{
		"a.png": {p.String(), "image/png"}, "wrong-name.txt": {j.String(), "image/jpeg"}, "a.gif": {g.String(), "image/gif"},
		"a.webp": {"RIFF\x04\x00\x00\x00WEBPVP8 ", "image/webp"},
	} {
		write(t, s, name, c.content, 0)
		res := call(t.Context(), t, f, custom, "view_image", encode(t, map[string]string{"path": name, "detail": "low"}))
		if res.Error != nil || len(res.Images) != 1 || res.Images[0].MIME != c.mime || string(res.Images[0].Data) != c.content || res.Images[0].Detail != "low" {
			t.Errorf("%s: %+v", name, res)
		}
	}
	localtest.Sh(t, s, "head -c 10485761 /dev/zero > big; echo text > t; mkdir d; mkfifo pipe; ln -s /etc/passwd out; ln -s a.png link; : > empty")
	if res := call(t.Context(), t, f, custom, "view_image", `{"path":"/workspace/link"}`); res.Error != nil {
		t.Errorf("%+v", res.Error)
	}
	for arguments, code := range map[string]string{
		`{"path":"big"}`: "image_too_large", `{"path":"t"}`: "image_unsupported", `{"path":"empty"}`: "image_unsupported",
		`{"path":"no"}`: "file_not_found", `{}`: tool.CodeArguments, `{"path":3}`: tool.CodeArguments, `{"path":"out"}`: "path_escapes",
		`{"path":"d"}`: "", `{"path":"pipe"}`: "", `{"path":"../../etc/passwd"}`: "path_escapes", `{"path":"a\u0000b"}`: "",
	} {
		res := call(t.Context(), t, f, custom, "view_image", arguments)
		if res.Error == nil || (code != "" && res.Error.Code != code) {
			t.Errorf("%s: %+v, want %s", arguments, res.Error, code)
		}
	}
	if res := call(t.Context(), t, f, model.Support{}, "view_image", `{"path":"a.png"}`); res.Error == nil || res.Error.Code != "images_unsupported" {
		t.Errorf("%+v", res)
	}
}
