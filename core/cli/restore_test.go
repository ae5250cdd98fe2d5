// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// refused runs a command that has to fail, and gives what it said.
func (p *place) refused(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		p.t.Errorf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// says wants all the texts in what a command said.
func (p *place) says(said string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			p.t.Errorf("there is no %q in:\n%s", text, said)
		}
	}
}

// A restore that cannot be done leaves the workspace that is there, and says why and what to do. The driver's files are on a
// disk that is nearly full.
func TestRestoreFails(t *testing.T) {
	p := &place{t: t, dir: ramDir(t), berth: filepath.Join(programs(t), "berth")}
	drivers := filepath.Join(p.dir, ".local", "state", "berth", "drivers")
	if err := os.MkdirAll(drivers, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", drivers, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(drivers, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p.write("main.berth.hcl", `sandbox "box" {
  driver = "unixlocal"

  session {
    key    = "dev"
    source = "resume_or_create"
    at_end = "stop"
  }
}

`+worker)
	p.run("exec", ".", "--", "sh", "-c", "mkdir d; echo mine > d/file; ln -s d/file link")
	t.Cleanup(func() { p.run("session", "rm", "dev") })
	keeps := func(what string) {
		t.Helper()
		if got := p.run("session", "exec", "dev", "--", "sh", "-c", "find . | sort | tr '\\n' ' '; cat link"); got != ". ./d ./d/file ./link mine" {
			t.Errorf("%s: the workspace holds %q", what, got)
		}
	}
	p.run("session", "snapshot", "--name", "small", "dev")

	// What another workspace held: more than there is room for.
	large := make([]byte, 40<<20)
	rand.NewChaCha8([32]byte{}).Read(large)
	p.run("snapshot", "import", "--name", "large", p.archive("large.tar", &tar.Header{Name: "large", Mode: 0o644, Size: int64(len(large))}, large))
	said := p.refused("session", "restore", "--discard", "dev", "large")
	p.says(said, "could not be restored", "no space left", "hint:")
	keeps("a full disk")

	// A hostile import makes no snapshot.
	for name, h := range map[string]*tar.Header{
		"up":       {Name: "../../etc/cron.d/x", Mode: 0o644},
		"absolute": {Name: "/etc/passwd", Mode: 0o644},
		"hard":     {Name: "a", Typeflag: tar.TypeLink, Linkname: "../../../etc/passwd"},
	} {
		said := p.refused("snapshot", "import", "--name", "hostile", p.archive(name+".tar", h, nil))
		p.says(said, "import: ", strings.TrimPrefix(h.Name, "/"))
	}
	p.says(p.refused("session", "restore", "--discard", "dev", "hostile"), `there is no snapshot "hostile"`, "hint: berth snapshot list")

	// It works when it can; what was there is kept aside.
	p.run("session", "exec", "dev", "--", "sh", "-c", "echo other > d/file; echo more > more")
	back := p.command("session", "restore", "dev", "small")
	out, err := back.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	keeps("a restore")
	_, rest, _ := strings.Cut(string(out), "the workspace as it was is snapshot ")
	aside, _, _ := strings.Cut(rest, ",")
	if shown := p.run("snapshot", "show", "--files", aside); !strings.Contains(shown, "more") {
		t.Errorf("snapshot %q holds\n%s", aside, shown)
	}

	// Two processes at once: one has the session, and the other one is told who.
	hold := p.command("session", "exec", "dev", "--", "sh", "-c", "echo ready; cat")
	in, err1 := hold.StdinPipe()
	ready, err2 := hold.StdoutPipe()
	if err := errors.Join(err1, err2, hold.Start()); err != nil {
		t.Fatal(err)
	}
	if b := make([]byte, 1); second(ready.Read(b)) != nil {
		t.Fatal("the command did not begin")
	}
	p.says(p.refused("session", "restore", "dev", "small"), "in use by process", "hint:")
	if err := errors.Join(in.Close(), hold.Wait()); err != nil {
		t.Error(err)
	}
	keeps("two at once")

	// The store is damaged: in a chunk, in an index that is cut off, in a record.
	store := filepath.Join(p.dir, ".berth", "snapshots")
	spoil := func(kind string, edit func([]byte) []byte) (restore func()) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(store, kind, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%v, %v", files, err)
		}
		was := map[string][]byte{}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(f, edit(bytes.Clone(b)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			was[f] = b
		}
		return func() {
			for f, b := range was {
				if err := os.WriteFile(f, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		what, kind string
		edit       func([]byte) []byte
	}{
		{"a chunk", "packs", func(b []byte) []byte { b[len(b)/3] ^= 1; return b }},
		{"half an index", "packs", func(b []byte) []byte { return b[:len(b)/2] }},
		{"half a record", "snapshots", func(b []byte) []byte { return b[:len(b)/2] }},
	} {
		restore := spoil(c.kind, c.edit)
		id := "large"
		if c.kind == "packs" {
			id = "small"
		}
		said := p.refused("session", "restore", "--discard", "dev", id)
		p.says(said, "is damaged", c.kind+"/", "hint:")
		restore()
		keeps(c.what)
	}
	p.run("snapshot", "verify")
	p.run("session", "restore", "--discard", "dev", "small")
	keeps("the store is whole again")
}

func second[T any](_ T, err error) error { return err }

// archive writes a tar with one member.
func (p *place) archive(name string, h *tar.Header, content []byte) string {
	p.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(h)
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		p.t.Fatal(err)
	}
	p.write(name, b.String())
	return name
}
