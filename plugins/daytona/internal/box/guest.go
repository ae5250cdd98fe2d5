// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/inside"
	"github.com/berth-dev/berth/plugins/daytona/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
)

const (
	// connectTimeout bounds the time until a guest that was started answers, and attachTimeout until one that should be
	// there does.
	connectTimeout = time.Minute
	attachTimeout  = 15 * time.Second
	// minLease is the shortest lease: a connection that is made again takes a moment.
	minLease = 5 * time.Second
)

// errNoGuest says that no guest is there to be attached to.
var errNoGuest = errs.New(errs.ProcessUnknown, "no guest runs in the sandbox")

// live gives the conversation with the guest, starting the sandbox when it does not run.
func (b *Box) live(ctx context.Context) (*guestclient.Client, error) {
	select {
	case b.gate <- struct{}{}:
		defer func() { <-b.gate }()
	case <-ctx.Done():
		return nil, &errs.Error{Code: errs.Canceled, Op: "wait for the sandbox", Err: context.Cause(ctx)}
	}
	switch {
	case b.destroyed:
		return nil, errs.New(errs.SandboxGone, "sandbox %s was destroyed", b.id)
	case b.stopped:
		return nil, errs.New(errs.SandboxUnknown, "sandbox %s is stopped", b.id)
	case b.ended():
		if errors.Is(b.guest.Err(), errs.SandboxGone) {
			return nil, b.guest.Err()
		}
		e := errs.New(errs.SandboxUnknown, "sandbox %s does not answer any more", b.id)
		e.Err = b.guest.Err()
		return nil, e
	case b.guest != nil:
		return b.guest, nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, b.cfg.StartTimeout, errs.New(errs.StartFailed, "the sandbox did not start within %s", b.cfg.StartTimeout).
		WithHint("set start_timeout higher; from the archive it takes long"))
	defer cancel()
	err := b.start(limited)
	if err == nil {
		err = b.connect(limited)
	}
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = errors.Join(context.Cause(limited), err)
		}
		return nil, err
	}
	return b.guest, nil
}

// start sees that the vendor's sandbox runs. Preconditions: the gate is held.
func (b *Box) start(ctx context.Context) error {
	v, err := b.host.Client.Await(ctx, b.st.ID, nil)
	if err != nil {
		return b.over(ctx, err)
	}
	ask := b.host.Client.Start
	switch {
	case v.State.Gone():
		return errs.New(errs.SandboxGone, "sandbox %s was deleted", b.id)
	case v.State == client.StateStarted:
		b.vendor = v
		return nil
	case v.State == client.StateError && v.Recoverable:
		ask = b.host.Client.Recover
	case v.State == client.StateError, v.State == client.StateBuildFailed:
		return errs.New(errs.StartFailed, "Daytona says that the sandbox cannot be started: %s", cmp.Or(v.ErrorReason, string(v.State))).
			WithHint("look at sandbox %s at the Daytona dashboard", v.Name)
	}
	err = b.host.Client.Settled(ctx, func() error {
		_, err := ask(ctx, b.st.ID)
		return err
	})
	if err == nil {
		v, err = b.host.Client.Await(ctx, b.st.ID, nil)
	}
	if err != nil {
		return b.over(ctx, errs.Wrap(errs.StartFailed, "start the sandbox", err))
	}
	if v.State != client.StateStarted {
		return errs.New(errs.StartFailed, "the sandbox is %s after a start: %s", v.State, v.ErrorReason)
	}
	b.vendor = v
	b.previews = map[uint16]*signed{}
	if b.st.Lifetime > 0 && !time.Now().Before(b.st.Deadline) {
		b.setDeadline(time.Now().Add(b.st.Lifetime))
	} else {
		b.setDeadline(b.st.Deadline)
	}
	return nil
}

// over gives an error the code of a sandbox that is gone, where that is why.
func (b *Box) over(ctx context.Context, err error) error {
	if errors.Is(err, errs.SandboxGone) || ctx.Err() != nil {
		return err
	}
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Code == errs.AuthFailed {
		return err
	}
	if _, e := b.host.Client.Sandbox(ctx, b.st.ID); errors.Is(e, errs.SandboxGone) {
		return e
	}
	return err
}

// attach connects to a guest that runs. Preconditions: the gate is held, and the sandbox is started.
func (b *Box) attach(ctx context.Context) error {
	t, err := b.look(ctx)
	if err != nil {
		return err
	}
	if b.facts.PTY == "" {
		return errNoGuest
	}
	if _, err := t.PTY(ctx, b.facts.PTY); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attachTimeout, errs.New(errs.ExecTransport, "the guest did not answer within %s", attachTimeout))
	defer cancel()
	return b.converse(ctx, t, b.facts.PTY, nil)
}

