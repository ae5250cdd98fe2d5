// SPDX-License-Identifier: Apache-2.0

// Package execbox runs commands with a container engine's own exec, for containers that the guest cannot run in.
//
// The engine has no means to end an exec. Each command gets a mark in its environment, which its descendants inherit;
// what carries the mark is found in /proc and killed by another exec of the same user.
package execbox

import (
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	// mark names the variable that tells whose a process is.
	mark = "BERTH_COMMAND"
	// firstLook and lastLook bound how often the engine is asked whether a command runs.
	firstLook = 10 * time.Millisecond
	lastLook  = 200 * time.Millisecond
	// drainTime is how long output may be silent once the command has ended. Others may hold it open for ever: engines cut
	// it off by themselves after two seconds, so that less could lose what is still on its way.
	drainTime = 5 * time.Second
	// sweepTime bounds the end of a command's tree.
	sweepTime = 15 * time.Second
)

// Keeper keeps a container alive.
func Keeper() []string { return []string{"sh", "-c", "exec sleep 2147483647"} }

// Box runs commands in one container.
type Box struct {
	Engine         *engine.Engine
	Container      string
	Root           string
	User           string // of commands that name none; empty = the container's
	Env, SecretEnv map[string]string
}

// command is one that runs.
type command struct {
	box     *Box
	id      string // of the exec
	mark    string
	user    string
	tty     bool
	streams driver.Streams
	out     *output
}

// Run runs a command to its end, see driver.Sandbox.
func (b *Box) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c := &command{box: b, mark: mark + "=" + ulid.Make().String(), user: cmd.User, tty: cmd.TTY, streams: streams}
	if c.user == "" {
		c.user = b.User
	}
	dir := cmd.Dir
	if !path.IsAbs(dir) {
		dir = path.Join(b.Root, dir)
	}
	env := map[string]string{"PWD": dir}
	for _, more := range []map[string]string{b.Env, b.SecretEnv, cmd.Env, cmd.SecretEnv} {
		maps.Copy(env, more)
	}
	if cmd.TTY && env["TERM"] == "" {
		env["TERM"] = "xterm-256color"
	}
	list := []string{c.mark}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	opts := client.ExecCreateOptions{
		User: c.user, TTY: cmd.TTY, AttachStdin: streams.Stdin != nil || cmd.TTY, AttachStdout: true, AttachStderr: true,
		Env: list, WorkingDir: dir, Cmd: cmd.Argv,
	}
	if !b.Engine.Podman { // whose answers about an exec with keys of its own the client cannot read
		opts.DetachKeys = "ctrl-^,ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^"
	}
	made, err := b.Engine.ExecCreate(ctx, b.Container, opts)
	if err != nil {
		return driver.Exit{}, err
	}
	c.id = made.ID
	began := time.Now()
	conn, err := b.Engine.ExecAttach(ctx, c.id, client.ExecAttachOptions{TTY: cmd.TTY})
	if err != nil && b.Engine.Podman && cmd.User != "" && strings.Contains(err.Error(), "unable to upgrade") {
		// Its own words do not come this far; nothing else is known to be refused here.
		return driver.Exit{}, errs.New(errs.InvalidArgument, "the sandbox has no user %q", cmd.User).With("user", cmd.User)
	}
	if err != nil {
		return driver.Exit{}, err
	}
	defer conn.Close()
	if streams.OnStart != nil {
		streams.OnStart(driver.Started{ProcessID: cmd.ID})
	}
	exit, err := c.follow(ctx, cmd, conn)
	exit.Ran = time.Since(began)
	return exit, err
}

// follow moves what belongs to the command until it has ended.
func (c *command) follow(ctx context.Context, cmd *driver.Command, conn client.ExecAttachResult) (exit driver.Exit, err error) {
	says := docker
	if c.box.Engine.Podman {
		says = podman
	}
	c.out = newOutput(c.streams, says)
	defer c.out.close()
	go c.out.read(conn.Reader, c.tty)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(errEnded)
	if c.streams.Stdin != nil {
		go func() {
			_, _ = io.Copy(conn.Conn, c.streams.Stdin) // a command that has ended takes no more
			_ = conn.CloseWrite()                      // the same
		}()
	}
	go c.control(inner, cmd.Size)

	var deadline <-chan time.Time
	if cmd.Timeout > 0 {
		t := time.NewTimer(cmd.Timeout)
		defer t.Stop()
		deadline = t.C
	}
	st, err := c.ended(ctx, deadline)
	switch {
	case errors.Is(err, errTimeout):
		exit.TimedOut = true
		if st, err = c.end(ctx, cmd.KillGrace); err != nil {
			return exit, err
		}
	case err != nil && ctx.Err() != nil:
		if !cmd.Detached {
			_, _ = c.end(ctx, cmd.KillGrace) // the caller's reason is the error
		}
		return exit, &errs.Error{Code: errs.Canceled, Op: "run a command", Err: context.Cause(ctx)}
	case err != nil:
		return exit, err
	}
	if err := c.drain(ctx); err != nil {
		return exit, err
	}
	if text := c.out.refusal(); text != "" && st.PID == 0 && st.ExitCode >= 125 && st.ExitCode <= 127 {
		return exit, refused(cmd, text)
	}
	exit.Code = st.ExitCode
	exit.OutputBytes, err = c.out.close()
	return exit, err
}

