// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) resumeCommand() *cobra.Command {
	var asJSON, fresh bool
	var project projectFlags
	var state, replay string
	c := &cobra.Command{
		Use:   "resume [flags] [RUN]",
		Short: "Go on with a run that was stopped, was interrupted or ran into a limit",
		Long: `Goes on with a run where it was, in its sandbox, with today's files and the flags that it was started with, but for
variables: they may be secret and are not kept, so give --var and --var-file again. RUN is an id or the beginning of one;
without it, the run of the project in the working directory that was worked on last.

A run of another machine that shares its store goes on in the project of the working directory. --state goes on with a run
of any machine in that project: berth runs export writes the file.`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return fmt.Errorf("there are %d arguments, and only the name of a run is understood: %q is one too many", len(args), args[1])
			case len(args) == 1 && state != "":
				return fmt.Errorf("the run is in the file of --state: %q is one too many", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f := runFlags{json: asJSON, projectFlags: project}
			if state != "" {
				return a.resumeElsewhere(cmd.Context(), &f, state, replay, fresh)
			}
			id, err := a.resumed(cmd.Context(), args)
			if err != nil {
				return err
			}
			h, err := a.harness(a.Dir)
			if err != nil {
				return err
			}
			note, err := h.Note(cmd.Context(), id)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(note, &f); err != nil {
				return fmt.Errorf("run %s was not started by this command: %w", id, err)
			}
			switch {
			case f.Path == "":
				f.Path = a.Dir // it was worked on elsewhere last
			case fresh:
				return usage("run %s was worked on here last, and goes on in its workspace\nhint: leave out --fresh-workspace", id)
			}
			if replay != "" {
				f.Replay = replay
			}
			if f.Vars && len(project.vars) == 0 {
				fmt.Fprintf(a.Err, "warning: run %s was started with --var or --var-file; without them the variables have their defaults\n", id)
			}
			p, err := a.prepare(cmd.Context(), &f, f.Input)
			if err != nil {
				return err
			}
			p.options.ID, p.options.Fresh = id, fresh
			return a.perform(cmd.Context(), &f, p, p.harness.Resume)
		},
	}
	project.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print events as JSON lines instead of the answer")
	c.Flags().StringVar(&state, "state", "", "go on with the run in this `FILE`")
	c.Flags().StringVar(&replay, "replay", "", "play a transcript `FILE` instead of asking a model")
	c.Flags().BoolVar(&fresh, "fresh-workspace", false, "go on in a new workspace, with a run of another machine")
	return c
}

// resumed is the run that is meant.
func (a *app) resumed(ctx context.Context, args []string) (string, error) {
	if len(args) == 0 {
		return a.latest(ctx)
	}
	reg, err := a.runs(ctx)
	if err != nil {
		return "", err
	}
	return reg.Find(ctx, args[0])
}

// resumeElsewhere goes on with a run of another machine.
func (a *app) resumeElsewhere(ctx context.Context, f *runFlags, file, replay string, fresh bool) error {
	doc, err := a.importRun(file, fresh)
	if err != nil {
		return err
	}
	given := *f
	if len(doc.Note) > 0 {
		if err := json.Unmarshal(doc.Note, f); err != nil {
			return fmt.Errorf("--state %s: the run was not started by this command: %w", file, err)
		}
	}
	f.json, f.projectFlags, f.Path, f.Replay = given.json, given.projectFlags, a.Dir, replay
	p, err := a.prepare(ctx, f, f.Input)
	if err != nil {
		return err
	}
	p.options.ID, p.options.Fresh = doc.RunID, len(doc.Sandboxes) > 0
	if err := p.harness.Import(ctx, doc, p.options.Note); err != nil {
		return err
	}
	return a.perform(ctx, f, p, p.harness.Resume)
}
