// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/fake"
	"github.com/berth-dev/berth/sdk/serve"
)

// asDriver makes this program a driver: its value is the directory that holds the sandboxes.
const asDriver = "BERTH_TEST_AS_DRIVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asDriver); dir != "" {
		brokenProgram(os.Getenv(broken))
		serve.Main(func(hclog.Logger) driver.Driver {
			return fake.New(fake.Options{Dir: dir, Crash: fake.CrashProcess})
		})
	}
	os.Exit(m.Run())
}

// everything is what the fake can do besides what it always claims.
var everything = []driver.Feature{driver.TreeZstd, driver.TreeHostRefs, driver.TreeTemplate, driver.PortHTTP, driver.PortPublic}

// keptStates are the fake's, of both versions.
var keptStates = []conformance.SavedState{
	{SandboxID: "gone-1", State: driver.State{Version: 1, Data: []byte("gone-1")}},
	{SandboxID: "gone-2", State: driver.State{Version: 2, Data: []byte(`{"id":"gone-2"}`)}},
}

func TestFakeInProcess(t *testing.T) {
	backend := &fake.Backend{}
	conformance.Run(t, conformance.Options{
		Driver: func() driver.Driver {
			return &mutant{Driver: fake.New(fake.Options{Shared: backend, With: everything}), box: func(f full) full { return smallDisk{full: f} }}
		},
		Repeat: 3, Parallel: 2, Small: "small", States: keptStates,
	})
}

// The fake driver writes a sandbox to disk at each change, so this one leaves the files to the test above.
func TestFakeProcess(t *testing.T) {
	conformance.Run(t, conformance.Options{
		Only: []string{"handshake", "schema", "lifecycle", "faults"}, Faults: true,
		Binary: os.Args[0], Env: []string{asDriver + "=" + t.TempDir()}, Repeat: 3, Parallel: 2, States: keptStates,
	})
}
