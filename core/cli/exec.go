// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func (a *app) execCommand() *cobra.Command {
	var f runFlags
	var quiet, tty bool
	c := &cobra.Command{
		Use:   "exec [flags] [FILE|DIR] -- COMMAND [ARG...]",
		Short: "Run one command in a fresh sandbox, without a model",
		Long: `Makes the sandbox that the project describes, with its manifest, runs one command in it and removes it. Streams,
terminal and exit code are the command's own; 125 means that berth failed, 127 that there is no such program. Without a
project the sandbox is the default one. Ctrl-C goes to the command; a third one ends the sandbox.`,
		Example: `  berth exec -- uname -a
  berth exec . -- sh -c 'ls -la; id'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash < 0 || dash > 1 || len(args) == dash {
				return usage("the command comes after --, and at most one project before it\nhint: berth exec [FILE|DIR] -- COMMAND [ARG...], as in berth exec . -- ls -l")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[cmd.ArgsLenAtDash():]
			f.Path = a.Dir
			if cmd.ArgsLenAtDash() == 1 {
				f.Path = a.path(args[0])
			}
			return commandEnd(a.exec(cmd.Context(), &f, argv, quiet, tty))
		},
	}
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint, err := flagFault(cmd, err)
		if !strings.HasPrefix(hint, "did you mean") {
			hint = "the command and its flags come after --, as in berth exec . -- ls -l"
		}
		return usage("%w\nhint: %s", err, hint)
	})
	fs := c.Flags()
	f.add(fs)
	fs.StringVar(&f.Run, "run", "", "`NAME` of the run block or agent, where there are several")
	fs.StringVar(&f.Sandbox, "sandbox", "", "`NAME` of a sandbox block or a driver to use instead")
	fs.StringVar(&f.From, "from-snapshot", "", "start from this `SNAPSHOT`, a name or an id, instead of the manifest; latest and never are understood too")
	fs.BoolVar(&f.Keep, "keep", false, "keep the sandbox, stopped")
	fs.BoolVarP(&quiet, "quiet", "q", false, "do not say what the sandbox enforces")
	fs.BoolVarP(&tty, "tty", "t", false, "give the command a terminal also when standard output is none")
	a.completeProject(c, &f)
	return c
}

// execProject is the sandbox, manifest and agent that a command runs with. A directory without a project is none.
func (a *app) execProject(ctx context.Context, f *runFlags) (*spec.Project, *spec.Run, error) {
	none := &spec.Project{Dir: f.Path}
	if f.Path == a.Dir && !hasProject(f.Path) {
		sb, err := choose.Sandbox(none, &spec.Run{}, f.Sandbox)
		return none, &spec.Run{Sandbox: sb}, err
	}
	l, err := a.load(ctx, f.Path, &f.projectFlags)
	if err != nil {
		return nil, nil, err
	}
	r := &spec.Run{}
	if len(l.Project.Runs)+len(l.Project.Agents) > 0 {
		if r, err = choose.Run(l.Project, f.Run); err != nil {
			return nil, nil, err
		}
	} else if len(l.Project.Manifests) == 1 {
		for _, m := range l.Project.Manifests {
			r.Manifest = m
		}
	}
	if r.Manifest == nil && r.Agent != nil {
		r.Manifest = r.Agent.Manifest
	}
	r.Sandbox, err = choose.Sandbox(l.Project, r, f.Sandbox)
	return l.Project, r, err
}

func (a *app) exec(ctx context.Context, f *runFlags, argv []string, quiet, wantTTY bool) (code int, err error) {
	p, r, err := a.execProject(ctx, f)
	if err != nil {
		return 0, err
	}
	h, err := a.harness(f.Path)
	if err != nil {
		return 0, err
	}
	if err := allowed(p, a.host, h.DriverOf(r.Sandbox)); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	emit := func(event.Data) {}
	if !quiet {
		width, _ := terminal(a.Err)
		s := show.Text(a.Err, show.TextOptions{Color: a.color(a.Err), Width: width})
		var mu sync.Mutex // news of the driver comes from goroutines of its own
		emit = func(d event.Data) {
			mu.Lock()
			defer mu.Unlock()
			s.Event(event.Event{Time: time.Now(), Kind: d.Kind(), Data: d})
		}
	}
	runAs := ""
	if r.Agent != nil {
		runAs = r.Agent.RunAs
	}
	opening := onInterrupt(func(int, os.Signal) { cancel(errors.New("interrupted")) })
	s, err := h.Open(ctx, p, berth.SandboxOptions{
		Sandbox: r.Sandbox, Manifest: r.Manifest, Agent: r.Agent, Keep: f.Keep, From: f.From, Emit: emit, What: "exec",
	})
	opening()
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, s.Close(context.WithoutCancel(ctx), run.Completed))
	}()
	return insistent(ctx, func(ctx context.Context) (int, error) {
		return a.command(ctx, s.Session, &driver.Command{Argv: argv, Dir: r.Cwd, User: runAs}, wantTTY)
	})
}

// insist is how many times one has to ask a command to end before it is ended.
const insist = 3

// insistent lets the third Ctrl-C end what a command does not end for by itself.
func insistent(ctx context.Context, f func(context.Context) (int, error)) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	release := onInterrupt(func(n int, _ os.Signal) {
		if n == insist {
			cancel(errors.New("interrupted"))
		}
	})
	defer release()
	return f(ctx)
}

// commandEnd is the exit of berth after a command: the command's own code, or that of berth's failure.
func commandEnd(code int, err error) error {
	var ee *exitError
	switch {
	case errors.As(err, &ee):
		return err
	case errors.Is(err, errs.ExecNotFound):
		return exit(ExitNotFound, err)
	case err != nil:
		return exit(ExitBerth, err)
	case code != 0:
		return exit(code, nil)
	}
	return nil
}

// command runs one command with this process's streams and terminal.
func (a *app) command(ctx context.Context, s *sandbox.Session, cmd *driver.Command, wantTTY bool) (int, error) {
	streams := driver.Streams{Stdin: a.In, Stdout: a.Out, Stderr: a.Err}
	signals := make(chan driver.Signal, 4)
	streams.Signals = signals
	out, outTTY := a.Out.(*os.File)
	in, inTTY := a.In.(*os.File)
	outTTY = outTTY && term.IsTerminal(int(out.Fd()))
	inTTY = inTTY && term.IsTerminal(int(in.Fd()))
	if cmd.TTY = wantTTY || (outTTY && inTTY); cmd.TTY {
		restore, resize, err := attachTerminal(cmd, in, inTTY, out, outTTY)
		if err != nil {
			return 0, err
		}
		defer restore()
		streams.Resize = resize
	}
	release := onInterrupt(func(_ int, sig os.Signal) {
		name := "INT"
		if sig == syscall.SIGTERM {
			name = "TERM"
		}
		select {
		case signals <- driver.Signal{Name: name}:
		default:
		}
	})
	defer release()
	if !inTTY && !cmd.TTY {
		streams.Stdin = untilEOF(a.In)
	}
	exit, err := s.Run(ctx, cmd, streams)
	return exit.Code, err
}

// untilEOF hides what an *os.File can do beyond reading, so that it is only read.
func untilEOF(r io.Reader) io.Reader { return struct{ io.Reader }{r} }

// attachTerminal makes this terminal raw, so that keys go to the command, and follows its size.
func attachTerminal(cmd *driver.Command, in *os.File, inTTY bool, out *os.File, outTTY bool) (restore func(), resize <-chan driver.Size, err error) {
	restore = func() {}
	if inTTY {
		old, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return nil, nil, err
		}
		restore = func() { _ = term.Restore(int(in.Fd()), old) }
	}
	if !outTTY {
		return restore, nil, nil
	}
	size := func() driver.Size {
		w, h, err := term.GetSize(int(out.Fd()))
		if err != nil {
			return driver.Size{}
		}
		return driver.Size{Rows: uint16(h), Cols: uint16(w)}
	}
	cmd.Size = size()
	sizes := make(chan driver.Size, 1)
	winch := make(chan os.Signal, 1)
	signal.Notify(winch, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-winch:
				select {
				case sizes <- size():
				default: // one is on its way already
				}
			case <-done:
				return
			}
		}
	}()
	undo := restore
	return func() {
		signal.Stop(winch)
		close(done)
		undo()
	}, sizes, nil
}
