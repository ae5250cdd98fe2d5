// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

const (
	guestThreads = 16 // more than it has been seen to use; they count towards the limit of processes
	// connectTimeout bounds the time until a guest that was started answers; runtimes that emulate take long.
	connectTimeout = time.Minute
	// minLease is the shortest lease: a guest that was thawed needs to hear of its host before it ends itself.
	minLease = 5 * time.Second
	// lastWordsTime bounds the wait for what a guest that has ended said.
	lastWordsTime = time.Second
)

// Guest is a container that the guest works in.
type Guest struct {
	*Box
	*forward.Calls
}

var (
	_ Sandbox                  = (*Guest)(nil)
	_ driver.Pauser            = (*Guest)(nil)
	_ driver.Inspector         = (*Guest)(nil)
	_ driver.Preserved         = (*Guest)(nil)
	_ driver.Reattached        = (*Guest)(nil)
	_ driver.Watcher           = (*Guest)(nil)
	_ driver.DeadlineExtender  = (*Guest)(nil)
	_ driver.ProcessTable      = (*Guest)(nil)
	_ driver.FileSystem        = (*Guest)(nil)
	_ driver.TreeIO            = (*Guest)(nil)
	_ driver.NativeSnapshotter = (*Guest)(nil)
	_ driver.PortForwarder     = (*Guest)(nil)
	_ driver.PortExposer       = (*Guest)(nil)
	_ driver.AccountKeeper     = (*Guest)(nil)
)

func (b *Box) withGuest() *Guest {
	s := &Guest{Box: b}
	s.Calls = forward.New(forward.Config{
		Guest: s.live, Filled: func(context.Context) error { return b.fill(nil) }, Environment: b.today,
		User: func() string { return b.record.User },
	})
	b.self = s
	return s
}

// begin starts a new container and prepares the workspace.
func (s *Guest) begin(ctx context.Context, w *plan.Want) error {
	if !w.AsRoot() {
		if err := inside.OwnRoot(ctx, s.e, s.st.Container, s.record.Root, w.User); err != nil {
			return err
		}
	}
	w.Req.Progress(driver.Progress{Phase: "starting", Message: w.Config.Image})
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	if err := c.EnsureAccounts(ctx, w.Req.Accounts); err != nil {
		return err
	}
	if s.record.Root == "/" || !w.AsRoot() {
		return nil
	}
	ws := w.Req.Workspace
	mode := ws.Mode
	if mode == 0 {
		mode = 0o755
	}
	owner := forward.WithGroup(cmp.Or(ws.Owner, w.User))
	change := driver.MetaChange{Mode: &mode, Owner: &owner}
	if ws.Group != "" {
		change.Group = &ws.Group
	}
	return c.SetMeta(ctx, s.record.Root, change)
}

// live gives the conversation with the guest, starting the container when it does not run.
func (s *Guest) live(ctx context.Context) (*guestclient.Client, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return nil, &errs.Error{Code: errs.Canceled, Op: "wait for the sandbox", Err: context.Cause(ctx)}
	}
	switch {
	case s.destroyed:
		return nil, errs.New(errs.SandboxGone, "sandbox %s was destroyed", s.id)
	case s.stopped:
		return nil, errs.New(errs.SandboxUnknown, "sandbox %s is stopped", s.id)
	case s.ended():
		e := errs.New(errs.SandboxUnknown, "the container of sandbox %s does not answer", s.id)
		e.Err = s.guest.Err()
		return nil, e
	case s.guest != nil:
		return s.guest, nil
	}
	c, err := s.start(ctx)
	if errors.Is(err, errs.AuthFailed) {
		return nil, s.others(containerName(s.id), err)
	}
	if err != nil {
		return nil, err
	}
	// Before any command: where storage was, nobody may find an empty directory.
	if err := s.remount(ctx); err != nil {
		_ = c.Close() // the first error is the one to tell
		return nil, err
	}
	s.guest, s.mergeEnv = c, s.used // its guest may have begun with another environment
	return c, nil
}

