// SPDX-License-Identifier: Apache-2.0

// Package cli is the berth command: one file a subcommand, each thin over the packages that do the work.
//
// Results go to standard output, everything else to standard error. The exit codes are a table that users may rely on,
// see [ExitOK] and its neighbours.
//
// Size: one file a subcommand, and nothing that another package could use.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/internal/version"
	"github.com/berth-dev/berth/sdk/errs"
)

// The exit codes.
const (
	ExitOK         = 0
	ExitFailure    = 1   // something failed, or a file has errors
	ExitUsage      = 2   // the command line is wrong
	ExitWouldFmt   = 3   // fmt -check: a file is not formatted
	ExitIncomplete = 4   // a run ended without its answer: limits, budget, failure of the model
	ExitPaused     = 5   // a run waits for a decision about a call
	ExitBerth      = 125 // exec: berth itself failed, the command was not run or not to its end
	ExitNotFound   = 127 // exec: there is no such program in the sandbox, or it is not executable
	ExitCancelled  = 130 // a run was cancelled
)

// IO is what a command may touch of the process.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) (string, bool)
	Dir      string // working directory
}

// OS is the process's own.
func OS() IO {
	dir, _ := os.Getwd() // paths are then said to be relative to nothing
	return IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.LookupEnv, Dir: dir}
}

// exitError ends the program with a code. A nil err was told already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func exit(code int, err error) error { return &exitError{code, err} }

func usage(format string, args ...any) error { return exit(ExitUsage, fmt.Errorf(format, args...)) }

// Main runs a command line and gives the exit code.
func Main(args []string, std IO) int {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(std.Err, "berth: this version runs on Linux and macOS hosts; on Windows use WSL 2")
		return ExitFailure
	}
	a := &app{IO: std}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if cerr := a.close(); err == nil {
		err = cerr
	}
	if err == nil {
		return ExitOK
	}
	code := ExitFailure
	if ee, ok := errors.AsType[*exitError](err); ok {
		code, err = ee.code, ee.err
	}
	if err != nil {
		a.report(err)
	}
	return code
}

// report says what went wrong and, where it is known, how to mend it.
func (a *app) report(err error) {
	fmt.Fprintln(a.Err, "berth:", a.redact(err.Error()))
	var e *errs.Error
	var m *model.Error
	switch {
	case errors.As(err, &e) && e.Hint != "":
		fmt.Fprintln(a.Err, "hint:", a.redact(e.Hint))
	case errors.As(err, &m) && m.Hint != "":
		fmt.Fprintln(a.Err, "hint:", a.redact(m.Hint))
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Give an agent a computer",
		Long: `berth runs agents that are described in HCL files, each in a sandbox of its own: a confined process on this
machine, or whatever a driver makes.

Exit codes: 0 fine, 1 failure or errors in a file, 2 wrong command line, 3 fmt -check found work, 4 a run ended without
its answer, 5 a run waits for a decision, 130 a run was cancelled. berth exec passes the command's own code on, 128 and more for signals, and uses
125 for berth's failures and 127 for a program that is not there.`,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		Args:              subcommand,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.chdir() },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVar(&a.flags.chdir, "chdir", "", "work as if started in this `directory`")
	f.StringVar(&a.flags.logLevel, "log-level", "", "trace, debug, info, warn, error or off")
	f.StringArrayVar(&a.flags.driverBinary, "driver-binary", nil, "run a driver from a file, `NAME=PATH`, without a lock")
	f.BoolVar(&a.flags.noColor, "no-color", false, "never use colour")
	for _, add := range []func() *cobra.Command{
		a.runCommand, a.resumeCommand, a.approveCommand, a.rejectCommand, a.runsCommand, a.execCommand, a.initCommand, a.validateCommand, a.fmtCommand, a.planCommand, a.skillCommand,
		a.configCommand, a.sessionCommand, a.conversationCommand, a.memoryCommand, a.driverCommand, a.snapshotCommand, a.explainCommand, a.versionCommand,
		a.traceCommand, a.auditCommand,
	} {
		c := add()
		wrapArgs(c)
		root.AddCommand(c)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = subcommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			c.Run, c.RunE = nil, helpOn
		}
	}
	return root
}

// helpOn shows the help of a command.
func helpOn(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return subcommand(about, args[len(args)-max(len(rest), 1):])
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

// group is a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: subcommand, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(subs...)
	return c
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which berth this is", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.Out, "berth %s %s/%s\n", version.String(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// terminal reports whether w is one, and how wide it is.
func terminal(w any) (width int, ok bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil
}

func (a *app) color(w io.Writer) bool {
	if _, no := a.Getenv("NO_COLOR"); no || a.flags.noColor {
		return false
	}
	_, ok := terminal(w)
	return ok
}

// diagnostics writes what was found in files, and gives the error that belongs to it.
func (a *app) diagnostics(ds diag.Diagnostics, files diag.Files, output string, w io.Writer) error {
	width, _ := terminal(w)
	var err error
	switch output {
	case "", "text":
		err = diag.WriteText(w, ds, files, diag.TextOptions{Color: a.color(w), Width: width})
	case "json":
		err = diag.WriteJSON(w, ds, files)
	case "short":
		err = diag.WriteShort(w, ds)
	case "sarif":
		err = diag.WriteSARIF(w, ds, files, version.String())
	default:
		return usage("--output is %q; it is text, json, short or sarif", output)
	}
	if err != nil {
		return err
	}
	if ds.HasErrors() {
		return exit(ExitFailure, nil)
	}
	return nil
}

func list(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}
