// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/config/drivercfg"
	"github.com/berth-dev/berth/core/config/explain"
	"github.com/berth-dev/berth/core/config/format"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func (a *app) validateCommand() *cobra.Command {
	var f projectFlags
	var output string
	var strict, deep bool
	c := &cobra.Command{
		Use:   "validate [flags] [FILE|DIR]",
		Short: "Check a project",
		Long: `Checks a project's files without secrets, without a network and without starting a driver. With --deep the drivers are
started and check their configurations too: the secrets in those are fetched, and a driver may ask its vendor.`,
		Args: oneProject,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := a.Dir
			if len(args) == 1 {
				path = args[0]
			}
			l, err := a.loadAll(cmd.Context(), path, &f)
			if err != nil {
				return err
			}
			if deep && !l.Diags.HasErrors() {
				if err := a.checkDrivers(cmd.Context(), path, l); err != nil {
					return err
				}
			}
			w := a.Err
			if output == "json" || output == "sarif" {
				w = a.Out
			}
			if err := a.diagnostics(l.Diags, l.Files, output, w); err != nil {
				return err
			}
			_, warnings := l.Diags.Count()
			if strict && warnings > 0 {
				return exit(ExitFailure, errors.New("there are warnings, and --strict was given"))
			}
			if output == "" || output == "text" {
				p := l.Project
				fmt.Fprintf(a.Out, "The project is valid: %s, %s, %s.\n", count(len(p.Agents), "agent"), count(len(p.Manifests), "manifest"),
					count(len(p.Sandboxes), "sandbox"))
			}
			return nil
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&output, "output", "", "`FORM` of the findings: text, json, short or sarif")
	c.Flags().BoolVar(&strict, "strict", false, "fail on warnings too")
	c.Flags().BoolVar(&deep, "deep", false, "start the drivers and let them check their configurations")
	return c
}

// checkDrivers adds what the drivers of a project find.
func (a *app) checkDrivers(ctx context.Context, path string, l *config.Loaded) error {
	h, err := a.harness(path)
	if err != nil {
		return err
	}
	for label := range drivers(l.Project, h) {
		if err := allowed(l.Project, a.host, label); err != nil {
			return err
		}
	}
	for _, f := range h.CheckDrivers(ctx, l.Project) {
		l.Diags = append(l.Diags, findings(f)...)
	}
	l.Diags = l.Diags.Sorted()
	return nil
}

// drivers are the labels of the drivers that a project's sandboxes use, and of those that it configures.
func drivers(p *spec.Project, h *berth.Harness) map[string]bool {
	out := map[string]bool{}
	for label := range p.Drivers {
		out[label] = true
	}
	for _, s := range p.Sandboxes {
		out[h.DriverOf(s)] = true
	}
	if len(out) == 0 {
		out[h.DriverOf(nil)] = true
	}
	return out
}

// findings are a driver's as diagnostics.
func findings(f berth.Finding) diag.Diagnostics {
	body, ok := f.Config.(*drivercfg.Config)
	if !ok {
		body = &drivercfg.Config{At: f.Pos}
	}
	var own *diag.Diagnostic
	var e *errs.Error
	switch {
	case f.Err == nil:
		return body.Findings(f.Driver, f.Found)
	case errors.As(f.Err, &own):
		return diag.Diagnostics{own}
	}
	found := driver.Diagnostic{Summary: "driver " + strconv.Quote(f.Driver) + " cannot check its configuration", Detail: f.Err.Error()}
	if errors.As(f.Err, &e) && e.Hint != "" {
		found.Detail += "\nhint: " + e.Hint
	}
	return body.Findings(f.Driver, []driver.Diagnostic{found})
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "x") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (a *app) fmtCommand() *cobra.Command {
	var cmdline format.Command
	c := &cobra.Command{
		Use:   "fmt [flags] [PATH...]",
		Short: "Bring files into the canonical form",
		Long: `Formats *.berth.hcl and variable files in place and prints the names of those that change. "-" formats standard
input. A file with syntax errors is left alone and told. With --check nothing is written and the exit code is 3 when
something would be.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, p := range args {
				if _, err := os.Stat(a.path(p)); errors.Is(err, fs.ErrNotExist) && p != "-" {
					return usage("there is no file or directory %s", a.path(p))
				}
			}
			cmdline.Dir, cmdline.Paths, cmdline.In, cmdline.Out = a.Dir, args, a.In, a.Out
			out, err := cmdline.Run(cmd.Context())
			if err != nil {
				return err
			}
			if len(out.Diagnostics) > 0 {
				if err := a.diagnostics(out.Diagnostics, out.Files, "text", a.Err); err != nil {
					return err
				}
			}
			if cmdline.Check && len(out.Changed) > 0 {
				return exit(ExitWouldFmt, nil)
			}
			return nil
		},
	}
	fs := c.Flags()
	fs.BoolVar(&cmdline.Check, "check", false, "write nothing; exit 3 when something would change")
	fs.BoolVar(&cmdline.Diff, "diff", false, "print what changes")
	fs.BoolVar(&cmdline.Recursive, "recursive", false, "directories below too")
	return c
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain CODE",
		Short: "Explain an error code, with a wrong and a right example",
		Args:  just("a code such as BERTH1101"),
		RunE: func(_ *cobra.Command, args []string) error {
			code, ok := diag.ParseCode(args[0])
			if !ok {
				return usage("%q is no code such as BERTH1101\nhint: the code of a finding stands in brackets: error[BERTH1101]", args[0])
			}
			text, ok := explain.Find(code)
			if !ok {
				return usage("there is no code %s\nhint: the code of a finding stands in brackets: error[BERTH1101]", code)
			}
			_, err := fmt.Fprint(a.Out, text.String())
			return err
		},
	}
}