// start starts the container, unless it runs, and connects. A guest that cannot run is noGuest. Preconditions: the gate
// is held.
func (s *Guest) start(ctx context.Context) (*guestclient.Client, error) {
	var said inside.LastWords
	var first net.Conn
	if !s.e.Podman && !s.used { // Podman attaches only to what runs
		// Before it is started, so that what it says at its end is heard.
		var err error
		if first, err = inside.Attach(ctx, s.e, s.st.Container, said.Add); err != nil {
			return nil, err
		}
	}
	if err := s.run(ctx); err != nil {
		if first != nil {
			_ = first.Close() // the first error is the one to tell
		}
		if errs.CodeOf(err) == errs.StartFailed && strings.Contains(err.Error(), path.Base(inside.Entrypoint()[0])) {
			err = noGuest{err}
		}
		return nil, err
	}
	c, err := s.connect(ctx, first, &said)
	switch {
	case errors.Is(err, errs.SandboxGone):
		err = noGuest{errs.New(errs.StartFailed, "the guest does not run: %v", err)}
	case errs.CodeOf(err) == errs.StartFailed, errs.CodeOf(err) == errs.ExecTransport:
		err = noGuest{err}
	}
	return c, err
}

// connect begins the conversation with the guest, over first when that is not nil. Preconditions: the gate is held.
func (s *Guest) connect(ctx context.Context, first net.Conn, said *inside.LastWords) (*guestclient.Client, error) {
	ttl := guest.DefaultOrphanTTL
	if s.ttl != nil {
		ttl = max(*s.ttl, minLease)
	}
	cfg := &guest.Config{
		Key: s.host.Key(s.id), OrphanTTL: &ttl, Root: s.record.Root, Env: s.environment(), SecretEnv: s.secretEnv, User: s.record.User,
		CallDir: inside.Dir, OOMFile: s.e.OOMFile(), Threads: guestThreads, PrivateNetwork: s.record.Alone, Report: plan.Isolation(s.record),
	}
	for _, g := range s.record.Grants {
		cfg.Grants = append(cfg.Grants, driver.PathGrant{Path: g.Path, ReadOnly: g.ReadOnly})
	}
	line, err := guest.Line(cfg)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "start the guest", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errs.New(errs.StartFailed, "the guest did not answer within %s", connectTimeout))
	defer cancel()
	dial := func(ctx context.Context) (io.ReadWriteCloser, error) {
		if over := s.removing.Load(); over != nil {
			select { // what there is to say of the end is known then
			case <-*over:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		c, opening := first, line
		first = nil
		if c == nil {
			// Others used its standard input before, and the guest may be in the middle of something.
			opening = append(inside.Flush(), line...)
			var err error
			if c, err = inside.Attach(ctx, s.e, s.st.Container, said.Add); err != nil {
				return nil, inside.OrGone(ctx, s.e, s.id, s.st.Container, said, err)
			}
		}
		// The engine lets a container that has ended be attached to, and says nothing.
		got, err := inside.Alive(ctx, s.e, s.id, s.st.Container, said)
		if err == nil {
			if _, err = c.Write(opening); err != nil {
				err = errs.Wrap(errs.ExecTransport, "send the guest's configuration", err)
			} else if !s.e.Podman { // which takes the end of a connection for the end of the guest's input
				if near := s.host.Calls.Knock(ctx, got, c); near != nil {
					_ = c.Close() // it has served
					return near, nil
				}
			}
		}
		if errors.Is(err, errs.SandboxGone) {
			// With its last words.
			_ = c.SetReadDeadline(time.Now().Add(lastWordsTime)) // then they are missing
			_, _ = io.Copy(io.Discard, c)                        // the same
			err = inside.OrGone(ctx, s.e, s.id, s.st.Container, said, err)
		}
		if err != nil {
			_ = c.Close() // the first error is the one to tell
			return nil, err
		}
		return c, nil
	}
	return guestclient.Connect(ctx, guestclient.Options{
		Dial: dial, Key: cfg.Key, Log: func(msg string, args ...any) { s.host.Log.Debug(msg, append(args, "sandbox", s.id)...) },
	})
}
