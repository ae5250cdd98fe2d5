// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/fake"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/serve"
)

// The test binary is its own driver, and the core that is killed.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(handshake.EnvCookie) != "":
		serve.Main(newFake)
	case os.Getenv("TEST_CORE") != "":
		coreMain()
	default:
		os.Exit(m.Run())
	}
}

// newFake makes the driver of a process. FAKE_FAULT is "op:n": the call at which the process kills itself.
func newFake(log hclog.Logger) driver.Driver {
	o := fake.Options{Dir: os.Getenv("FAKE_DIR"), Crash: fake.CrashProcess}
	if op, n, ok := strings.Cut(os.Getenv("FAKE_FAULT"), ":"); ok {
		at, err := strconv.Atoi(n)
		if err != nil {
			panic(err)
		}
		o.Faults = []fake.Fault{{Op: op, N: at, Crash: true}}
	}
	log.Info("fake driver begins", "token", os.Getenv("FAKE_TOKEN"))
	return fake.New(o)
}

// coreMain is a core with one driver and one running command. It says the driver's process id and waits.
func coreMain() {
	m := plugin.NewManager(plugin.Config{Resolve: resolve, RunDir: os.Getenv("TEST_CORE")})
	h, err := m.Acquire(context.Background(), plugin.Request{Name: "fake"})
	if err != nil {
		panic(err)
	}
	s, err := h.Create(context.Background(), &driver.CreateRequest{SandboxID: "a"})
	if err != nil {
		panic(err)
	}
	_, err = s.Run(context.Background(), &driver.Command{Argv: []string{"sleep", "1000"}}, driver.Streams{
		OnStart: func(driver.Started) { fmt.Println(h.Status().PID) },
	})
	panic(err)
}

func resolve(context.Context, string, spec.DriverRequirement) (catalog.Binary, error) {
	self, err := os.Executable()
	return catalog.Binary{Name: "fake", Path: self}, err
}

// shortDir is a private directory with a name that is short enough for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "bp") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	return filepath.Join(base, "r")
}

// eventually waits until f holds.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-tick.C
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
