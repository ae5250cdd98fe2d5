// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/internal/storagetest"
	"github.com/berth-dev/berth/internal/testbin"
	mounts "github.com/berth-dev/berth/mounts/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// TestMounts brings a bucket into a container that has no capability, no network and another user than root.
func TestMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may mount into a container")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("this machine has no FUSE")
	}
	f := newFixture(t)
	if !f.e.Local {
		t.Skip("the engine is on another machine")
	}
	s3 := storagetest.NewS3(t, "acme")
	s3.Put(t, "acme", "docs/a.txt", "alpha\n")
	dir := localtest.Dir(t)
	host := &mount.Host{Program: testbin.Mount(t), RunDir: filepath.Join(dir, "r"), CacheDir: filepath.Join(dir, "c"), Environ: os.Environ()}
	req := request(t, map[string]any{"image": busyboxImage(t), "user": "1000:1000", "capabilities": []string{}, "network": "none"})
	s := f.create(t, req)
	entry := func(path string, readOnly bool) *spec.Entry {
		return &spec.Entry{Kind: spec.EntryMount, Path: path, Mount: &spec.MountEntry{
			Kind: mounts.S3, ReadOnly: readOnly, Strategy: mounts.Auto, Settings: map[string]any{"flush": "turn"},
			Fields: map[string]any{"bucket": "acme", "endpoint_url": s3.Endpoint, "region": "us-east-1"},
			Credentials: map[string]value.Secret{
				"access_key_id": value.PlainSecret(s3.KeyID), "secret_access_key": value.PlainSecret(s3.Key),
			},
		}}
	}
	set, err := host.Attach(t.Context(), mount.Session{
		ID: req.SandboxID, Driver: "docker", Sandbox: s, Mounts: mounts.Describe("docker"), Emit: func(event.Data) {},
		Entries: []*spec.Entry{entry("in", true), entry("out", false)},
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	t.Cleanup(func() {
		if !closed {
			_ = set.Close(context.WithoutCancel(t.Context())) // the test has failed already
		}
	})
	got := sh(t, s, `cat in/docs/a.txt; echo new > out/new.txt; echo more >> out/new.txt; mkdir out/d; mv out/new.txt out/d/moved.txt; cat out/d/moved.txt
		stat -c %u:%g out/d/moved.txt; grep CapEff /proc/self/status | tr -d '\t'; ls /dev/fuse 2>/dev/null; id -u`)
	if want := "alpha\nnew\nmore\n1000:1000\nCapEff:0000000000000000\n1000"; strings.TrimSpace(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, script := range []string{"echo x > in/x", "rm in/docs/a.txt", "umount in"} {
		if out, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", script}}); exit.Code == 0 {
			t.Errorf("%s: %s", script, out)
		}
	}
	out := sh(t, s, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat /proc/self/mountinfo")
	if strings.Contains(out, s3.KeyID) || strings.Contains(out, s3.Key) {
		t.Error("the container sees a key")
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed = true
	if err := set.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s3.Has("acme", "d/moved.txt", "new\nmore\n") {
		t.Error("what was written is not in the storage")
	}
}
