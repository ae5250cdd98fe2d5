// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/runs"
)

func (a *app) approveCommand() *cobra.Command { return a.decideCommand(true) }
func (a *app) rejectCommand() *cobra.Command  { return a.decideCommand(false) }

// decideCommand decides about calls that wait, for a run that waits in another process or was paused.
func (a *app) decideCommand(allow bool) *cobra.Command {
	var d runs.Decision
	var all bool
	verb, short := "reject", "Reject a call that waits for a decision"
	if allow {
		verb, short = "approve", "Approve a call that waits for a decision"
	}
	c := &cobra.Command{
		Use:   verb + " [flags] RUN [CALL]",
		Short: short,
		Long: short + `: while the run waits in another process, or after it has paused; then berth resume
goes on. RUN and CALL are ids or the beginning of one. Without CALL there must be one call that waits; berth runs show RUN
lists them. When two decide, the first counts, and the other is told.`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return fmt.Errorf("the name of a run is missing")
			case len(args) > 2:
				return fmt.Errorf("there are %d arguments, and a run and a call are understood", len(args))
			case len(args) == 2 && all:
				return fmt.Errorf("a call and --all exclude each other")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			reg, err := a.runs(cmd.Context())
			if err != nil {
				return err
			}
			id, err := reg.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := reg.Read(cmd.Context(), id)
			if err != nil {
				return err
			}
			picked, err := chosen(r, append(args, "")[1], all)
			if err != nil {
				return err
			}
			d.Allow, d.By = allow, who()
			return a.decide(cmd.Context(), reg, r, picked, d)
		},
	}
	f := c.Flags()
	f.BoolVar(&all, "all", false, "decide about every call that waits")
	f.StringVar(&d.Message, "message", "", "`TEXT` for the log and, of a rejection, for the model")
	if allow {
		f.BoolVar(&d.Always, "always", false, "approve later calls of this kind in this run too; it is said which those are")
	}
	return c
}

// chosen finds the calls that are meant.
func chosen(r *runs.Run, text string, all bool) ([]runs.Waiting, error) {
	var open []runs.Waiting
	for _, w := range r.Waiting {
		switch {
		case text == "" && w.Decision == nil, text != "" && w.CallID == text:
			open = append(open, w)
		}
	}
	if text != "" && len(open) == 0 {
		for _, w := range r.Waiting {
			if strings.HasPrefix(w.CallID, text) {
				open = append(open, w)
			}
		}
	}
	id := r.Summary.ID
	switch {
	case len(open) == 0 && text != "":
		return nil, fmt.Errorf("no call %q of run %s waits for a decision\nhint: berth runs show %s lists those that do", text, id, id)
	case len(open) == 0:
		return nil, fmt.Errorf("no call of run %s waits for a decision\nhint: berth runs show %s says where it is", id, id)
	case len(open) > 1 && !all:
		var names []string
		for _, w := range open {
			names = append(names, w.CallID)
		}
		return nil, usage("%d calls of run %s wait for a decision: %s\nhint: name one, or decide about all with --all", len(open), id, strings.Join(names, ", "))
	}
	return open, nil
}

// decide keeps the decisions and tells what they mean.
func (a *app) decide(ctx context.Context, reg *runs.Register, r *runs.Run, chosen []runs.Waiting, d runs.Decision) error {
	late := 0
	for _, w := range chosen {
		if d.Always && w.Covers == "" {
			return fmt.Errorf("call %s may have been made already, so it is approved once or not at all\nhint: leave out --always", w.CallID)
		}
		was, won, err := reg.Decide(ctx, r.Summary.ID, w, d)
		if err != nil {
			return err
		}
		word := map[bool]string{true: "approved", false: "rejected"}[was.Allow]
		if !won {
			late++
			fmt.Fprintf(a.Err, "berth: call %s (%s) was %s already, by %s\n", w.CallID, show.Lines(w.Tool), word, show.Lines(was.By))
			continue
		}
		fmt.Fprintf(a.Out, "%s call %s: %s\n", word, w.CallID, show.Lines(w.Tool))
		for _, l := range show.Call(string(w.Arguments)) {
			fmt.Fprintln(a.Out, "    "+l)
		}
		if d.Always {
			fmt.Fprintf(a.Out, "and for the rest of this run %s\n", show.Lines(w.Covers))
		}
	}
	if !r.Summary.Live {
		fmt.Fprintf(a.Err, "hint: berth resume %s goes on\n", r.Summary.ID)
	}
	if late > 0 {
		return exit(ExitFailure, nil)
	}
	return nil
}

// who is the user, as far as it is known.
func who() string {
	if u, err := user.Current(); err == nil {
		return cmp.Or(u.Username, u.Uid)
	}
	return "somebody"
}
