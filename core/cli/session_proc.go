// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func (a *app) sessionPS(project *projectFlags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ps SESSION",
		Short: "List the commands that were started in a session's sandbox",
		Long: `Lists the commands that run in the sandbox of a session, and those that have ended and are still remembered. What the
commands themselves started is not listed.`,
		Args: just("a session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				list, err := s.Processes(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(processInfos(list))
				}
				return a.showProcesses(list)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

// processInfo is a process as ps shows it.
type processInfo struct {
	ID          string    `json:"id"`
	PID         int64     `json:"pid,omitempty"`
	Argv        []string  `json:"argv"`
	User        string    `json:"user,omitempty"`
	TTY         bool      `json:"tty,omitempty"`
	Started     time.Time `json:"started,omitzero"`
	ExitCode    *int      `json:"exit_code,omitempty"` // none while it runs
	Signal      string    `json:"signal,omitempty"`
	OutputBytes uint64    `json:"output_bytes"`
}

func processInfos(list []driver.Process) []processInfo {
	out := make([]processInfo, 0, len(list))
	for _, p := range list {
		info := processInfo{ID: p.ID, PID: p.PID, Argv: p.Argv, User: p.User, TTY: p.TTY, Started: p.Started, OutputBytes: p.OutputBytes}
		if p.Exit != nil {
			info.ExitCode, info.Signal = &p.Exit.Code, p.Exit.Signal
		}
		out = append(out, info)
	}
	return out
}

func (a *app) showProcesses(list []driver.Process) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.Err, "no command was started there")
		return err
	}
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPID\tUSER\tSTARTED\tSTATUS\tCOMMAND")
	for _, p := range list {
		status := "running"
		switch {
		case p.Exit == nil:
		case p.Exit.Signal != "":
			status = "ended by SIG" + p.Exit.Signal
		default:
			status = "exit " + strconv.Itoa(p.Exit.Code)
		}
		pid := "-"
		if p.PID != 0 {
			pid = strconv.FormatInt(p.PID, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.ID, pid, p.User, p.Started.Local().Format(time.DateTime), status, commandLine(p.Argv))
	}
	return w.Flush()
}

// commandLine shows a command on one line, cut where it is long. Words that a shell would split are quoted.
func commandLine(argv []string) string {
	const most = 80
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = arg
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\'' || !strconv.IsPrint(r) }) {
			words[i] = strconv.Quote(arg)
		}
	}
	line := []rune(strings.Join(words, " "))
	if len(line) > most {
		line = append(line[:most-1], '…')
	}
	return string(line)
}

