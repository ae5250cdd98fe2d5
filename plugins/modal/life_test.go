// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// What Modal is asked for is what the configuration says.
func TestAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.vendor.AddSecret("named", map[string]string{"FROM_SECRET": "s3cr3t"})
	req := request(t, map[string]any{
		"cpu": 0.5, "cpu_limit": 2, "memory": 256 << 20, "memory_limit": 1 << 30, "disk": 2 << 30, "regions": []string{"eu"}, "cloud": "aws",
		"non_preemptible": true, "timeout": 1800, "idle_timeout": 90, "secrets": []string{"named"}, "tags": map[string]string{"team": "search"},
		"volumes": map[string]string{"/cache": "cache", "/data": "data/sub:ro"}, "unencrypted_ports": []int{5432}, "h2_ports": []int{8443},
		"outbound_domains": []string{"*.example.com"}, "experimental_options": map[string]string{"x": "true"}, "runtime": "gvisor", "oidc_token": true,
		"dockerfile_commands": []string{`ENV BUILT="yes"`, "RUN echo built > /built"},
	})
	req.Ports, req.Labels = []uint16{8000}, map[string]string{"berth.run": "r1"}
	req.Env, req.SecretEnv = map[string]string{"PLAIN": "p"}, map[string]string{"HIDDEN": "h1dd3n"}
	s := f.create(t, req)
	if got := sh(t, s, `echo "$FROM_SECRET $PLAIN $HIDDEN $BUILT $(cat /built)"; echo v > /cache/f; (echo v > /data/f) 2>/dev/null || echo read-only`); got != "s3cr3t p h1dd3n yes built\nread-only" {
		t.Errorf("%q", got)
	}
	def, tags := f.vendor.Definition(f.vendor.ByName(req.SandboxID))
	r := def.GetResources()
	if r.GetMilliCpu() != 500 || r.GetMilliCpuMax() != 2000 || r.GetMemoryMb() != 256 || r.GetMemoryMbMax() != 1024 || r.GetEphemeralDiskMb() != 2048 {
		t.Errorf("resources: %v", r)
	}
	if p := def.GetSchedulerPlacement(); !slices.Equal(p.GetRegions(), []string{"eu"}) || !p.GetNonpreemptible() || def.GetCloudProviderStr() != "aws" {
		t.Errorf("placement: %v", p)
	}
	if def.GetTimeoutSecs() != 1800 || def.GetIdleTimeoutSecs() != 90 || def.GetRuntime() != "gvisor" || !def.GetIncludeOidcIdentityToken() || def.GetExperimentalOptionsV2()["x"] != "true" {
		t.Errorf("%v", def)
	}
	if a := def.GetNetworkAccess(); a.GetNetworkAccessType() != pb.NetworkAccess_ALLOWLIST || !slices.Equal(a.GetAllowedDomains(), []string{"*.example.com"}) {
		t.Errorf("network: %v", a)
	}
	if len(def.GetOpenPorts().GetPorts()) != 3 || tags["team"] != "search" || tags["berth-sandbox"] != req.SandboxID || tags["berth-label-berth.run"] != "r1" {
		t.Errorf("%v, %v", def.GetOpenPorts(), tags)
	}
	// The core's environment goes to the guest, and not through Modal's records.
	for _, c := range f.vendor.Calls("SandboxCreateV2") {
		if text := c.Request.(*pb.SandboxCreateV2Request).String(); strings.Contains(text, "h1dd3n") {
			t.Error("a secret of the environment was sent to the control plane")
		}
	}
}

// A sandbox that ends by itself says why: it is never taken for a time limit of the caller's, and never made again.
func TestEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for reason, status := range map[string]pb.GenericResult_GenericStatus{
		"timeout": pb.GenericResult_GENERIC_STATUS_TIMEOUT, "idle_timeout": pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT,
		"terminated": pb.GenericResult_GENERIC_STATUS_TERMINATED, "evicted": pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION,
	} {
		t.Run(reason, func(t *testing.T) {
			req := request(t, map[string]any{"exit_snapshot": reason == "timeout"})
			s := f.create(t, req)
			sh(t, s, "echo saved > f")
			events := make(chan driver.Event, 16)
			watched := make(chan error, 1)
			go func() { watched <- s.Watch(t.Context(), func(e driver.Event) { events <- e }) }()
			_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sleep", "4718"}}, driver.Streams{OnStart: func(driver.Started) {
				go f.vendor.End(f.vendor.ByName(req.SandboxID), status)
			}})
			var e *errs.Error
			if !errors.As(err, &e) || e.Code != errs.SandboxGone || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("the command that was cut off: %v", err)
			}
			if err := <-watched; err != nil {
				t.Errorf("watch: %v", err)
			}
			close(events)
			var last driver.Event
			for last = range events {
			}
			if last.Kind != driver.EventDied && (reason != "evicted" || last.Kind != driver.EventOutOfMemory) {
				t.Errorf("%+v", last)
			}
			_, err = f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State(), Config: req.Config})
			if !errors.As(err, &e) || e.Code != errs.SandboxGone || e.Context["reason"] != reason {
				t.Fatalf("resume: %v, %+v", err, e)
			}
			if n := len(f.vendor.Running()); n != 0 {
				t.Errorf("%d sandboxes run", n)
			}
			if reason != "timeout" {
				return
			}
			// Its files are not lost: the error names the snapshot.
			again := request(t, nil)
			again.NativeSnapshot = e.Context["snapshot"]
			if got := sh(t, f.create(t, again), "cat f"); got != "saved" {
				t.Errorf("%q", got)
			}
		})
	}
}

