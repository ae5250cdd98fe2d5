// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

const (
	describeTimeout = 10 * time.Second
	describeBytes   = 16 << 20
)

// Describe runs the driver's command `describe --json` and gives its output. Of the spec it takes what says which file
// is run, and how.
func Describe(ctx context.Context, spec Spec) ([]byte, error) {
	out, err := describe(ctx, spec)
	if err == nil {
		return out, nil
	}
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return nil, err
	}
	e := errs.New(errs.DriverStartFailed, "driver %q does not describe itself", spec.Name).With("driver", spec.Name).With("path", spec.Path)
	e.Err = err
	return nil, e.WithHint("run %s describe --json by hand to see whether it is a driver", spec.Path)
}

func describe(ctx context.Context, spec Spec) ([]byte, error) {
	binary, err := os.Open(spec.Path)
	if err != nil {
		return nil, err
	}
	defer binary.Close()
	r := &runner{spec: spec}
	if err := r.verify(binary); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, fmt.Errorf("no answer within %s", describeTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, spec.Path)
	if err := execFrom(cmd, binary, spec); err != nil {
		return nil, err
	}
	stdout, stderr := &bounded{left: describeBytes}, &bounded{left: 64 << 10}
	cmd.Args = append(cmd.Args, "describe", "--json")
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Environ, spec.Dir, stdout, stderr
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would be everything
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		return nil
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if said := bytes.TrimSpace(stderr.Bytes()); len(said) > 0 {
			return nil, fmt.Errorf("%w; it said: %s", err, spec.Redact.String(string(said)))
		}
		return nil, err
	}
	return stdout.Bytes(), nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	bytes.Buffer
	left int
}

// Write takes everything and keeps what there is room for.
func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}
