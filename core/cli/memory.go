// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/memory"
	"github.com/berth-dev/berth/core/spec"
)

func (a *app) memoryCommand() *cobra.Command {
	return group("memory", "Look at what agents remember, bring it up to date, and forget",
		a.memoryList(), a.memoryShow(), a.memoryGenerate(), a.memoryForget())
}

// memoryUse makes a command over the memory of an agent. It opens the workspace in which a run of the agent would work.
func (a *app) memoryUse(c *cobra.Command, do func(ctx context.Context, m *berth.OpenMemory, args []string) error) *cobra.Command {
	var f runFlags
	c.RunE = func(cmd *cobra.Command, args []string) error {
		f.Path = a.Dir
		h, o, err := a.memoryOptions(cmd.Context(), &f)
		if err != nil {
			return err
		}
		return h.Memory(cmd.Context(), o, func(ctx context.Context, m *berth.OpenMemory) error { return do(ctx, m, args) })
	}
	flags := c.Flags()
	f.add(flags)
	flags.StringVar(&f.Run, "run", "", "`NAME` of the run block or agent whose memory is meant, where there are several")
	flags.StringVar(&f.Sandbox, "sandbox", "", "`NAME` of a sandbox block to use instead of the files' one")
	flags.StringVar(&f.Session, "session", "", "look in the session with this `ID|KEY`")
	flags.StringVar(&f.Replay, "replay", "", "play a transcript `FILE` instead of asking a model")
	return c
}

// memoryOptions say whose memory is meant. A model is only made when it is asked.
func (a *app) memoryOptions(ctx context.Context, f *runFlags) (*berth.Harness, berth.RunOptions, error) {
	o := berth.RunOptions{Use: f.Session}
	l, err := a.load(ctx, f.Path, &f.projectFlags)
	if err != nil {
		return nil, o, err
	}
	o.Project = l.Project
	if o.Run, err = choose.Run(l.Project, f.Run); err != nil {
		return nil, o, err
	}
	if o.Run.Sandbox, err = choose.Sandbox(l.Project, o.Run, f.Sandbox); err != nil {
		return nil, o, err
	}
	h, err := a.harness(f.Path)
	if err != nil {
		return nil, o, err
	}
	o.ModelOf = func(ctx context.Context, of *spec.Agent) (choose.Choice, error) {
		return a.model(ctx, h, o.Project, o.Run, of, f)
	}
	o.Emit = func(ev event.Event) {
		if w, ok := ev.Data.(event.Warning); ok {
			fmt.Fprintln(a.Err, "warning:", a.redact(w.Message))
		}
	}
	return h, o, allowed(l.Project, a.host, h.DriverOf(o.Run.Sandbox))
}

// rolloutShown is a rollout as it is printed.
type rolloutShown struct {
	Name string `json:"name"`
	memory.Status
	Waits bool `json:"pending"`
}

func (a *app) memoryList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the pieces of work that an agent remembers, and what is still to be extracted", Args: noArgs,
		Long: `Lists the rollouts in the memory of the agent of the project in the working directory: conversations, and runs without one.
Like all commands of this group it opens the sandbox in which a run of the agent would work, and puts it back.`,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return a.memoryUse(c, func(ctx context.Context, m *berth.OpenMemory, _ []string) error {
		all, err := m.List(ctx)
		if err != nil {
			return err
		}
		list := []rolloutShown{}
		for _, name := range slices.SortedFunc(maps.Keys(all), func(x, y string) int { return all[x].Updated.Compare(all[y].Updated) }) {
			list = append(list, rolloutShown{name, *all[name], all[name].Pending()})
		}
		switch {
		case asJSON:
			return a.printJSON(list)
		case len(list) == 0:
			fmt.Fprintln(a.Err, "there is nothing in the memory")
			return nil
		}
		w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ROLLOUT\tRUNS\tENDED\tLAST\tMEMORY")
		for _, r := range list {
			state := r.Summary
			switch {
			case r.Error != "":
				state = fmt.Sprintf("failed %d times: %s", r.Attempts, r.Error)
			case r.Waits:
				state = "to be extracted"
			case state == "":
				state = "nothing was worth keeping"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", show.Lines(r.Name), len(r.Runs), show.Lines(r.Terminal), r.Updated.Format(time.DateTime), show.Lines(firstLine(state)))
		}
		return w.Flush()
	})
}

func (a *app) memoryShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show [ROLLOUT]", Short: "Print what an agent is told of its memory and its handbook, or what it has of a rollout",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("there are %d arguments, and one rollout is understood: %q is one too many", len(args), args[1])
			}
			return nil
		},
	}
	return a.memoryUse(c, func(ctx context.Context, m *berth.OpenMemory, args []string) error {
		rollout := ""
		if len(args) > 0 {
			rollout = args[0]
		}
		text, err := m.Show(ctx, rollout)
		if err == nil {
			_, err = fmt.Fprint(a.Out, show.Lines(text))
		}
		return err
	})
}

func (a *app) memoryGenerate() *cobra.Command {
	c := &cobra.Command{
		Use: "generate", Short: "Extract what is pending and bring the handbook up to date", Args: noArgs,
		Long: `Does now what a run does at its end: also for runs whose process was killed, and for what failed before, however often.`,
	}
	return a.memoryUse(c, func(ctx context.Context, m *berth.OpenMemory, _ []string) error {
		rep, err := m.Generate(ctx)
		if err != nil {
			return err
		}
		state := "the handbook is as it was"
		if rep.Merged {
			state = "the handbook is new"
		}
		fmt.Fprintf(a.Err, "%d rollouts were looked at, %d failed; %s; %s tokens\n", rep.Extracted, rep.Failed, state, show.Count(rep.Usage.TotalTokens))
		if len(rep.Problems) > 0 {
			return exit(ExitFailure, nil)
		}
		return nil
	})
}

func (a *app) memoryForget() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "forget [ROLLOUT...]", Short: "Remove rollouts and what was learned from them", Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 0) != all {
				return fmt.Errorf("name what is to be forgotten, or everything with --all")
			}
			return nil
		},
		Long: `Removes rollouts with what was extracted from them, then writes the handbook again without what only they supported,
which asks the model. --all removes everything and asks nobody. Logs of runs and conversations are not touched.`,
	}
	c.Flags().BoolVar(&all, "all", false, "forget everything")
	return a.memoryUse(c, func(ctx context.Context, m *berth.OpenMemory, args []string) error {
		if all {
			return m.Clear(ctx)
		}
		for _, name := range args {
			if err := m.Forget(ctx, name); err != nil {
				return err
			}
		}
		rep, err := m.Generate(ctx)
		if err == nil && len(rep.Problems) > 0 {
			return exit(ExitFailure, nil)
		}
		return err
	})
}