// Time limits of commands and callers end the command and nothing else.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.create(t, request(t, nil))
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "setsid sleep 4719 & sleep 4719 & wait"}, Timeout: 200 * time.Millisecond}, driver.Streams{})
	if err != nil || !exit.TimedOut {
		t.Errorf("%+v, %v", exit, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, &driver.Command{Argv: []string{"sleep", "4719"}}, driver.Streams{}); !errors.Is(err, errs.Canceled) {
		t.Errorf("a caller's limit: %v", err)
	}
	if got := sh(t, s, "ps | grep -c '[s]leep 4719' || true"); got != "0" {
		t.Errorf("%s processes are left", got)
	}
}

// A stopped sandbox costs nothing, and comes back from its files, wherever they are.
func TestStopAndResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	req.Accounts = driver.Accounts{Users: []string{"worker"}}
	s := f.create(t, req)
	sh(t, s, "echo work > f; echo beside > /opt-file")
	if err := s.Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if len(f.vendor.Running()) != 0 || len(f.vendor.Images()) != 1 {
		t.Errorf("%v run, snapshots %v", f.vendor.Running(), f.vendor.Images())
	}
	other := driverFor(t, f.vendor, nil)
	resume := &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State(), Config: req.Config}
	again, err := other.Resume(t.Context(), resume)
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat f /opt-file; id -un worker"); got != "work\nbeside\nworker" {
		t.Errorf("%q", got)
	}
	if again.(driver.Reattached).Reattached() || !again.(driver.Preserved).WorkspacePreserved() {
		t.Error("it says that its processes are there, or its workspace is not")
	}
	// The next stop replaces the snapshot, and the end removes it.
	if err := again.(driver.Stopper).Stop(t.Context(), true); err != nil || len(f.vendor.Images()) != 1 {
		t.Errorf("%v, snapshots %v", err, f.vendor.Images())
	}
	if err := again.Destroy(t.Context()); err != nil || len(f.vendor.Images()) != 0 {
		t.Errorf("%v, snapshots %v", err, f.vendor.Images())
	}
	resume.State = again.State()
	if _, err := other.Resume(t.Context(), resume); !errors.Is(err, errs.SandboxGone) {
		t.Errorf("%v", err)
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, kind := range []string{"filesystem", "directory"} {
		req := request(t, map[string]any{"snapshots": kind})
		s := f.create(t, req)
		sh(t, s, "echo saved > f; echo beside > /beside")
		snap, err := s.Snapshot(t.Context(), "a name", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		sh(t, s, "echo later > f")
		restored := request(t, nil)
		restored.NativeSnapshot = snap.ID
		again := f.create(t, restored)
		want := map[string]string{"filesystem": "saved\nbeside", "directory": "saved\nnothing"}[kind]
		if got := sh(t, again, "cat f; cat /beside 2>/dev/null || echo nothing"); got != want {
			t.Errorf("%s: %q", kind, got)
		}
		if !again.WorkspacePreserved() {
			t.Errorf("%s: its workspace is said to be empty", kind)
		}
	}
	missing := request(t, nil)
	missing.NativeSnapshot = "im-that-is-not-there"
	if _, err := f.Create(t.Context(), missing); !errors.Is(err, errs.SnapshotUnusable) {
		t.Errorf("%v", err)
	}
	s := f.create(t, request(t, nil))
	if _, err := s.Snapshot(t.Context(), "", true, nil); !errors.Is(err, errs.Unsupported) {
		t.Errorf("with memory: %v", err)
	}
}

// Buckets are Modal's own mounts; their credentials go to Modal and never into the sandbox.
func TestBuckets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir, err := f.vendor.AddBucket("inputs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "2026/q3"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "2026/q3/report"), []byte("figures"), 0o644); err != nil {
		t.Fatal(err)
	}
	mount := driver.MountSpec{
		ID: "m", Kind: "r2", Path: "in", ReadOnly: true, Strategy: "native",
		Source:      schema.Value{JSON: []byte(`{"bucket":"inputs","prefix":"2026/q3","account_id":"0123abcd"}`)},
		Credentials: map[string]string{"access_key_id": "AKIDCANARY", "secret_access_key": "bucket-canary"},
	}
	req := request(t, nil)
	req.Mounts = []driver.MountSpec{mount}
	s := f.create(t, req)
	if got := sh(t, s, "cat in/report; (echo x > in/x) 2>/dev/null || echo read-only; env | grep -c bucket-canary || true"); got != "figuresread-only\n0" {
		t.Errorf("%q", got)
	}
	def, _ := f.vendor.Definition(f.vendor.ByName(req.SandboxID))
	m := def.GetCloudBucketMounts()[0]
	if m.GetKeyPrefix() != "2026/q3/" || m.GetBucketType() != pb.CloudBucketMount_R2 || m.GetBucketEndpointUrl() != "https://0123abcd.r2.cloudflarestorage.com" || m.GetMountPath() != "/workspace/in" {
		t.Errorf("%v", m)
	}
	if strings.Contains(string(s.State().Data), "canary") {
		t.Error("the state holds a credential")
	}
	for name, change := range map[string]func(*driver.MountSpec){
		"another kind":          func(m *driver.MountSpec) { m.Kind = "azure_blob" },
		"another strategy":      func(m *driver.MountSpec) { m.Strategy = "in_container" },
		"no bucket":             func(m *driver.MountSpec) { m.Source = schema.Value{JSON: []byte(`{}`)} },
		"both kinds of secret":  func(m *driver.MountSpec) { m.StrategyConfig = schema.Value{JSON: []byte(`{"secret_name":"x"}`)} },
		"a key of another kind": func(m *driver.MountSpec) { m.Credentials = map[string]string{"access_token": "x"} },
		"a bucket that is not":  func(m *driver.MountSpec) { m.Source = schema.Value{JSON: []byte(`{"bucket":"outputs"}`)} },
		"a secret that is not": func(m *driver.MountSpec) {
			m.Credentials, m.StrategyConfig = nil, schema.Value{JSON: []byte(`{"secret_name":"x"}`)}
		},
		"half of the pair":       func(m *driver.MountSpec) { m.Credentials = map[string]string{"access_key_id": "x"} },
		"what cannot be decoded": func(m *driver.MountSpec) { m.Source = schema.Value{JSON: []byte(`{"bucket":7}`)} },
	} {
		bad := mount
		change(&bad)
		req := request(t, nil)
		req.Mounts = []driver.MountSpec{bad}
		if s, err := f.Create(t.Context(), req); err == nil {
			t.Errorf("%s: it was taken", name)
			f.destroyAfter(t, s)
		} else if c := errs.CodeOf(err); c == errs.Internal || strings.Contains(err.Error(), "bucket-canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(f.vendor.Running()); n != 1 {
		t.Errorf("%d sandboxes run", n)
	}
}

// GPUs need Modal's older backend, whose calls are others.
func TestGPU(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, map[string]any{"gpu": "T4:2"})
	s := f.create(t, req)
	if got := sh(t, s, "echo works"); got != "works" {
		t.Errorf("%q", got)
	}
	id := f.vendor.ByName(req.SandboxID)
	def, _ := f.vendor.Definition(id)
	if g := def.GetResources().GetGpuConfig(); g.GetGpuType() != "T4" || g.GetCount() != 2 || len(id) != len("sb-")+22 {
		t.Errorf("%v, %s", g, id)
	}
	again, err := driverFor(t, f.vendor, nil).Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State(), Config: req.Config})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "echo still"); got != "still" || !again.(driver.Reattached).Reattached() {
		t.Errorf("%q", got)
	}
}