func (a *app) sessionKill(project *projectFlags) *cobra.Command {
	var signal string
	var leader bool
	c := &cobra.Command{
		Use:   "kill [flags] SESSION COMMAND-ID...",
		Short: "Send a signal to commands in a session's sandbox",
		Long:  `Sends a signal, TERM when none is named, to commands and to everything that they started. berth session ps has their ids.`,
		Args:  atLeast(2, "a session and the id of a command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sig := driver.Signal{Name: strings.TrimPrefix(strings.ToUpper(signal), "SIG"), LeaderOnly: leader}
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				for _, id := range args[1:] {
					if err := s.Signal(ctx, id, sig); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().StringVarP(&signal, "signal", "s", "TERM", "the `SIGNAL` to send")
	c.Flags().BoolVar(&leader, "leader", false, "only to the command itself, not to what it started")
	return c
}

func (a *app) sessionAttach(project *projectFlags) *cobra.Command {
	var fromEnd, noStdin bool
	c := &cobra.Command{
		Use:   "attach [flags] SESSION [COMMAND-ID]",
		Short: "Follow a command that runs in a session's sandbox",
		Long: `Shows the output of a command, what is kept of it first, and passes this terminal's keys and size on when the command has a
terminal. Without an id the session must have one running command. The exit code is the command's own.

Ctrl-P Ctrl-Q leaves a command with a terminal running and ends attach; for one without a terminal, Ctrl-C does.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fmt.Errorf("there are %d arguments; a session, and the id of a command where there are several, are understood", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				p, err := chooseProcess(ctx, s, args[1:])
				if err != nil {
					return err
				}
				var offset uint64
				if fromEnd {
					offset = p.OutputBytes
				}
				return a.attach(ctx, s, p, offset, !noStdin)
			})
		},
	}
	c.Flags().BoolVar(&fromEnd, "from-end", false, "leave out what was written before")
	c.Flags().BoolVar(&noStdin, "no-stdin", false, "only show the output")
	return c
}

// chooseProcess is the named one, or the only one that runs.
func chooseProcess(ctx context.Context, s *session.Session, ids []string) (*driver.Process, error) {
	list, err := s.Processes(ctx)
	if err != nil {
		return nil, err
	}
	var running []*driver.Process
	for i := range list {
		switch p := &list[i]; {
		case len(ids) > 0 && p.ID == ids[0]:
			return p, nil
		case p.Exit == nil:
			running = append(running, p)
		}
	}
	switch {
	case len(ids) > 0:
		return nil, errs.New(errs.ProcessUnknown, "the sandbox knows no command %s", ids[0]).WithHint("berth session ps lists those that it knows")
	case len(running) == 0:
		return nil, errs.New(errs.ProcessUnknown, "no command is running in the sandbox").WithHint("berth session ps also lists those that have ended; name one to see its output")
	case len(running) > 1:
		return nil, usage("%d commands are running: name one\nhint: berth session ps lists them", len(running))
	}
	return running[0], nil
}

// attach follows a process until it ends or the user leaves it.
func (a *app) attach(ctx context.Context, s *session.Session, p *driver.Process, offset uint64, stdin bool) error {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	left := errors.New("left running")
	streams := driver.Streams{Stdout: a.Out, Stderr: a.Err, OnGap: func(g driver.Gap) {
		fmt.Fprintf(a.Err, "[berth: %d bytes of earlier output were not kept]\n", g.To-g.From)
	}}
	in, inTTY := a.In.(*os.File)
	inTTY = inTTY && term.IsTerminal(int(in.Fd()))
	out, outTTY := a.Out.(*os.File)
	outTTY = outTTY && term.IsTerminal(int(out.Fd()))
	if p.TTY && stdin && p.Exit == nil {
		restore, resize, err := attachTerminal(&driver.Command{}, in, inTTY, out, outTTY)
		if err != nil {
			return err
		}
		defer restore()
		streams.Resize = resize
		over := make(chan struct{})
		defer close(over)
		streams.Stdin = &detachable{r: a.In, leave: func() { leave(left) }, over: over}
	}
	release := onInterrupt(func(int, os.Signal) { leave(left) })
	defer release()
	exit, err := s.Attach(ctx, p.ID, offset, streams)
	if err != nil && errors.Is(context.Cause(ctx), left) {
		fmt.Fprintf(a.Err, "\n[berth: left running; berth session attach follows it again]\n")
		return nil
	}
	return commandEnd(exit.Code, err)
}

// detachable passes keys on until Ctrl-P Ctrl-Q, Docker's keys for leaving.
type detachable struct {
	r     io.Reader
	leave func()
	over  <-chan struct{}
	held  bool // a Ctrl-P that is not passed on yet
}

const ctrlP, ctrlQ = 'p' & 0x1f, 'q' & 0x1f

func (d *detachable) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	keys := make([]byte, len(p)-1) // room for a Ctrl-P that was held
	n, err := d.r.Read(keys)
	out := p[:0]
	for _, k := range keys[:n] {
		switch {
		case d.held && k == ctrlQ:
			d.leave()
			<-d.over // an end of the input would reach the command as one
			return 0, io.EOF
		case d.held:
			out = append(out, ctrlP)
			d.held = false
		}
		if k == ctrlP {
			d.held = true
			continue
		}
		out = append(out, k)
	}
	if err != nil && d.held {
		out, d.held = append(out, ctrlP), false
	}
	return len(out), err
}