// connect connects to the guest, starting one where none is. Preconditions: the gate is held, and the sandbox is started.
func (b *Box) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errs.New(errs.StartFailed, "the guest did not answer within %s", connectTimeout))
	defer cancel()
	err := b.attach(ctx)
	if inside.Bare(err) {
		// The vendor's daemon is dead, and the vendor does not know: for want of memory, as a rule.
		b.host.Log.Warn("the sandbox's daemon does not answer, the sandbox is started again; its processes are lost", "sandbox", b.id, "error", err)
		if err = b.restart(ctx); err == nil {
			err = b.attach(ctx)
		}
	}
	if err == nil || ctx.Err() != nil || b.facts == nil {
		return err
	}
	if errs.CodeOf(err) == errs.AuthFailed && !fromGuest(err) {
		return err
	}
	// There is none, it is another installation's, or it does not answer.
	t, err := b.host.Client.Toolbox(b.vendor)
	if err != nil {
		return err
	}
	if b.facts.PTY != "" {
		inside.Abandon(ctx, t, b.facts.PTY)
	}
	if b.facts.NoRoot {
		return errs.New(errs.StartFailed, "the sandbox's user %s cannot make the workspace %s", b.facts.User, b.st.Root).
			WithHint("set user = \"root\" in the sandbox's config, or put the workspace below the user's home directory")
	}
	p, err := inside.GuestFor(b.facts.Arch)
	if err != nil {
		return err
	}
	pty, conn, err := inside.Begin(ctx, t, p, b.facts.Have)
	if err != nil {
		return err
	}
	b.facts.PTY, b.facts.Have = pty, true
	return b.converse(ctx, t, pty, conn)
}

// fromGuest says whether an error is the guest's, who does not know the key, and not the vendor's.
func fromGuest(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Vendor == nil
}

// restart stops and starts the vendor's sandbox. Preconditions: the gate is held.
func (b *Box) restart(ctx context.Context) error {
	err := b.host.Client.Settled(ctx, func() error {
		_, err := b.host.Client.Stop(ctx, b.st.ID, true)
		return err
	})
	if err != nil {
		return err
	}
	return b.start(ctx)
}

// look finds out about the inside. Preconditions: the gate is held.
func (b *Box) look(ctx context.Context) (*client.Toolbox, error) {
	t, err := b.host.Client.Toolbox(b.vendor)
	if err != nil {
		return nil, err
	}
	name := ""
	if b.facts != nil {
		p, err := inside.GuestFor(b.facts.Arch)
		if err != nil {
			return nil, err
		}
		name = p.Name
	} else if p, err := inside.GuestFor("amd64"); err == nil { // as nearly all are
		name = p.Name
	}
	f, err := inside.Look(ctx, t, b.st.Root, name)
	if err != nil {
		return nil, err
	}
	f.Have = f.Have && (b.facts != nil || f.Arch == "amd64")
	b.facts = f
	return t, nil
}

// converse begins the conversation with the guest in a terminal, over first when that is not nil. Preconditions: the gate
// is held.
func (b *Box) converse(ctx context.Context, t *client.Toolbox, pty string, first *client.PTYConn) error {
	ttl := guest.DefaultOrphanTTL
	if b.ttl != nil {
		ttl = max(*b.ttl, minLease)
	}
	base := maps.Clone(b.facts.Env)
	maps.Copy(base, b.env)
	cfg := &guest.Config{
		Key: b.host.Key(b.id), OrphanTTL: &ttl, Root: b.st.Root, Env: base, SecretEnv: b.secretEnv, User: b.runAs(), Report: settings.Isolation(b.cfg),
		PrivateNetwork: true,
	}
	if b.st.RunAs != "" && b.facts.UID != "0" && b.st.RunAs != b.facts.User && b.st.RunAs != b.facts.UID {
		return b.onlyRoot("run commands as " + b.st.RunAs)
	}
	line, err := guest.Line(cfg)
	if err != nil {
		return errs.Wrap(errs.Internal, "start the guest", err)
	}
	link := &inside.Dialer{
		Client: b.host.Client, ID: b.id, Vendor: b.vendor.ID, AutoStop: b.cfg.AutoStop, Toolbox: t, PTY: pty, Line: line, First: first,
	}
	c, err := guestclient.Connect(ctx, guestclient.Options{
		Dial: link.Dial, Key: cfg.Key, Log: func(msg string, args ...any) { b.host.Log.Debug(msg, append(args, "sandbox", b.id)...) },
	})
	if err != nil {
		return err
	}
	b.guest = c
	b.mergeEnv = b.mergeEnv || first == nil
	b.keep()
	return nil
}

// runAs is the default user of commands; empty = the sandbox's own.
func (b *Box) runAs() string {
	if b.facts.UID != "0" {
		return ""
	}
	return b.st.RunAs
}

// onlyRoot says what only a sandbox whose user is root can do.
func (b *Box) onlyRoot(what string) error {
	return errs.New(errs.Unsupported, "a sandbox whose user is %s cannot %s", b.facts.User, what).With("feature", string(driver.ProcUser)).
		WithHint("set user = \"root\" in the sandbox's config")
}
