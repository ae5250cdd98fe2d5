// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
)

// project is a directory with the ten-line example and sandbox blocks of its own, that the command line works in.
type project struct {
	t    *testing.T
	argv []string
	dir  string
	env  []string
}

// project makes one. The drivers are built from these sources; e2b's talks to the fake.
func (s *service) project(t *testing.T, blocks string, drivers ...string) *project {
	t.Helper()
	home := t.TempDir()
	p := &project{t: t, dir: t.TempDir(), argv: []string{testbin.Berth(t)}}
	for _, name := range drivers {
		p.argv = append(p.argv, "--driver-binary", name+"="+testbin.Driver(t, name))
	}
	p.argv = append(p.argv, "--chdir", p.dir)
	p.env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home,
		"E2B_API_KEY="+fakee2b.Key, "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url)
	if err := os.CopyFS(p.dir, os.DirFS(filepath.Join("../../examples", "ten-lines"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "sandbox.berth.hcl"), []byte(blocks), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *project) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), p.argv[0], append(p.argv[1:len(p.argv):len(p.argv)], args...)...)
	cmd.Env = p.env
	return cmd
}

// run gives what a command printed; it must not fail.
func (p *project) run(args ...string) string {
	p.t.Helper()
	cmd := p.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && strings.Contains(stderr.String(), "isolation") {
		p.t.Skipf("this machine cannot make such a sandbox: %s", stderr.String())
	}
	if err != nil {
		p.t.Fatalf("berth %v: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}
