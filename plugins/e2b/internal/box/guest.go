// SPDX-License-Identifier: Apache-2.0

package box

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/plugins/e2b/internal/program"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/forward"
)

const (
	connectTimeout = time.Minute
	// minLease is the shortest lease: a guest that was thawed needs to hear of its host before it ends itself.
	minLease = 5 * time.Second
	// asRoot is the user of the guest: it makes users and acts for them.
	asRoot = "root"
	// endTime bounds the wait for the end of a guest that is not ours.
	endTime = 10 * time.Second
)

// usualPath is what commands find programs in, unless the template or the file says otherwise.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// startGuest puts the guest in its place, makes the workspace and becomes the guest. Its arguments are the guest's path and
// the workspace's.
const startGuest = `set -e
if [ ! -x "$1" ]; then chmod 755 "$1.new"; mv "$1.new" "$1"; fi
mkdir -p "$2"
if command -v setsid >/dev/null 2>&1; then exec setsid "$1" -config 0; fi
exec "$1" -config 0`

// begin starts the guest in a new sandbox and prepares the workspace.
func (b *Box) begin(ctx context.Context, req *driver.CreateRequest) error {
	req.Progress(driver.Progress{Phase: "starting", Message: b.st.Template})
	defer b.hold()()
	c, _, err := b.connect(ctx)
	if err != nil {
		return err
	}
	b.guest = c
	if err := c.EnsureAccounts(ctx, req.Accounts); err != nil {
		return err
	}
	if b.record.Root == "/" {
		return nil
	}
	ws := req.Workspace
	mode := ws.Mode
	if mode == 0 {
		mode = 0o755
	}
	owner := forward.WithGroup(cmp.Or(ws.Owner, b.record.User))
	change := driver.MetaChange{Mode: &mode, Owner: &owner}
	if ws.Group != "" {
		change.Group = &ws.Group
	}
	return c.SetMeta(ctx, b.record.Root, change)
}

// connect finds the guest and takes up the conversation with it, or starts one. Preconditions: the gate is held.
func (b *Box) connect(ctx context.Context) (c *guestclient.Client, found bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errs.New(errs.StartFailed, "berth's guest did not answer within %s", connectTimeout))
	defer cancel()
	p, err := program.For(b.record.Arch)
	if err != nil {
		return nil, false, err
	}
	running, err := b.remote.Processes(ctx)
	if err != nil {
		return nil, false, b.explain(ctx, err)
	}
	for _, r := range running {
		if !isGuest(r) {
			continue
		}
		if c, err = b.talk(ctx, &line{b: b, pid: r.PID}, nil); err == nil {
			b.guestPID = r.PID
			return c, true, nil
		}
		switch errs.CodeOf(err) {
		case errs.AuthFailed, errs.DriverIncompatible, errs.ProcessUnknown:
		default:
			return nil, false, b.explain(ctx, err)
		}
		// It belongs to the sandbox that a snapshot was taken of, or to another version, or has just ended.
		b.host.Log.Warn("the sandbox's guest is another's and is started again", "sandbox", b.id, "error", err)
		if err := b.endGuest(ctx, r.PID); err != nil {
			return nil, false, err
		}
	}
	env, err := b.environment(ctx)
	if err != nil {
		return nil, false, err
	}
	if err := b.place(ctx, p); err != nil {
		return nil, false, err
	}
	proc, err := b.remote.Start(context.WithoutCancel(ctx), client.Command{
		Cmd: "/bin/sh", Args: []string{"-c", startGuest, "sh", p.Path, b.record.Root}, Dir: "/", User: asRoot, Stdin: true,
	})
	if err != nil {
		return nil, false, b.explain(ctx, err)
	}
	c, err = b.talk(ctx, &line{b: b, pid: proc.PID(), first: proc}, env)
	if err != nil {
		kill, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), endTime, errOver)
		defer cancel()
		_ = proc.Kill(kill) // the first error is the one to tell
		proc.Close()
		if errors.Is(err, errs.ProcessUnknown) && b.gone(kill) == nil {
			err = (&errs.Error{Code: errs.StartFailed, Op: "start the guest", Err: err}).
				WithHint("the template has to be for linux/%s, with /bin/sh, mkdir, mv and chmod; see arch", b.record.Arch)
		}
		return nil, false, b.explain(ctx, err)
	}
	b.guestPID = proc.PID()
	return c, false, nil
}

func isGuest(r client.Running) bool {
	return r.Cmd == "/bin/sh" && len(r.Args) == 5 && r.Args[1] == startGuest
}

