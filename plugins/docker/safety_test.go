// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/box"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// What a container may not do by default, seen from inside.
func TestSafeByDefault(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		req.SecretEnv = map[string]string{"TOKEN": "s3cr3t-value"}
		s := f.create(t, req)
		// No capability beyond those that the description names, of whatever kind.
		mask := capabilities(t, settings.DefaultCapabilities)
		got := sh(t, s, `grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t' | tr '\n' ' '; ulimit -n; ulimit -c; ls /sys/class/net`)
		want := fmt.Sprintf("CapInh:%016x CapPrm:%[2]s CapEff:%[2]s CapBnd:%[2]s CapAmb:%016[1]x NoNewPrivs:1 Seccomp:2 4096\n0\nlo", 0, mask)
		if inh := strings.Replace(want, "CapInh:0000000000000000", "CapInh:"+mask, 1); got != want && got != inh { // older engines make them inheritable
			t.Errorf("%q, want %q", got, want)
		}
		c, err := box.Find(t.Context(), f.e, req.SandboxID)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(c)
		if err != nil || bytes.Contains(b, []byte("s3cr3t-value")) {
			t.Errorf("the engine knows a secret: %v", err)
		}
		if h := c.HostConfig; *h.PidsLimit != 1024 || h.Memory != 4<<30 || h.MemorySwap != 4<<30 || (!h.IpcMode.IsPrivate() && !f.e.Podman) || h.Privileged {
			t.Errorf("%+v", h)
		}
		// Root inside does not look into the guest, which knows the key and the secrets.
		if got := sh(t, s, "cat /proc/1/environ 2>/dev/null | grep -c s3cr3t; ls -l /proc/1/fd 2>/dev/null | grep -c pipe; true"); config["guest"] == "required" && got != "0\n0" {
			t.Errorf("%q", got)
		}
		report := map[string]driver.Isolation{}
		for _, i := range inspect(t, s).Isolation {
			report[i.Axis] = i
		}
		if report["network"].Strength != 3 || report["limits"].Strength != 2 || report["kill"].Strength == 0 {
			t.Errorf("%+v", report)
		}
	})
}

// capabilities gives a set of them as the kernel shows it.
func capabilities(t testing.TB, names []string) string {
	t.Helper()
	numbers := map[string]int{
		"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "NET_BIND_SERVICE": 10,
	}
	mask := uint64(0)
	for _, name := range names {
		n, ok := numbers[name]
		if !ok {
			t.Fatalf("%s is one more than the defaults that were argued for", name)
		}
		mask |= 1 << n
	}
	return fmt.Sprintf("%016x", mask)
}

func TestLimits(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		s := f.create(t, request(t, with(config, map[string]any{
			"processes": 64, "memory": 64 << 20, "cpus": 1, "file_size": 1 << 20, "open_files": 100, "shared_memory": 1 << 20,
		})))
		if config["guest"] == "required" { // the engine's exec could not end them: it needs processes itself
			ctx, cancel := context.WithCancelCause(t.Context())
			var said bytes.Buffer
			_, err := s.Run(ctx, &driver.Command{
				Argv: []string{"sh", "-c", "sh -c 'i=0; while [ $i -lt 100 ]; do sleep 4717 & i=$((i+1)); done'; while :; do :; done"},
			}, driver.Streams{Stderr: writerFunc(func(p []byte) (int, error) {
				if said.Write(p); strings.Contains(said.String(), "fork") {
					cancel(errLeft)
				}
				return len(p), nil
			})})
			if !errors.Is(err, errLeft) {
				t.Errorf("100 processes of 64: %v, %q", err, said.String())
			}
		}
		if _, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", "head -c 2000000 /dev/zero > big"}}); exit.Code == 0 {
			t.Error("a file of 2 MB where 1 MiB is allowed")
		}
		if _, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", "head -c 2000000 /dev/zero > /dev/shm/big"}}); exit.Code == 0 {
			t.Error("2 MB in 1 MiB of shared memory")
		}
		if got := sh(t, s, "ulimit -n"); got != "100" {
			t.Errorf("%q", got)
		}
		// What takes too much is ended, and it is known why. Nothing else ends.
		_, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", "exec tail -c 200000000 /dev/zero"}})
		if exit.Code != 137 || config["guest"] == "required" && (!exit.OOM || exit.Signal != "KILL") {
			t.Errorf("%+v", exit)
		}
		if got := sh(t, s, "echo alive"); got != "alive" {
			t.Errorf("%q", got)
		}
	})
}

// The limits of the request go before those of the block.
func TestRequestedLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, map[string]any{"network": "bridge"})
	req.Limits = driver.ResourceLimits{Processes: 77, MemoryBytes: 128 << 20, CPUs: 0.5, FileBytes: 5 << 20, OpenFiles: 222}
	req.Network = driver.NetworkPolicy{Mode: "none"}
	s := f.create(t, req)
	if got := sh(t, s, "ls /sys/class/net; ulimit -n; ulimit -f"); got != "lo\n222\n10240" {
		t.Errorf("%q", got)
	}
	c, err := box.Find(t.Context(), f.e, req.SandboxID)
	if err != nil {
		t.Fatal(err)
	}
	if h := c.HostConfig; *h.PidsLimit != 77 || h.Memory != 128<<20 || h.NanoCPUs != 5e8 {
		t.Errorf("%+v", h)
	}
	req = request(t, nil)
	req.Network = driver.NetworkPolicy{Mode: "allow_list", Allow: []string{"example.com"}}
	if _, err := f.Create(t.Context(), req); !errors.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
}

