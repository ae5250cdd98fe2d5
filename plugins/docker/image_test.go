// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// An image needs nothing inside: not a shell, not a user, not a directory.
func TestBareImage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, map[string]any{"image": bareImage(t), "guest": settings.GuestRequired})
	req.Workspace.Root = "/srv/deep/workspace"
	s := f.create(t, req)
	if out, exit := try(t, s, &driver.Command{Argv: []string{"/program", "-version"}}); exit.Code != 0 || out == "" {
		t.Errorf("%+v, %q", exit, out)
	}
	files := s.(driver.FileSystem)
	if _, err := files.Write(t.Context(), "a/b", driver.WriteOptions{Parents: true}, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	res, err := files.Stat(t.Context(), []string{"a/b", "/srv/deep/workspace"}, driver.StatOptions{})
	if err != nil || res[0].Err != nil || res[0].Info.UID != 0 || res[1].Info.Mode != 0o755 {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "true"}}, driver.Streams{})
	if !errors.Is(err, errs.ExecNotFound) {
		t.Errorf("%v", err)
	}
}

// The image's user is that of commands and files, also as a number that has no name.
func TestImageUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for user, want := range map[string]string{"app": "1234 1234\n1234:1234", "4242:77": "4242 77\n4242:77", "4242": "4242 4242\n4242:4242"} {
		image := loaded(t, "user-"+strings.ReplaceAll(user, ":", "-"), runtime.GOARCH, busybox(t), map[string]any{
			"User": user, "Volumes": map[string]any{"/data": map[string]any{}}, "WorkingDir": "/elsewhere", "Entrypoint": []string{"/bin/false"},
		})
		for _, guest := range []string{settings.GuestRequired, settings.GuestNever} {
			if user == "4242" && guest == settings.GuestNever {
				continue // the engine gives such a user the group of root
			}
			s := f.create(t, request(t, map[string]any{"image": image, "guest": guest}))
			if got := sh(t, s, "echo $(id -u) $(id -g); touch mine; stat -c %u:%g mine"); got != want {
				t.Errorf("%s, guest %s: %q, want %q", user, guest, got, want)
			}
			if got := sh(t, s, "pwd; stat -c %u . ; grep -c . /proc/self/status > /dev/null && echo alive"); !strings.HasPrefix(got, "/workspace\n"+want[:4]) {
				t.Errorf("%q", got)
			}
		}
	}
}

func TestReadOnlyRoot(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		before := f.volumes(t)
		s := f.create(t, request(t, with(config, map[string]any{"read_only_root": true, "user": "app", "tmpfs": map[string]string{"/run/x": "1MiB"}})))
		if got := sh(t, s, "(echo x > /etc/x) 2>/dev/null || echo refused; echo x > x && echo x > /tmp/x && cat x; (head -c 2000000 /dev/zero > /run/x/big) 2>/dev/null || echo full; stat -c %U ."); got != "refused\nx\nfull\napp" {
			t.Errorf("%q", got)
		}
		if _, err := filesOf(s).Write(t.Context(), "y", driver.WriteOptions{}, strings.NewReader("y")); err != nil {
			t.Error(err)
		}
		if _, err := s.(driver.NativeSnapshotter).Snapshot(t.Context(), "", false, nil); !errors.Is(err, errs.Unsupported) {
			t.Errorf("%v", err)
		}
		made := len(f.volumes(t)) > len(before)
		if err := s.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !made {
			t.Log("other tests removed volumes meanwhile")
		}
	})
}