// The token, and what is made from it, shows nowhere.
func TestTokenIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	req.SecretEnv = map[string]string{"HIDDEN": "canary-of-the-environment"}
	s := f.create(t, req)
	var out bytes.Buffer
	if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline"}}, driver.Streams{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"the sandbox": out.String(), "the state": string(s.State().Data), "the log": f.log.String()}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		b, _ := os.ReadFile(p) // it may have ended
		texts["the arguments of a process"] += string(b)
	}
	bad := driverFor(t, f.vendor, map[string]any{"token_secret": "as-canary-that-is-wrong"})
	_, err = bad.Create(t.Context(), request(t, nil))
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.AuthFailed || e.Hint == "" {
		t.Errorf("a wrong token: %v", err)
	}
	texts["an error"] = err.Error() + e.Hint + e.Vendor.Message
	for where, text := range texts {
		for _, secret := range []string{tokenSecret, tokenID, "as-canary-that-is-wrong", string(f.key(req.SandboxID))} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %q", where, secret)
			}
		}
	}
	if strings.Contains(f.log.String()+texts["the state"], "canary-of-the-environment") {
		t.Error("the log or the state holds a secret of the environment")
	}
}

// Nothing goes on in the background once a sandbox is gone.
func TestNothingIsLeft(t *testing.T) {
	v := newVendor(t)
	f := driverFor(t, v, nil)
	cycle := func() {
		s, err := f.Create(t.Context(), request(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		sh(t, s, "echo x")
		if err := s.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := 0
	eventually(t, "the first sandbox is gone", func() bool {
		n := runtime.NumGoroutine()
		settled := n == before
		before = n
		return settled
	})
	cycle()
	eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	if left := v.Running(); len(left) > 0 {
		t.Errorf("%v run", left)
	}
}
