// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"errors"
	"os/exec"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/serve"
)

// A whole driver: its sandboxes are nothing but the machine itself.
func ExampleMain() {
	main := func() { serve.Main(func(hclog.Logger) driver.Driver { return bare{} }) }
	_ = main // the main function of the binary
}

type bare struct{}

func (bare) Describe() driver.Description { return driver.Description{Name: "bare", Version: "0.1.0"} }

func (bare) Create(_ context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	return machine{req.Workspace.Root}, nil
}

func (bare) Resume(_ context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	return machine{string(req.State.Data)}, nil
}

type machine struct{ root string }

func (m machine) State() driver.State { return driver.State{Data: []byte(m.root)} }

func (m machine) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c := exec.CommandContext(ctx, cmd.Argv[0], cmd.Argv[1:]...)
	c.Dir, c.Stdin, c.Stdout, c.Stderr = m.root, streams.Stdin, streams.Stdout, streams.Stderr
	if err := c.Start(); err != nil {
		return driver.Exit{}, errs.Wrap(errs.ExecNotFound, "start", err)
	}
	streams.OnStart(driver.Started{ProcessID: cmd.ID, PID: int64(c.Process.Pid)})
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return driver.Exit{}, errs.Wrap(errs.ExecTransport, "wait", err)
	}
	return driver.Exit{Code: c.ProcessState.ExitCode()}, nil
}

func (machine) Destroy(context.Context) error { return nil }