// The usual image of a careful service: a number for a user, and nothing of the image can be changed.
func TestCarefulImage(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		image := loaded(t, "careful", runtime.GOARCH, busybox(t), map[string]any{"User": "65532:65532", "Env": []string{"PATH=/bin"}})
		s := f.create(t, request(t, with(config, map[string]any{"image": image, "read_only_root": true})))
		got := sh(t, s, "id -u; grep -E '^Cap(Eff|Prm)' /proc/self/status | tr -d '\t'; (echo x > /etc/x) 2>/dev/null || echo refused; echo mine > mine; stat -c %u:%g mine; cat mine; (echo x > /bin/x) 2>/dev/null || echo refused")
		if got != "65532\nCapPrm:0000000000000000\nCapEff:0000000000000000\nrefused\n65532:65532\nmine\nrefused" {
			t.Errorf("%q", got)
		}
		if _, err := filesOf(s).Write(t.Context(), "deep/by-api", driver.WriteOptions{Parents: true}, strings.NewReader("y")); err != nil {
			t.Error(err)
		}
		if got := sh(t, s, "stat -c %u:%g deep deep/by-api; cat deep/by-api"); got != "65532:65532\n65532:65532\ny" {
			t.Errorf("%q", got)
		}
	})
}

func TestOtherProcessor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := loaded(t, "other", otherArch, busybox(t), nil)
	_, err := f.Create(t.Context(), request(t, map[string]any{"image": other}))
	if !errors.Is(err, errs.ConfigInvalid) || !strings.Contains(err.Error(), otherArch) {
		t.Errorf("%v", err)
	}
	// A processor that no guest is built for: the engine's own means take its place, and it is said.
	strange := loaded(t, "strange", "riscv64", busybox(t), nil)
	req := request(t, map[string]any{"image": strange, "platform": "linux/riscv64"})
	var said []string
	req.Progress = func(p driver.Progress) { said = append(said, p.Message) }
	s := f.create(t, req)
	if got := sh(t, s, "echo works; touch file"); got != "works" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(strings.Join(said, "\n"), "without berth's guest") || !strings.Contains(inspect(t, s).Display["guest"], "riscv64") {
		t.Errorf("nobody says that there is no guest: %q, %v", said, inspect(t, s).Display)
	}
	req = request(t, map[string]any{"image": strange, "platform": "linux/riscv64", "guest": settings.GuestRequired})
	if _, err := f.Create(t.Context(), req); !errors.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
}

// A guest that the kernel does not start.
func TestGuestCannotRun(t *testing.T) {
	f := newFixture(t)
	broken := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(broken, bytes.Repeat([]byte("no program\n"), 100), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(inside.EnvGuest, broken)
	req := request(t, nil)
	s := f.create(t, req)
	if got := sh(t, s, "echo works"); got != "works" {
		t.Errorf("%q", got)
	}
	if why := inspect(t, s).Display["guest"]; !strings.Contains(why, "none:") {
		t.Errorf("%q", why)
	}
	if n := f.containers(t, req.SandboxID); n != 1 {
		t.Errorf("%d containers", n)
	}
	if _, err := f.Create(t.Context(), request(t, map[string]any{"guest": settings.GuestRequired})); !errors.Is(err, errs.StartFailed) {
		t.Errorf("%v", err)
	}
	// Neither way works.
	bare := request(t, map[string]any{"image": bareImage(t)})
	_, err := f.Create(t.Context(), bare)
	var e *errs.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "sh") {
		t.Errorf("%v", err)
	}
	if n := f.containers(t, bare.SandboxID); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}

func TestPullPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		pull, image string
		code        errs.Code
	}{
		{"never", "berth-test-no-such-image:1", errs.ConfigInvalid},
		{"missing", "127.0.0.1:1/no/such/image:1", errs.CreateFailed},
		{"always", "127.0.0.1:1/no/such/image:1", errs.CreateFailed},
		{"missing", "Not A Name", errs.ConfigInvalid},
	} {
		req := request(t, map[string]any{"image": c.image, "pull": c.pull})
		if _, err := f.Create(t.Context(), req); errs.CodeOf(err) != c.code {
			t.Errorf("%+v: %v (%s)", c, err, errs.CodeOf(err))
		}
	}
	s := f.create(t, request(t, map[string]any{"pull": "missing"}))
	if got := sh(t, s, "echo it was there"); got != "it was there" {
		t.Errorf("%q", got)
	}
}
