// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// commandFlags say how a command runs in a session.
type commandFlags struct {
	user, dir string
	env       []string
	tty       bool
}

func (f *commandFlags) command(argv []string) (*driver.Command, error) {
	cmd := &driver.Command{Argv: argv, User: f.user, Dir: f.dir, Env: map[string]string{}}
	for _, arg := range f.env {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, usage("--env is %q; it is NAME=VALUE", arg)
		}
		cmd.Env[name] = value
	}
	return cmd, nil
}

func (a *app) sessionExec(project *projectFlags) *cobra.Command {
	var f commandFlags
	var detach bool
	c := &cobra.Command{
		Use:   "exec [flags] SESSION -- COMMAND [ARG...]",
		Short: "Run a command in a session's sandbox",
		Long: `Runs a command in the sandbox of a session and then puts the session back as it was. Streams, terminal and exit code are the
command's own, as with berth exec.

With --detach the command goes on after berth has ended, and its id is printed: berth session attach follows it. The
sandbox is left running for it, and a sandbox that nobody uses ends its processes after its orphan_ttl, by default two
minutes.`,
		Example: `  berth session exec 06h3 -- git status
  berth session exec 06h3 --user root -- apt-get install -y jq`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash != 1 || len(args) == dash {
				return usage("the session comes before --, the command after it\nhint: berth session exec SESSION -- COMMAND [ARG...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := f.command(args[1:])
			if err != nil {
				return err
			}
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				if detach {
					command.TTY = f.tty
					id, err := detached(ctx, s, command)
					if err != nil {
						return commandEnd(0, err)
					}
					if err := s.Leave(context.WithoutCancel(ctx)); err != nil {
						return err
					}
					_, err = fmt.Fprintln(a.Out, id)
					return err
				}
				return commandEnd(insistent(ctx, func(ctx context.Context) (int, error) { return a.command(ctx, s.Session, command, f.tty) }))
			})
		},
	}
	fs := c.Flags()
	fs.StringVarP(&f.user, "user", "u", "", "the `USER` it runs as")
	fs.StringVarP(&f.dir, "dir", "w", "", "the `DIRECTORY` it starts in, the workspace when left out")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set an environment variable, `NAME=VALUE`")
	fs.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal also when standard output is none")
	fs.BoolVarP(&detach, "detach", "d", false, "print its id and leave it running")
	return c
}

func (a *app) sessionShell(project *projectFlags) *cobra.Command {
	var f commandFlags
	c := &cobra.Command{
		Use:   "shell [flags] SESSION",
		Short: "Open a shell in a session's sandbox",
		Long: `Opens an interactive shell, bash or else sh, on this terminal in the sandbox of a session. Ctrl-C and the size of the
window are the shell's own. The session stays as it was when the shell ends.`,
		Args: just("a session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, ok := terminal(a.Out); !ok {
				return usage("a shell needs a terminal, and standard output is none\nhint: berth session exec %s -- COMMAND runs one command", args[0])
			}
			f.tty = true
			command, err := f.command([]string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l"})
			if err != nil {
				return err
			}
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				code, err := a.command(ctx, s.Session, command, true)
				if errors.Is(err, errs.ExecNotFound) {
					err = errs.New(errs.ExecNotFound, "there is no shell in the sandbox of session %s", args[0]).
						WithHint("berth session exec SESSION -- COMMAND runs a program that is there")
				}
				return commandEnd(code, err)
			})
		},
	}
	fs := c.Flags()
	fs.StringVarP(&f.user, "user", "u", "", "the `USER` it runs as")
	fs.StringVarP(&f.dir, "dir", "w", "", "the `DIRECTORY` it starts in, the workspace when left out")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set an environment variable, `NAME=VALUE`")
	return c
}

// detached starts a command and gives its id once it runs.
func detached(ctx context.Context, s *session.Session, cmd *driver.Command) (string, error) {
	cmd.Detached = true
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	running := errors.New("it runs")
	var id string
	streams := driver.Streams{OnStart: func(st driver.Started) {
		id = st.ProcessID
		cancel(running)
	}}
	if cmd.TTY {
		keys, w := io.Pipe() // a terminal whose keys come to an end ends what reads them
		defer w.Close()
		streams.Stdin = keys
	}
	_, err := s.Run(ctx, cmd, streams)
	if id != "" && (err == nil || errors.Is(context.Cause(ctx), running)) {
		return id, nil
	}
	return "", err
}
