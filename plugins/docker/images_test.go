// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Images as people have them, each through a sandbox's whole life: with a distribution in it, with no shell, with nothing at
// all, and with a number for a user and a root that nobody writes to.
func TestImagesTried(t *testing.T) {
	guest, err := os.ReadFile(builtGuest)
	if err != nil {
		t.Fatal(err)
	}
	program := entry{name: "program", mode: 0o755, body: guest}
	careful := map[string]any{"User": "65532:65532", "WorkingDir": "/home/nonroot"}
	readOnly := map[string]any{"read_only_root": true}
	for _, img := range []tried{
		{name: "debian", image: debian, run: []string{"/bin/bash", "-c", `. /etc/os-release; echo "$ID $0 $(dpkg-query -W -f '${Status}' base-files)"`}, says: "debian /bin/bash install ok installed\n", shell: true},
		{name: "busybox", image: busyboxImage, run: []string{"sh", "-c", "id -un; echo $GREETING"}, says: "root\nhello\n", shell: true},
		{name: "static", files: []entry{program}, run: []string{"/program", "-version"}},
		{name: "empty"},
		{name: "careful-static", files: []entry{program}, meta: careful, config: readOnly, run: []string{"/program", "-version"}, owner: 65532},
		{name: "careful-empty", meta: careful, config: readOnly, owner: 65532},
		{name: "careful-debian", image: debian, config: map[string]any{"read_only_root": true, "user": "65532:65532"}, run: []string{"/bin/sh", "-c", "id -u; echo x 2>/dev/null >/etc/x || echo refused"}, says: "65532\nrefused\n", shell: true, owner: 65532},
	} {
		t.Run(img.name, func(t *testing.T) {
			both(t, func(t *testing.T, f *fixture, config map[string]any) { img.live(t, f, config) })
		})
	}
}

// tried is an image and what is to be seen in it.
type tried struct {
	name   string
	image  func(testing.TB) string // nil = one of the files
	files  []entry
	meta   map[string]any // configuration of the image
	config map[string]any // of the sandbox
	run    []string       // a program of the image; nil = there is none
	says   string         // what it prints; empty = anything
	shell  bool
	owner  uint32 // of what is made in the workspace
}

// live takes a sandbox through its life.
func (i tried) live(t *testing.T, f *fixture, config map[string]any) {
	image := i.image
	if image == nil {
		image = func(t testing.TB) string { return loaded(t, i.name, runtime.GOARCH, i.files, i.meta) }
	}
	req := request(t, with(with(config, i.config), map[string]any{"image": image(t)}))
	s, err := f.Create(t.Context(), req)
	if config["guest"] == settings.GuestNever && !i.shell {
		// The engine has nothing to run; the error says so and what would help, and nothing is left.
		var e *errs.Error
		if !errors.As(err, &e) || e.Code != errs.StartFailed || !strings.Contains(e.Hint, "sh and sleep") || !strings.Contains(e.Hint, `guest = "never"`) {
			t.Errorf("%v", err)
		}
		if n := f.containers(t, req.SandboxID); n != 0 {
			t.Errorf("%d containers are left", n)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	f.destroyAfter(t, s)
	i.runs(t, s)
	i.keeps(t, s)
	if err := s.(driver.Stopper).Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if s, err = f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()}); err != nil {
		t.Fatal(err)
	}
	f.destroyAfter(t, s)
	i.runs(t, s)
	if got := contentOf(t, s, "tree/sub/b"); got != "B" {
		t.Errorf("after a stop and a resume: %q", got)
	}
	mine := f.ownVolumes(t, req.SandboxID)
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.containers(t, req.SandboxID); n != 0 {
		t.Errorf("%d containers are left", n)
	}
	if left := f.ownVolumes(t, req.SandboxID); len(left) > 0 || (len(mine) == 0) != (i.config["read_only_root"] == nil) {
		t.Errorf("its volumes were %v, and %v are left", mine, left)
	}
}

// runs starts what there is, and what there is not.
func (i tried) runs(t *testing.T, s driver.Sandbox) {
	t.Helper()
	if i.run != nil {
		if out, exit := try(t, s, &driver.Command{Argv: i.run}); exit.Code != 0 || out == "" || (i.says != "" && out != i.says) {
			t.Errorf("%+v, %q", exit, out)
		}
	}
	if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"no-such-program"}}, driver.Streams{}); !errors.Is(err, errs.ExecNotFound) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// keeps moves files and a tree in and out.
func (i tried) keeps(t *testing.T, s driver.Sandbox) {
	t.Helper()
	files := filesOf(s)
	if _, err := files.Write(t.Context(), "deep/er/file", driver.WriteOptions{Parents: true, Mode: 0o640}, strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	if err := files.Move(t.Context(), "deep/er/file", "deep/moved", false, ""); err != nil {
		t.Error(err)
	}
	if got := contentOf(t, s, "deep/moved"); got != "content" {
		t.Errorf("%q", got)
	}
	res, err := files.Stat(t.Context(), []string{"deep/moved", "deep", "deep/er/file"}, driver.StatOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at := res[0].Info; res[0].Err != nil || at.Size != 7 || at.Mode != 0o640 || at.UID != i.owner || res[1].Info.UID != i.owner || !errors.Is(res[2].Err, errs.FileNotFound) {
		t.Errorf("%+v", res)
	}
	if _, err := files.Write(t.Context(), "/etc/made", driver.WriteOptions{}, strings.NewReader("x")); !errors.Is(err, errs.PathEscapes) {
		t.Errorf("a file outside the workspace: %v", err)
	}
	want := map[string]string{"a": "A", "sub/b": "B", "link": "-> sub/b"}
	if _, err := files.Import(t.Context(), driver.ImportOptions{Path: "tree"}, bytes.NewReader(tarOf(t, want))); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for info, err := range files.List(t.Context(), "tree", driver.ListOptions{Recursive: true}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, strings.TrimPrefix(info.Path, "tree/"))
	}
	slices.Sort(listed)
	if !slices.Equal(listed, []string{"a", "link", "sub", "sub/b"}) {
		t.Errorf("%q", listed)
	}
	var out bytes.Buffer
	if err := files.Export(t.Context(), driver.ExportOptions{Path: "tree"}, &out); err != nil {
		t.Fatal(err)
	}
	if got := untar(t, &out); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := files.Remove(t.Context(), "deep", true, ""); err != nil {
		t.Error(err)
	}
}

func contentOf(t testing.TB, s driver.Sandbox, name string) string {
	t.Helper()
	_, r, err := filesOf(s).Open(t.Context(), name, driver.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// untar gives the files and links of an archive, in the words of tarOf.
func untar(t testing.TB, r io.Reader) map[string]string {
	t.Helper()
	out := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		switch h.Typeflag {
		case tar.TypeReg:
			b, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(b)
		case tar.TypeSymlink:
			out[name] = "-> " + h.Linkname
		}
	}
}

// ownVolumes are those that were made for a sandbox.
func (f *fixture) ownVolumes(t testing.TB, id string) []string {
	t.Helper()
	list, err := f.e.VolumeList(t.Context(), client.VolumeListOptions{Filters: client.Filters{}.Add("label", plan.LabelSandbox+"="+id)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range list.Items {
		names = append(names, v.Name)
	}
	return names
}