var (
	errTimeout = errors.New("out of time")
	errEnded   = errors.New("the command has ended")
)

// ended waits until the command has ended.
func (c *command) ended(ctx context.Context, deadline <-chan time.Time) (client.ExecInspectResult, error) {
	over := c.out.over
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		st, err := c.box.Engine.ExecInspect(ctx, c.id, client.ExecInspectOptions{})
		// One that is yet to start does not run either, and has neither a process nor a code.
		if begun := st.PID != 0 || st.ExitCode != 0 || over == nil; err != nil || (!st.Running && begun) {
			return st, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-over:
			over = nil // it is about to be known
			t.Stop()
		case <-deadline:
			t.Stop()
			return st, errTimeout
		case <-ctx.Done():
			t.Stop()
			return st, context.Cause(ctx)
		}
	}
}

// end ends the command's tree: in order first, and after the grace at once.
func (c *command) end(ctx context.Context, grace time.Duration) (client.ExecInspectResult, error) {
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), grace+sweepTime, errs.New(errs.StopFailed, "the command did not end"))
	defer cancel()
	_ = c.signal(ctx, "TERM", false) // the kill below does not depend on it
	t := time.NewTimer(grace)
	defer t.Stop()
	if _, err := c.ended(ctx, t.C); err != nil && !errors.Is(err, errTimeout) {
		return client.ExecInspectResult{}, err
	}
	if err := c.signal(ctx, "KILL", true); err != nil {
		return client.ExecInspectResult{}, err
	}
	return c.ended(ctx, nil)
}

// sweep signals what carries a mark; with "all" until several looks in a row find nothing: one that forks or executes just
// then can escape a single look.
const sweep = `n=0 quiet=0
while [ $n -lt 200 ]; do
  found=
  for d in /proc/[0-9]*; do
    case $(cat "$d/environ" 2>/dev/null | tr '\000' '\n' 2>/dev/null) in *"$1"*) kill -"$2" "${d#/proc/}" 2>/dev/null; found=1 ;; esac
  done
  if [ "$3" != all ]; then exit 0; fi
  if [ -n "$found" ]; then quiet=0; else quiet=$((quiet+1)); fi
  if [ $quiet -ge 3 ]; then exit 0; fi
  n=$((n+1))
  if [ -n "$found" ]; then sleep 0.05 2>/dev/null || sleep 1; fi
done
exit 1`

func (c *command) signal(ctx context.Context, name string, all bool) error {
	until := ""
	if all {
		until = "all"
	}
	made, err := c.box.Engine.ExecCreate(ctx, c.box.Container, client.ExecCreateOptions{
		User: c.user, AttachStdout: true, Cmd: []string{"sh", "-c", sweep, "sh", c.mark, name, until}, WorkingDir: "/",
	})
	if err != nil {
		return err
	}
	conn, err := c.box.Engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	_, _ = io.Copy(io.Discard, conn.Reader) // its end is what counts
	st, err := c.box.Engine.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err == nil && st.ExitCode != 0 {
		err = errs.New(errs.StopFailed, "processes of the command did not end").WithHint("without berth's guest an image needs sh, cat, tr and sleep for it")
	}
	return err
}

// control passes sizes and signals on.
func (c *command) control(ctx context.Context, size driver.Size) {
	resize, signals := c.streams.Resize, c.streams.Signals
	set := func(s driver.Size) {
		if s == (driver.Size{}) {
			s = driver.Size{Rows: 24, Cols: 80}
		}
		for wait := firstLook; wait < time.Second; wait *= 2 {
			if _, err := c.box.Engine.ExecResize(ctx, c.id, client.ExecResizeOptions{Height: uint(s.Rows), Width: uint(s.Cols)}); err == nil {
				return
			}
			// It has ended, or is yet to start.
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
	}
	if c.tty {
		set(size)
	}
	for resize != nil || signals != nil {
		select {
		case s, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			set(s)
		case s, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			_ = c.signal(ctx, s.Name, false) // it may have ended
		case <-ctx.Done():
			return
		}
	}
}

// drain waits until all that the command wrote has been read.
func (c *command) drain(ctx context.Context) error {
	t := time.NewTimer(drainTime)
	defer t.Stop()
	for {
		select {
		case <-c.out.over:
			return nil
		case <-c.out.heard:
			t.Reset(drainTime)
		case <-t.C:
			return nil
		case <-ctx.Done():
			return &errs.Error{Code: errs.Canceled, Op: "run a command", Err: context.Cause(ctx)}
		}
	}
}

// refused types why the engine could not start a command.
func refused(cmd *driver.Command, text string) error {
	name := cmd.Argv[0]
	switch {
	case strings.Contains(text, "chdir to cwd"):
		return errs.New(errs.FileNotFound, "the working directory %q does not exist", cmd.Dir).With("path", cmd.Dir)
	case strings.Contains(text, "unable to find user"), strings.Contains(text, "unable to find group"):
		return errs.New(errs.InvalidArgument, "the sandbox has no user %q", cmd.User).With("user", cmd.User)
	case strings.Contains(text, "executable file not found"), strings.Contains(text, "no such file or directory"),
		strings.Contains(text, "permission denied"), strings.Contains(text, "exec format error"):
		return errs.New(errs.ExecNotFound, "no executable %q in the sandbox", name).With("path", name)
	}
	return errs.New(errs.ExecTransport, "%s", text)
}
