// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/choose"
)

func (a *app) planCommand() *cobra.Command {
	var f runFlags
	var asJSON, full bool
	c := &cobra.Command{
		Use:   "plan [flags] [FILE|DIR]",
		Short: "Show what a run would do, and what it would tell the model",
		Long: `Shows what a run would create, copy, clone and mount in a fresh workspace, which host paths it would read, what the
model would be told and which tools it would have. Nothing is fetched and no sandbox is made.`,
		Args: oneProject,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Path = a.Dir
			if len(args) == 1 {
				f.Path = a.path(args[0])
			}
			l, err := a.load(cmd.Context(), f.Path, &f.projectFlags)
			if err != nil {
				return err
			}
			r, err := choose.Run(l.Project, f.Run)
			if err != nil {
				return err
			}
			if r.Agent.Sandboxed {
				if r.Sandbox, err = choose.Sandbox(l.Project, r, f.Sandbox); err != nil {
					return err
				}
			}
			h, err := a.harness(f.Path)
			if err != nil {
				return err
			}
			plan, err := h.Plan(cmd.Context(), l.Project, r)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(plan)
			}
			return a.showPlan(plan, full)
		},
	}
	fs := c.Flags()
	f.add(fs)
	fs.StringVar(&f.Run, "run", "", "`NAME` of the run block or agent, where there are several")
	fs.StringVar(&f.Sandbox, "sandbox", "", "`NAME` of a sandbox block or a driver to use instead")
	fs.BoolVar(&asJSON, "json", false, "print it as JSON")
	fs.BoolVar(&full, "full", false, "print the instructions whole")
	a.completeProject(c, &f)
	return c
}

// promptLines is how much of the instructions is shown.
const promptLines = 12

func (a *app) showPlan(p *berth.Plan, full bool) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	row := func(cells ...any) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintln(strings.Join(texts(cells), "\t")), "\n"))
	}
	row("agent", p.Agent)
	if p.Driver != "" {
		row("sandbox", fmt.Sprintf("driver %s, workspace %s", p.Driver, p.Root))
	}
	for _, n := range p.Unavailable {
		row("not available", n)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(p.Steps) > 0 {
		fmt.Fprintln(a.Out, "\nThe workspace is filled with:")
		for _, s := range p.Steps {
			from, size := "", ""
			if s.From != "" {
				from = "from " + s.From
			}
			if s.Files > 0 {
				size = fmt.Sprintf("%s, %d bytes", count(s.Files, "file"), s.Bytes)
			}
			row("  "+string(s.Kind), s.Path, from, size, s.Note)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(p.HostPaths) > 0 {
		fmt.Fprintf(a.Out, "\nHost paths that %s:\n", p.HostPathsNote)
		for _, h := range p.HostPaths {
			fmt.Fprintln(a.Out, "  "+h)
		}
	}
	if len(p.Environment) > 0 {
		fmt.Fprintln(a.Out, "\nEnvironment:", strings.Join(p.Environment, ", "))
	}
	fmt.Fprintln(a.Out, "\nTools:", list(p.Tools))
	fmt.Fprintln(a.Out, "\nThe model is told:")
	lines := strings.Split(p.Instructions, "\n")
	more := 0
	if !full && len(lines) > promptLines {
		more = len(lines) - promptLines
		lines = lines[:promptLines]
	}
	for _, l := range lines {
		fmt.Fprintln(a.Out, "  "+l)
	}
	if more > 0 {
		fmt.Fprintf(a.Out, "  … %d more lines, see --full\n", more)
	}
	return nil
}

func texts(cells []any) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = fmt.Sprint(c)
	}
	return out
}
