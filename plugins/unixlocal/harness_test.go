// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/confine/probe"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve"
)

// TestMain builds the guest once.
func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		serve.Main(New)
	}
	if len(os.Args) == 5 && os.Args[1] == "driver-process" {
		if err := driverProcess(os.Args[2:]); err != nil {
			panic(err)
		}
	}
	code := func() int {
		if os.Getenv(machine.EnvGuest) == "" {
			dir, err := os.MkdirTemp("", "berth-guest-")
			if err != nil {
				panic(err)
			}
			defer func() { _ = os.RemoveAll(dir) }()
			if err := os.Chmod(dir, 0o755); err != nil {
				panic(err)
			}
			guest := filepath.Join(dir, "berth-guest")
			build := exec.Command("go", "build", "-tags", "berth_guest", "-trimpath", "-ldflags", "-s -w", "-o", guest, "github.com/berth-dev/berth/sdk/guest/cmd/berth-guest")
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				panic(string(out))
			}
			if err := os.Setenv(machine.EnvGuest, guest); err != nil {
				panic(err)
			}
		}
		return m.Run()
	}()
	os.Exit(code)
}

// fixture is a driver with directories of its own.
type fixture struct {
	*local
	host driver.Host
}

func newFixture(t testing.TB, host driver.Host) *fixture {
	t.Helper()
	if host.StateDir == "" {
		host.StateDir, host.CacheDir, host.RunDir = t.TempDir(), t.TempDir(), t.TempDir()
	}
	d := newDriver(t, hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Warn}))
	if diags := d.Configure(t.Context(), host, schema.Value{}); len(diags) > 0 {
		t.Fatal(diags)
	}
	return &fixture{local: d, host: host}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func settings(t testing.TB, v map[string]any) schema.Value {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return schema.Value{JSON: b}
}

// create makes a sandbox that the test destroys.
func (f *fixture) create(t testing.TB, edit func(*driver.CreateRequest)) driver.Sandbox {
	t.Helper()
	req := &driver.CreateRequest{
		SandboxID: ulid.Make().String(), Workspace: driver.Workspace{Root: "/workspace"}, Progress: func(driver.Progress) {},
	}
	if edit != nil {
		edit(req)
	}
	s, err := f.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return s
}

// sh runs a script and gives what it printed.
func sh(t testing.TB, s driver.Sandbox, script string) string {
	t.Helper()
	out, exit := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", script}})
	if exit.Code != 0 {
		t.Fatalf("%s: exit %d: %s", script, exit.Code, out)
	}
	return strings.TrimSpace(out)
}

func try(t testing.TB, s driver.Sandbox, cmd *driver.Command) (string, driver.Exit) {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), cmd, driver.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%v: %v (%s)", cmd.Argv, err, out.String())
	}
	return out.String(), exit
}

// testLevel is the level that sandboxes of this test reach.
func testLevel(t testing.TB) int {
	t.Helper()
	m, err := newDriver(t, hclog.NewNullLogger()).machine()
	if err != nil {
		t.Fatal(err)
	}
	return int(m.Facts.Level)
}

// failExample is what a machine that refuses user namespaces answers.
var failExample = probe.Fail{
	Setup: "namespaces", Step: "clone", Errno: "EPERM", Text: "clone: operation not permitted",
	Cure: "set the sysctl kernel.unprivileged_userns_clone to 1",
}

// envSetup names the setup that the tests use instead of the strongest.
const envSetup = "BERTH_TEST_SETUP"

// newDriver makes a driver, on a machine that refuses what is stronger than the setup that the environment names.
func newDriver(t testing.TB, log hclog.Logger) *local {
	t.Helper()
	d := New(log).(*local)
	name := os.Getenv(envSetup)
	if name == "" {
		return d
	}
	d.machine = sync.OnceValues(func() (*machine.Machine, error) {
		m, err := machine.Open(d.cacheDir())
		if err != nil {
			return nil, err
		}
		for _, s := range probe.Setups(m.Facts.Landlock, true) {
			if s.Name == name {
				m.Facts.Setup, m.Facts.Level = s, s.Level()
				m.Facts.Failures = append(m.Facts.Failures, failExample)
				return m, nil
			}
		}
		t.Fatalf("there is no setup %q", name)
		return nil, nil
	})
	return d
}

// TestElsewhere runs the tests again as an ordinary user, and on machines that refuse namespaces.
func TestElsewhere(t *testing.T) {
	if os.Getenv(envSetup) != "" {
		t.Skip("this is elsewhere")
	}
	type place struct {
		name, setup string
		user        bool
		tests       string
		helper      bool // with a range of users of its own
	}
	const most = "Create|Same|Resume|Survives|Lease|Import|Template|Grants|Network"
	places := []place{{"Landlock only", "Landlock and seccomp", false, most, false}}
	if os.Getuid() == 0 {
		places = append(places,
			place{"ordinary user", "namespaces", true, most + "|Limits|Conformance", false},
			place{"ordinary user, Landlock only", "Landlock and seccomp", true, "Create|Survives|Network|Limits|Knobs", false},
			place{"no user namespace", "namespaces without a user namespace", false, "Create|Grants|Template", false},
			place{"proc of the host", "namespaces without an own /proc", false, "Create|Survives", false},
			place{"ordinary user with uidmap", "namespaces", true, "Accounts", true},
			place{"shared mounts", "namespaces", false, "HostMounts", false},
		)
	}
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/var/tmp", "berth-elsewhere-") //nolint:usetesting // another user has to reach it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run="+p.tests, "-test.v", "-test.timeout=120s")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), envSetup+"="+p.setup, "TMPDIR="+dir, "HOME="+dir, "XDG_CACHE_HOME="+dir)
			if p.name == "shared mounts" {
				cmd.Args = append([]string{"unshare", "--mount", "--propagation", "shared", "/proc/" + itoa(os.Getpid()) + "/exe"}, cmd.Args[1:]...)
				if cmd.Path, err = exec.LookPath("unshare"); err != nil {
					t.Skip("unshare is not installed")
				}
			} else if p.helper {
				withRange(t, cmd, dir)
			} else if p.user {
				const uid = 54321
				if err := os.Chown(dir, uid, uid); err != nil {
					t.Fatal(err)
				}
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "--- ") || strings.Contains(line, "SKIP") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// withRange makes a command run as an ordinary user who has a name and a range of users, in a mount namespace of its
// own so that the host's files stay as they are.
func withRange(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	for _, p := range []string{"newuidmap", "newgidmap", "setpriv", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(p, " is not installed")
		}
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"passwd": string(passwd) + "berthtest:x:54321:54321::/nonexistent:/bin/sh\n",
		"subuid": "berthtest:200000:65536\n",
		"subgid": "berthtest:200000:65536\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The program's own directory may be closed to others.
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "program")
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	const script = `cd "$1" && for f in passwd subuid subgid; do mount --bind $f /etc/$f || exit 1; done; shift
exec setpriv --reuid 54321 --regid 54321 --clear-groups "$@"`
	cmd.Args = append([]string{"unshare", "--mount", "/bin/sh", "-c", script, "sh", dir, program}, cmd.Args[1:]...)
	if cmd.Path, err = exec.LookPath("unshare"); err != nil {
		t.Fatal(err)
	}
}
