// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/execbox"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

// Exec is a container without a guest: the engine runs the commands, and the SDK makes files of commands.
type Exec struct{ *Box }

var (
	_ Sandbox                  = (*Exec)(nil)
	_ driver.Pauser            = (*Exec)(nil)
	_ driver.Inspector         = (*Exec)(nil)
	_ driver.Preserved         = (*Exec)(nil)
	_ driver.Reattached        = (*Exec)(nil)
	_ driver.Watcher           = (*Exec)(nil)
	_ driver.DeadlineExtender  = (*Exec)(nil)
	_ driver.NativeSnapshotter = (*Exec)(nil)
	_ driver.PortExposer       = (*Exec)(nil)
)

func (h *Host) adoptExec(b *Box) *Exec {
	s := &Exec{Box: b}
	b.self = s
	return s
}

// begin starts a new container and prepares the workspace, with the image's own tools.
func (s *Exec) begin(ctx context.Context, w *plan.Want) error {
	if !w.AsRoot() {
		if err := inside.OwnRoot(ctx, s.e, s.st.Container, s.record.Root, w.User); err != nil {
			return err
		}
		return s.live(ctx)
	}
	if err := s.live(ctx); err != nil {
		return err
	}
	ws := w.Req.Workspace
	owner := cmp.Or(ws.Owner, w.User)
	if ws.Group != "" {
		owner += ":" + ws.Group
	} else {
		owner = forward.WithGroup(owner)
	}
	err := s.engineBox().Prepare(ctx, owner, w.Req.Accounts, s.record.Facts.Why)
	if err != nil && s.ending(ctx) != nil {
		return s.needs(err)
	}
	return err
}

// needs says what an image needs that nothing runs in.
func (s *Exec) needs(err error) error {
	return errs.New(errs.StartFailed, "nothing can be run in the container: %s", engine.Text(err)).
		WithHint("without berth's guest (%s) an image needs sh and sleep", s.record.Facts.Why)
}

// live sees that the container runs.
func (s *Exec) live(ctx context.Context) error {
	defer s.hold()()
	switch {
	case s.destroyed:
		return errs.New(errs.SandboxGone, "sandbox %s was destroyed", s.id)
	case s.stopped:
		return errs.New(errs.SandboxUnknown, "sandbox %s is stopped", s.id)
	case s.lost:
		return errs.New(errs.SandboxUnknown, "the container of sandbox %s has ended", s.id)
	case s.started:
		return nil
	}
	err := s.run(ctx)
	s.started = err == nil
	if errs.CodeOf(err) == errs.StartFailed {
		return s.needs(err)
	}
	return err
}

func (s *Exec) engineBox() *execbox.Box {
	env, secret, _ := s.today()
	return &execbox.Box{Engine: s.e, Container: s.st.Container, Root: s.record.Root, User: s.record.User, Env: env, SecretEnv: secret}
}

// Run runs a command.
func (s *Exec) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	if err := s.fill(s.live(ctx)); err != nil {
		return driver.Exit{}, err
	}
	exit, err := s.engineBox().Run(ctx, cmd, streams)
	if ctx.Err() == nil && (err != nil || exit.Code == killed || exit.Code == refused) {
		if e := s.ending(ctx); e != nil {
			release := s.hold()
			s.lost = true
			release()
			return exit, e
		}
	}
	return exit, engine.Error(errs.ExecTransport, "run a command", err)
}

// The engine tells the end of a command before that of its container.
const (
	killed  = 128 + 9
	refused = 126
	endLook = 50 * time.Millisecond
	endTime = 500 * time.Millisecond
)

// ending says whether a command ended with its container: nil when it did not.
func (s *Exec) ending(ctx context.Context) error {
	var said inside.LastWords
	for began := time.Now(); ; time.Sleep(endLook) {
		_, err := inside.Alive(ctx, s.e, s.id, s.st.Container, &said)
		if errors.Is(err, errs.SandboxGone) {
			return err
		}
		if time.Since(began) > endTime {
			return nil
		}
	}
}

// Watch reports what happens to the sandbox.
func (s *Exec) Watch(ctx context.Context, report func(driver.Event)) error {
	if err := s.live(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errEnded)
	w := s.e.ContainerWait(ctx, s.st.Container, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-w.Result:
		case <-w.Error: //nolint:errcheck // the engine is gone, or the container
		case <-ctx.Done():
		}
	}()
	return s.watch(ctx, report, gone)
}

// Expose gives the address of a published port; there is nothing inside to make others.
func (s *Exec) Expose(ctx context.Context, port uint16, _ string, public bool) (driver.Endpoint, error) {
	if err := s.live(ctx); err != nil {
		return driver.Endpoint{}, err
	}
	e, err := s.published(ctx, port, public)
	switch {
	case err != nil:
	case e.Port == 0:
		err = errs.New(errs.PortUnavailable, "port %d was not published when the container was made", port).
			WithHint("name it in the sandbox block; without berth's guest (%s) no port is opened later", s.record.Facts.Why)
	case public && loopback(e.Host):
		err = notPublic(port)
	}
	return e, err
}

// Unexpose leaves a published port as it is: it stays as long as the container.
func (s *Exec) Unexpose(context.Context, uint16) error { return nil }
