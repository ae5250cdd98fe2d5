// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testbin"
)

// dockerImage gives a small image with a shell, made for this test; it skips the test where there is no engine, but in CI.
func dockerImage(t *testing.T) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("there is no container engine, which CI needs: %v, %s", err, out)
		}
		t.Skipf("there is no container engine: %v", err)
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not installed (busybox-static)")
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.CommandContext(t.Context(), path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, body string) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin/", "etc/", "root/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, "")
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, "")
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, string(program))
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, "root:x:0:0:root:/root:/bin/sh\n")
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			add(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, "")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("berth-cli-test-%d:%s", os.Getpid(), strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"))
	load := exec.CommandContext(t.Context(), "docker", "import", "--change", "ENV PATH=/bin", "-", name)
	load.Stdin = &b
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load an image: %v, %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "rmi", "--force", name).CombinedOutput(); err != nil {
			t.Errorf("an image is left: %v, %s", err, out)
		}
	})
	return name
}

// withDocker is the directory of a project whose sandboxes are box, containers, and here, of this machine. What of their
// sessions is left at the end is removed.
func withDocker(t *testing.T, session, rest string) *place {
	t.Helper()
	bin := programs(t)
	image := dockerImage(t)
	testbin.Driver(t, "docker")
	p := &place{t: t, dir: ramDir(t), berth: filepath.Join(bin, "berth")}
	p.write("main.berth.hcl", fmt.Sprintf(`sandbox "box" {
  driver = "docker"

  config {
    image   = %q
    pull    = "never"
    network = "none"
  }
%s}

sandbox "here" {
  driver = "unixlocal"
%s}

%s`, image, session, session, rest))
	t.Cleanup(func() {
		var all []struct{ ID string }
		b, err := p.command("session", "list", "--json").Output()
		if err == nil {
			err = json.Unmarshal(b, &all)
		}
		for _, s := range all {
			p.run("session", "rm", s.ID)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return p
}

// place is a directory that berth works in.
type place struct {
	t          *testing.T
	dir, berth string
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.berth, args...) // also for cleanups, when the test's context has ended
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "HOME="+p.dir)
	return cmd
}

// run gives what a command printed; it must not fail.
func (p *place) run(args ...string) string {
	p.t.Helper()
	cmd := p.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("berth %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return strings.TrimRight(string(out), "\n")
}

const worker = `agent "helper" {
  instructions = "Help."
}

run "default" {
  agent   = agent.helper
  sandbox = sandbox.box
  input   = "go"
}
`

// A container is forked as an image, which goes with the fork; it is moved to this machine and back.
func TestForkContainers(t *testing.T) {
	p := withDocker(t, "", worker)
	p.write("t.jsonl", `{"berth_transcript": 1}
{"calls": [{"tool": "exec_command", "args": {"cmd": "echo work > file; echo installed > /bin/tool", "login": false}}]}
{"say": "done"}
`)
	p.run("run", "--keep", "--replay", "t.jsonl", ".")
	origin := strings.Fields(strings.Split(p.run("session", "list"), "\n")[1])[0]
	fork := p.run("session", "fork", "--key", "fork", origin)
	if got := p.run("session", "exec", "fork", "--", "sh", "-c", "cat file /bin/tool; echo theirs > file"); got != "work\ninstalled" {
		t.Errorf("%q", got)
	}
	if got := p.run("session", "exec", origin, "--", "cat", "file"); got != "work" {
		t.Errorf("%q", got)
	}
	images := func() string {
		out, err := exec.CommandContext(t.Context(), "docker", "images", "--all", "--quiet", "--filter", "label=dev.berth.snapshot="+strings.ToLower(origin)).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	had := images()
	p.run("session", "rm", fork)
	if left := images(); had == "" || left != "" {
		t.Errorf("images were %q, and %q are left", had, left)
	}

	moved := p.run("session", "move", origin, "--sandbox", "here")
	if got := p.run("session", "exec", moved, "--", "sh", "-c", "cat file; echo more >> file"); got != "work" {
		t.Errorf("%q", got)
	}
	back := p.run("session", "move", moved, "--sandbox", "box")
	if got := p.run("session", "exec", back, "--", "cat", "file"); got != "work\nmore" {
		t.Errorf("%q", got)
	}
	if list := p.run("session", "list", "--json"); strings.Count(list, `"id"`) != 1 {
		t.Errorf("%s", list)
	}
}

// A workspace with everything that is easily lost comes through a container, this machine and a container again, with
// all but what is listed.
func TestNastyWorkspace(t *testing.T) {
	p := withDocker(t, "\n  session {\n    at_end = \"stop\"\n  }\n\n  archive_limits {\n    max_extracted_bytes = \"4GiB\"\n  }\n", worker)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(p.dir, "nasty"), "./testdata/nasty")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	venv := exec.CommandContext(t.Context(), "sh", "-ec", `python3 -m venv --without-pip venv
git init -q repo && cd repo && for i in 1 2 3; do echo $i > f$i; git add .; git -c user.name=a -c user.email=a@b commit -qm $i; done && git gc -q && ls .git/objects/pack/*.pack`)
	venv.Dir = p.dir
	if out, err := venv.CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	newSession := func(args ...string) string {
		before := p.run("session", "list", "--json")
		p.run(append(args, ".", "--", "true")...)
		var all []struct{ ID string }
		if err := json.Unmarshal([]byte(p.run("session", "list", "--json")), &all); err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if !strings.Contains(before, s.ID) {
				return s.ID
			}
		}
		t.Fatal("there is no new session")
		return ""
	}
	first := newSession("exec", "--keep", "--sandbox", "box")
	for _, name := range []string{"nasty", "venv", "repo"} {
		p.run("session", "cp", name, first+":"+name)
	}
	p.run("session", "exec", first, "--", "sh", "-ec", "./nasty; rm nasty")

	snap := func(session, name string) string {
		text := p.run("session", "snapshot", "--name", name, session)
		p.run("session", "rm", session)
		return text
	}
	if said := snap(first, "one"); !strings.Contains(said, "fifo: FIFO") || !strings.Contains(said, "socket: socket") || strings.Count(said, "\n") != 3 {
		t.Errorf("what is left out:\n%s", said)
	}
	for _, hop := range []struct{ block, from, name string }{{"here", "one", "two"}, {"box", "two", "three"}} {
		s := newSession("exec", "--keep", "--sandbox", hop.block, "--from-snapshot", hop.from)
		if said := snap(s, hop.name); strings.Contains(said, "not in it") {
			t.Errorf("%s: something was left out that was there:\n%s", hop.name, said)
		}
	}
	// Owners are those of each sandbox; all else is the same.
	want := p.run("snapshot", "show", "--files", "one")
	if !strings.Contains(want, "hard ") || strings.Count(want, "\n") < 50 {
		t.Errorf("%s", want)
	}
	for _, name := range []string{"two", "three"} {
		if got := p.run("snapshot", "show", "--files", name); got != want {
			t.Errorf("%s has other files:\n%s\nwas\n%s", name, got, want)
		}
		for line := range strings.Lines(p.run("snapshot", "diff", "one", name)) {
			if !strings.HasPrefix(line, "m ") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if out := p.run("snapshot", "diff", "one", "three"); out != "" {
		t.Errorf("there and back again, this differs:\n%s", out)
	}
}

// A call waits for a decision; its process ends, its container is stopped from outside, another process decides, and a
// third one goes on.
func TestApproveOverStoppedContainer(t *testing.T) {
	p := withDocker(t, "", strings.Replace(worker, "\n}\n\nrun", "\n\n  approvals {\n    default = \"ask\"\n  }\n}\n\nrun", 1))
	p.write("t.jsonl", `{"berth_transcript": 1}
{"calls": [{"tool": "exec_command", "args": {"cmd": "echo approved >> file; cat file", "login": false}}]}
{"expect": ["approved"], "say": "over"}
`)
	run := p.command("run", "--replay", "t.jsonl", ".")
	out, _ := run.CombinedOutput() // the code counts
	if code := run.ProcessState.ExitCode(); code != 5 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	id := runLine.FindStringSubmatch(string(out))[1]
	box, err := exec.CommandContext(t.Context(), "docker", "ps", "--all", "--quiet", "--filter", "label=dev.berth.label.berth.run="+id).Output()
	if err != nil || len(bytes.Fields(box)) != 1 {
		t.Fatalf("the run's container: %q, %v", box, err)
	}
	container := strings.TrimSpace(string(box))
	for _, what := range [][]string{{"start", container}, {"stop", "--time", "1", container}} {
		if out, err := exec.CommandContext(t.Context(), "docker", what...).CombinedOutput(); err != nil {
			t.Fatalf("docker %v: %v, %s", what, err, out)
		}
	}
	p.run("approve", id)
	if got := p.run("resume", id); got != "over" {
		t.Errorf("%q", got)
	}
}

// The driver's own snapshot lies beside the portable one where nothing is left out. What begins with it has what is outside
// of the workspace too, and without it the portable one is enough. It goes with its record.
func TestNativeBeside(t *testing.T) {
	p := withDocker(t, "\n  snapshot \"local\" {}\n", worker)
	said := func(script string) string {
		return p.run("exec", "--quiet", "--sandbox", "box", ".", "--", "sh", "-c", script)
	}
	type saved struct {
		ID     string
		Native *struct{ ID string }
	}
	list := func() (all []saved) {
		if err := json.Unmarshal([]byte(p.run("snapshot", "list", "--json", "--sandbox", "box")), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	// images are those of snapshots that the engine still has; a later one may need an earlier one, which has no name then.
	images := func(all []saved, unnamed bool) (out []string) {
		for _, s := range all {
			if s.Native == nil {
				continue
			}
			n, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", "--format", "{{len .RepoTags}}", s.Native.ID).Output()
			if err == nil && (unnamed || strings.TrimSpace(string(n)) != "0") {
				out = append(out, s.Native.ID)
			}
		}
		return out
	}
	said("echo kept > file; echo installed > /etc/tool")
	if got := said("cat file /etc/tool"); got != "kept\ninstalled" {
		t.Errorf("%q", got)
	}
	if n := len(images(list(), false)); n != 1 {
		t.Errorf("%d snapshots of the driver's are kept, and the newest is wanted", n)
	}
	// Made with something else it begins with the portable one, and so when the driver has lost its own.
	text, err := os.ReadFile(filepath.Join(p.dir, "main.berth.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`image   = "(.*)"`).FindStringSubmatch(string(text))[1]
	if out, err := exec.CommandContext(t.Context(), "docker", "tag", image, image+"-other").CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "rmi", image+"-other").CombinedOutput(); err != nil {
			t.Errorf("an image is left: %v, %s", err, out)
		}
	})
	p.write("main.berth.hcl", strings.Replace(string(text), image, image+"-other", 1))
	if got := said("cat file; cat /etc/tool 2>/dev/null || echo fresh"); got != "kept\nfresh" {
		t.Errorf("%q", got)
	}
	for _, image := range images(list(), false) {
		if out, err := exec.CommandContext(t.Context(), "docker", "rmi", "--force", image).CombinedOutput(); err != nil {
			t.Fatalf("%v, %s", err, out)
		}
	}
	if got := said("cat file"); got != "kept" {
		t.Errorf("%q", got)
	}
	all := list()
	if len(images(all, false)) != 1 || len(all) != 4 {
		t.Errorf("%+v", all)
	}
	for _, s := range all {
		p.run("snapshot", "rm", "--sandbox", "box", s.ID)
	}
	if left := images(all, true); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}
