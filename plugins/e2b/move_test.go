// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// moveImage is a container image with a busybox and nothing else.
const moveImage = "berth-test-move:1"

// busyboxImage makes the image in the engine that the docker command talks to.
func busyboxImage(t *testing.T) {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("there is no busybox to make an image of: %v", err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.CommandContext(t.Context(), busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	add := func(h *tar.Header, content []byte) {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))}, program)
	for name := range strings.FieldsSeq(string(names)) {
		if name != "busybox" {
			add(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	add(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	passwd := []byte("root:x:0:0:root:/:/bin/sh\n")
	add(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(passwd))}, passwd)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "docker", "import", "-", moveImage)
	cmd.Stdin = &image
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("there is no container engine to move to: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "image", "rm", moveImage).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// fill makes what a workspace holds, and listing tells all of it but owners, which are each sandbox's own.
const (
	fill = `mkdir -p src/deep empty && printf 'one\r\ntwo' > src/deep/crlf && head -c 3000000 /dev/zero | tr '\0' x > big && ln big same &&
ln -s src/deep/crlf link && ln -s nowhere dangling && echo '#!/bin/sh' > run.sh && chmod 750 run.sh && echo odd > "a b  'c'" && : > nothing`
	listing = `find . | sort | while IFS= read -r f; do
  if [ -L "$f" ]; then echo "$f -> $(readlink "$f")"; elif [ -d "$f" ]; then echo "$f $(stat -c %a "$f")"; else echo "$f $(stat -c '%a %s %h' "$f") $(sha256sum < "$f")"; fi
done`
)

// A session moves from this machine to the vendor and on into a container. The workspace stays what it was.
func TestSessionMoves(t *testing.T) {
	s := newService(t)
	busyboxImage(t)
	const project = `
sandbox "here" {
  driver = "unixlocal"
  session {
    key    = "work"
    source = "resume_or_create"
  }
}
sandbox "cloud" {
  driver = "e2b"
}
sandbox "box" {
  driver = "docker"
  config {
    image = "` + moveImage + `"
    pull  = "never"
  }
}
`
	run := s.project(t, project, "unixlocal", "e2b", "docker").run
	run("run", "--sandbox", "here", "--replay", "transcript.jsonl", ".", "Where are you?")
	run("session", "exec", "work", "--", "sh", "-c", fill)
	want := run("session", "exec", "work", "--", "sh", "-c", listing)
	if !strings.Contains(want, "./same") || !strings.Contains(want, "./dangling -> nowhere") {
		t.Fatalf("the workspace holds\n%s", want)
	}
	for _, to := range []string{"cloud", "box"} {
		run("session", "move", "work", "--sandbox", to)
		if got := run("session", "exec", "work", "--", "sh", "-c", listing); got != want {
			t.Errorf("in sandbox %q the workspace is\n%s\nand was\n%s", to, got, want)
		}
		if alive := len(s.fake.Alive()); (to == "cloud") != (alive == 1) {
			t.Errorf("after the move to %q the vendor has %d sandboxes", to, alive)
		}
	}
	// Somebody works on where it has come to.
	if got := run("session", "exec", "work", "--", "sh", "-c", "echo more >> 'a b  '\"'c'\"; cat a*"); got != "odd\nmore\n" {
		t.Errorf("%q", got)
	}
	run("session", "rm", "work")
}