// Without capabilities nobody is root in effect, and the guest is the default user itself.
func TestNoCapabilities(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		s := f.create(t, request(t, with(config, map[string]any{"capabilities": []string{}, "user": "1234:1234"})))
		if got := sh(t, s, "id -u; touch file && stat -c %u:%g file .; grep CapBnd /proc/self/status | tr -d '\t'"); got != "1234\n1234:1234\n1234:1234\nCapBnd:0000000000000000" {
			t.Errorf("%q", got)
		}
		if config["guest"] != "required" {
			return
		}
		_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"true"}, User: "root"}, driver.Streams{})
		if !errors.Is(err, errs.PermissionDenied) {
			t.Errorf("another user: %v", err)
		}
	})
}

func TestKnobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	profile := filepath.Join(t.TempDir(), "seccomp.json")
	if err := os.WriteFile(profile, []byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	volume := "berth-test-" + strings.ToLower(request(t, nil).SandboxID)
	t.Cleanup(func() {
		if _, err := f.e.VolumeRemove(context.WithoutCancel(t.Context()), volume, client.VolumeRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	req := request(t, map[string]any{
		"seccomp": profile, "no_new_privileges": false, "labels": map[string]string{"team": "search"}, "network": "bridge",
		"dns": []string{"192.0.2.53"}, "extra_hosts": []string{"proxy:192.0.2.9"}, "volumes": map[string]string{"/cache": volume},
		"devices": []string{"/dev/zero:/dev/naught:r"}, "capabilities": []string{"CHOWN", "SETUID", "SETGID", "NET_RAW"},
	})
	s, err := f.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := sh(t, s, "mkdir d 2>/dev/null || echo no mkdir; grep NoNewPrivs /proc/self/status | tr -d '\t'; grep -c 192.0.2.53 /etc/resolv.conf; grep proxy /etc/hosts | tr '\t' ' '; echo kept > /cache/f; head -c 1 /dev/naught | od -An -c | tr -d ' '")
	if got != "no mkdir\nNoNewPrivs:0\n1\n192.0.2.9 proxy\n\\0" {
		t.Errorf("%q", got)
	}
	c, err := box.Find(t.Context(), f.e, req.SandboxID)
	if err != nil || c.Config.Labels["team"] != "search" {
		t.Errorf("%v, %v", c, err)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The volume outlives the sandbox.
	again := f.create(t, request(t, map[string]any{"volumes": map[string]string{"/cache": volume + ":ro"}}))
	if got := sh(t, again, "cat /cache/f; (echo x > /cache/f) 2>/dev/null || echo refused"); got != "kept\nrefused" {
		t.Errorf("%q", got)
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]struct {
		config    map[string]any
		attribute string
	}{
		"runtime":      {map[string]any{"runtime": "no-such-runtime"}, "runtime"},
		"cpus":         {map[string]any{"cpus": 1000}, "cpus"},
		"network":      {map[string]any{"network": "no-such-network"}, "network"},
		"host network": {map[string]any{"network": "host"}, "network"},
		"other's":      {map[string]any{"network": "container:abc"}, "network"},
		"tmpfs":        {map[string]any{"tmpfs": map[string]string{"relative": "1MiB"}}, "tmpfs"},
		"volumes":      {map[string]any{"volumes": map[string]string{"/x": "/etc"}}, "volumes"},
		"disk":         {map[string]any{"disk": 1 << 30}, "disk"},
		"capabilities": {map[string]any{"capabilities": []string{"NO_SUCH_CAPABILITY"}}, "capabilities"},
		"dns":          {map[string]any{"dns": []string{"one.one"}}, "dns"},
		"platform":     {map[string]any{"platform": "windows/amd64"}, "platform"},
		"seccomp":      {map[string]any{"seccomp": "/no/such/file"}, "seccomp"},
		"named user":   {map[string]any{"capabilities": []string{}, "user": "app"}, ""},
	} {
		req := request(t, c.config)
		_, err := f.Create(t.Context(), req)
		var e *errs.Error
		if !errors.As(err, &e) || e.Code != errs.ConfigInvalid {
			t.Errorf("%s: %v (%s)", name, err, errs.CodeOf(err))
			continue
		}
		if c.attribute != "" && (len(e.Path) == 0 || e.Path[0].Attribute != c.attribute) {
			t.Errorf("%s: %v says nothing of %s: %+v", name, err, c.attribute, e.Path)
		}
		if name == "disk" && (!strings.Contains(err.Error(), f.e.Storage()) || !strings.Contains(err.Error(), f.e.Where) || !strings.Contains(e.Hint, "pquota")) {
			t.Errorf("it does not say what, where and how to mend it: %v, %s", err, e.Hint)
		}
		if n := f.containers(t, req.SandboxID); n != 0 {
			t.Errorf("%s: %d containers are left", name, n)
		}
	}
}
