// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/errs"
)

// OrGone gives why the container of a sandbox does not run any more, or err when it does.
func OrGone(ctx context.Context, e *engine.Engine, sandbox, container string, said *LastWords, err error) error {
	if _, gone := Alive(ctx, e, sandbox, container, said); errors.Is(gone, errs.SandboxGone) {
		return gone
	}
	return err
}

// Alive gives the container of a sandbox, or errs.SandboxGone when it does not run any more, with what is known of its end.
func Alive(ctx context.Context, e *engine.Engine, sandbox, id string, said *LastWords) (*container.InspectResponse, error) {
	got, err := e.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if engine.NotFound(err) {
		return nil, errs.New(errs.SandboxGone, "the container of sandbox %s was removed", sandbox)
	}
	if err != nil {
		return nil, engine.Error(errs.ExecTransport, "inspect the container", err)
	}
	st := got.Container.State
	if st != nil && (st.Running || st.Restarting) {
		return &got.Container, nil
	}
	gone := errs.New(errs.SandboxGone, "the container of sandbox %s has ended: %s%s", sandbox, Why(st), said.Text())
	if st != nil && st.OOMKilled {
		gone = gone.WithHint("if that was for lack of memory: use less at once, or give the sandbox more")
	}
	return nil, gone
}

// Why says why a container does not run, as far as the engine knows. That the kernel was short of memory it says of any
// process that was inside, and for ever: it need not be why the first one ended.
func Why(st *container.State) string {
	switch {
	case st == nil:
		return "the engine does not say why"
	case st.OOMKilled:
		return fmt.Sprintf("its first process ended with %d; the kernel has ended processes in it for lack of memory", st.ExitCode)
	case st.Error != "":
		return st.Error
	case st.ExitCode != 0:
		return fmt.Sprintf("its first process ended with %d", st.ExitCode)
	}
	return "its first process ended"
}
