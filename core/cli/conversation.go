// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/conversation"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

func (a *app) conversationCommand() *cobra.Command {
	return group("conversation", "List, show and shorten the conversations that runs go on with",
		a.conversationList(), a.conversationShow(), a.conversationPop(), a.conversationClear())
}

// conversations gives those of the project in the working directory.
func (a *app) conversations(ctx context.Context) (*conversation.Keeper, error) {
	h, err := a.harness(a.Dir)
	if err != nil {
		return nil, err
	}
	return h.Conversations(ctx, &spec.Project{Dir: a.Dir})
}

func (a *app) conversationList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the conversations of the project in the working directory", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := a.conversations(cmd.Context())
			if err != nil {
				return err
			}
			all, err := k.Store.ListConversations(cmd.Context(), k.Project)
			if err != nil {
				return err
			}
			type shown struct {
				Key     string    `json:"key"`
				Turns   int       `json:"turns"`
				Open    int       `json:"open"`
				Created time.Time `json:"created"`
				Updated time.Time `json:"updated"`
			}
			list := []shown{}
			for _, v := range all {
				list = append(list, shown{v.Key, v.Turns, v.Open, v.Created, v.Updated})
			}
			if asJSON {
				return a.printJSON(list)
			}
			if len(list) == 0 {
				fmt.Fprintln(a.Err, "there are no conversations")
				return nil
			}
			w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "CONVERSATION\tTURNS\tNOT COMPLETE\tLAST USED")
			for _, v := range list {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", show.Lines(v.Key), v.Turns, v.Open, v.Updated.Format(time.DateTime))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

// turnShown is a turn as it is printed.
type turnShown struct {
	Turn  int64             `json:"turn,omitempty"` // 0 = not complete
	Run   string            `json:"run"`
	Saved time.Time         `json:"saved,omitzero"`
	Items []json.RawMessage `json:"items,omitempty"`
}

func (a *app) conversationShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show KEY", Short: "Print what was said in a conversation", Args: just("the key of a conversation"),
		Long: `Prints the messages of a conversation and the tools that were called in it; --json prints all that was kept. A run that has
not completed is no part of the conversation, and told at the end.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.conversations(cmd.Context())
			if err != nil {
				return err
			}
			turns, err := k.Turns(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all := []turnShown{}
			for _, t := range turns {
				shown, err := a.showTurn(t, !asJSON)
				if err != nil {
					return err
				}
				all = append(all, shown)
			}
			if asJSON {
				return a.printJSON(all)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

// showTurn reads a turn, and prints it for a person.
func (a *app) showTurn(t *state.ConversationTurn, text bool) (turnShown, error) {
	out := turnShown{Turn: t.Seq, Run: t.Run, Saved: t.Saved}
	items, err := conversation.Items(t)
	if err != nil {
		return out, err
	}
	for _, it := range items {
		out.Items = append(out.Items, it.Raw)
	}
	switch {
	case !text:
		return out, nil
	case t.Seq == 0:
		fmt.Fprintf(a.Err, "run %s is not complete, and no part of the conversation\n", t.Run)
		return out, nil
	}
	fmt.Fprintf(a.Out, "turn %d, run %s\n", t.Seq, t.Run)
	for _, it := range items {
		line := ""
		if call, ok := it.ToolCall(); ok {
			line = "[" + call.Name + "] " + cut(call.Arguments)
		} else if said := it.Text(); said != "" && it.Type == model.ItemMessage {
			line = it.Role() + ": " + said
		}
		if line != "" {
			fmt.Fprintln(a.Out, "  "+show.Lines(line))
		}
	}
	return out, nil
}

func (a *app) conversationPop() *cobra.Command {
	return &cobra.Command{
		Use: "pop KEY", Short: "Remove the last turn of a conversation, and print it", Args: just("the key of a conversation"),
		Long: `Removes what the last run added to a conversation, all of it: no call is left without its output. The run itself stays
where runs are.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.conversations(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := k.Turns(cmd.Context(), args[0]); err != nil {
				return err
			}
			t, err := k.Store.PopTurn(cmd.Context(), k.Project, args[0])
			if errors.Is(err, state.ErrUnknown) {
				return errs.New(errs.InvalidArgument, "conversation %q has no turn that is complete", args[0])
			}
			if err != nil {
				return err
			}
			if _, err := a.showTurn(t, true); err != nil {
				fmt.Fprintf(a.Err, "turn %d is removed; it could not be read\n", t.Seq)
			}
			return nil
		},
	}
}

func (a *app) conversationClear() *cobra.Command {
	return &cobra.Command{
		Use: "clear KEY", Short: "Remove a conversation", Args: just("the key of a conversation"),
		Long: "Removes a conversation with all its turns. The runs themselves stay where runs are.",
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.conversations(cmd.Context())
			if err != nil {
				return err
			}
			n, err := k.Store.ClearConversation(cmd.Context(), k.Project, args[0])
			if errors.Is(err, state.ErrUnknown) {
				return errs.New(errs.InvalidArgument, "there is no conversation %q in this project", args[0]).
					WithHint("berth conversation list shows those that there are")
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Err, "conversation %q is removed: %d turns\n", args[0], n)
			return nil
		},
	}
}