// endGuest ends a guest in order, with all that it started, and else by force.
//
// A stream that breaks says nothing of the process, which may have ended just then: it is looked for again.
func (b *Box) endGuest(ctx context.Context, pid uint32) (err error) {
	for range endTries {
		if err = b.endGuestOnce(ctx, pid); !errors.Is(err, errs.ExecTransport) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// endTries bounds how often a guest that is to end is looked for over broken streams.
const endTries = 3

func (b *Box) endGuestOnce(ctx context.Context, pid uint32) error {
	proc, err := b.remote.Attach(ctx, pid, asRoot)
	if errors.Is(err, errs.ProcessUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	defer proc.Close()
	if err := proc.Terminate(ctx); err != nil && !errors.Is(err, errs.ProcessUnknown) {
		return err
	}
	late := time.AfterFunc(stopGrace, func() {
		_ = proc.Kill(ctx) // the stream tells when it has ended
	})
	defer late.Stop()
	for {
		e, err := proc.Next()
		if err != nil {
			return err
		}
		if e.Kind == client.Ended {
			return nil
		}
	}
}

// place sends the guest, unless it is there.
func (b *Box) place(ctx context.Context, p *program.Program) error {
	_, err := b.remote.Stat(ctx, p.Path, asRoot)
	if err == nil {
		return nil
	}
	if !errors.Is(err, errs.FileNotFound) {
		return b.explain(ctx, err)
	}
	// Under another name, which the start takes away: what breaks off is not taken for the guest.
	err = b.remote.Write(ctx, p.Path+".new", bytes.NewReader(p.Packed), client.WriteOptions{User: asRoot, Length: int64(len(p.Packed)), Gzip: true})
	return b.explain(ctx, err)
}

// environment is what commands begin with: the template's, and today's.
func (b *Box) environment(ctx context.Context) (map[string]string, error) {
	env := map[string]string{"PATH": usualPath}
	template, err := b.remote.Environment(ctx)
	if err != nil {
		return nil, b.explain(ctx, err)
	}
	maps.Copy(env, template)
	maps.Copy(env, b.env)
	return env, nil
}

// talk begins the conversation with a guest, which takes its configuration if it has none.
func (b *Box) talk(ctx context.Context, l *line, env map[string]string) (*guestclient.Client, error) {
	ttl := guest.DefaultOrphanTTL
	if b.ttl != nil {
		ttl = max(*b.ttl, minLease)
	}
	cfg := &guest.Config{
		Key: b.host.Key(b.st.Sandbox), OrphanTTL: &ttl, Root: b.record.Root, Env: env, SecretEnv: b.secretEnv, User: b.record.User,
		PrivateNetwork: true, Report: Isolation(),
	}
	var err error
	if l.config, err = guest.Line(cfg); err != nil {
		return nil, errs.Wrap(errs.Internal, "start the guest", err)
	}
	return guestclient.Connect(ctx, guestclient.Options{
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) { return l.dial(ctx) }, Key: cfg.Key,
		Log: func(msg string, args ...any) { b.host.Log.Debug(msg, append(args, "sandbox", b.id)...) },
	})
}

// live gives the conversation with the guest.
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
	case b.guest != nil && !b.ended():
		return b.guest, nil
	}
	if gone := b.gone(ctx); errors.Is(gone, errs.SandboxGone) {
		return nil, gone
	}
	e := errs.New(errs.SandboxUnknown, "sandbox %s does not answer, or is paused", b.id)
	if b.guest != nil {
		e.Err = b.guest.Err()
	}
	return nil, e
}

// filledMark is a file that says inside that the workspace holds something: also who knows no later state can tell.
func (b *Box) filledMark() string { return path.Join(program.Dir, "filled-"+strings.ToLower(b.id)) }

func (b *Box) filledBefore(ctx context.Context) bool {
	_, err := b.remote.Stat(ctx, b.filledMark(), asRoot)
	return err == nil
}

// fill records that the workspace holds something of its owner's. Until then a resume says that it is empty, so that what a
// create was interrupted in is done again.
func (b *Box) fill(ctx context.Context) error {
	defer b.hold()()
	b.st.Filled = true
	if b.marked {
		return nil
	}
	if err := b.remote.Write(ctx, b.filledMark(), strings.NewReader("1"), client.WriteOptions{User: asRoot, Length: 1}); err != nil {
		return b.explain(ctx, err)
	}
	b.marked = true
	return nil
}
