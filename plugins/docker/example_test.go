// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/plan"
)

// hostImage is an image with some of this machine's own programs, and what they are linked with.
func hostImage(t testing.TB) string {
	t.Helper()
	entries := []entry{{name: "tmp/", mode: 0o1777}, {name: "etc/", mode: 0o755}, {name: "bin/", mode: 0o755}}
	have := map[string]bool{}
	add := func(path, as string) {
		as = strings.TrimPrefix(as, "/")
		if have[as] {
			return
		}
		have[as] = true
		b, err := os.ReadFile(path)
		if err != nil {
			t.Skipf("the example needs programs of this machine: %v", err)
		}
		entries = append(entries, entry{name: as, mode: 0o755, body: b})
	}
	library := regexp.MustCompile(`(?m)(?:=> )?(/\S+) \(0x`)
	for _, p := range []string{"sh", "bash", "cat", "ls", "date", "awk", "mkdir", "env", "wc", "ps", "id", "touch", "rm", "uname", "grep"} {
		path, err := exec.LookPath(p)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			t.Skipf("the example needs %s: %v", p, err)
		}
		add(path, "bin/"+p)
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			continue // it is static
		}
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			add(m[1], m[1])
		}
	}
	return loaded(t, "host", runtime.GOARCH, entries, map[string]any{"Env": []string{"PATH=/bin", "LANG=C.UTF-8"}})
}

// The examples run as they are, with another driver.
func examples(t *testing.T, c *command) {
	image := hostImage(t)
	run := func(dir string, args ...string) string {
		t.Helper()
		out, err := c.in(t.Context(), dir, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("berth %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for name, prompt := range map[string][]string{"renewal-packet": nil, "ten-lines": {".", "Where are you?"}} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../examples", name))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeFrom(t, image) }) // what a run that failed keeps
		block := "sandbox \"box\" {\n  driver = \"docker\"\n  config {\n    image   = \"" + image + "\"\n    network = \"none\"\n  }\n}\n"
		if err := os.WriteFile(filepath.Join(dir, "sandbox.berth.hcl"), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		out := run(dir, append([]string{"run", "--replay", "transcript.jsonl"}, prompt...)...)
		if !strings.Contains(out, "completed") {
			t.Errorf("%s: %s", name, out)
		}
		if out := run(dir, "exec", "--", "sh", "-c", "echo works in $(pwd)"); !strings.Contains(out, "works in /workspace") {
			t.Errorf("%s: %s", name, out)
		}
	}
	if n := removeFrom(t, image); n > 0 {
		t.Errorf("%d containers are left", n)
	}
}

// removeFrom removes the sandboxes that were made from an image, and gives their number.
func removeFrom(t testing.TB, image string) int {
	t.Helper()
	e := needEngine(t)
	list, err := e.ContainerList(context.WithoutCancel(t.Context()), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("ancestor", image).Add("label", plan.LabelSandbox)})
	if err != nil {
		t.Error(err)
	}
	for _, c := range list.Items {
		if _, err := e.ContainerRemove(context.WithoutCancel(t.Context()), c.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
	return len(list.Items)
}
