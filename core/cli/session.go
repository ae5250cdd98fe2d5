// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
)

func (a *app) sessionCommand() *cobra.Command {
	keep := []*cobra.Command{a.sessionList(), a.sessionInspect(), a.sessionStop(), a.sessionRemove(), a.sessionGC()}
	return group("session", "List, inspect, stop and remove the sandboxes that berth remembers, and work in them", append(keep, a.sessionUse()...)...)
}

// sessionShown is a session as it is printed.
type sessionShown struct {
	ID       string         `json:"id"`
	Key      string         `json:"key,omitempty"`
	Status   state.Status   `json:"status"`
	Reason   string         `json:"reason,omitempty"`
	Driver   string         `json:"driver"`
	Sandbox  string         `json:"sandbox,omitempty"`
	Project  string         `json:"project,omitempty"`
	Run      string         `json:"run,omitempty"`
	Owner    string         `json:"owner"`
	Host     string         `json:"host"`
	Created  time.Time      `json:"created"`
	Updated  time.Time      `json:"updated"`
	Deadline time.Time      `json:"deadline,omitzero"`
	InUse    *state.Holder  `json:"in_use_by,omitempty"`
	Made     *sandbox.Fixed `json:"made_with,omitempty"`
	// Display are facts of the driver.
	Display map[string]string `json:"display,omitempty"`
}

func shownSession(s *state.Session) sessionShown {
	out := sessionShown{
		ID: s.ID, Key: s.Name, Status: s.Status, Reason: s.Reason, Driver: s.Driver, Sandbox: s.Sandbox, Project: s.Project, Run: s.Run,
		Owner: s.Owner, Host: s.Host, Created: s.Created, Updated: s.Updated, Deadline: s.Deadline,
	}
	if s.Lease != nil && !s.Lease.By.Dead() {
		out.InUse = &s.Lease.By
	}
	return out
}

// sessions gives the sessions of the working directory's project. Without drivers it reads no project.
func (a *app) sessions(ctx context.Context, f *projectFlags) (*berth.Harness, *spec.Project, *session.Manager, error) {
	p := &spec.Project{Dir: a.Dir}
	if f != nil && hasProject(a.Dir) {
		l, err := a.load(ctx, a.Dir, f)
		if err != nil {
			return nil, nil, nil, err
		}
		p = l.Project
	}
	h, err := a.harness(a.Dir)
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := h.Sessions(ctx, p)
	return h, p, m, err
}

func (a *app) sessionList() *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use: "list", Short: "List the sessions of the project in the working directory", Args: noArgs,
		Long: `Lists the sandboxes that berth remembers for the project in the working directory, or, without a project, for the user.
Their states: creating (whether there is a sandbox is not known yet), live, paused, stopped, ending, lost (the driver does
not know it any more), gone.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, m, err := a.sessions(cmd.Context(), nil)
			if err != nil {
				return err
			}
			var filter state.SessionFilter
			if !all {
				filter.Status = []state.Status{state.Creating, state.Live, state.Paused, state.Stopped, state.Ending, state.Lost}
			}
			recs, err := m.Store.ListSessions(cmd.Context(), filter)
			if err != nil {
				return err
			}
			list := []sessionShown{}
			for _, r := range recs {
				list = append(list, shownSession(r))
			}
			if asJSON {
				return a.printJSON(list)
			}
			return a.showSessions(list)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	c.Flags().BoolVar(&all, "all", false, "also those that are gone")
	return c
}

func (a *app) showSessions(list []sessionShown) error {
	if len(list) == 0 {
		fmt.Fprintln(a.Err, "there are no sessions")
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tKEY\tSTATUS\tDRIVER\tSANDBOX\tAGE\tNOTE")
	for _, s := range list {
		note := s.Reason
		if s.InUse != nil {
			note = "in use by " + s.InUse.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, dash(s.Key), s.Status, s.Driver, dash(s.Sandbox),
			time.Since(s.Created).Round(time.Second), show.Lines(firstLine(note)))
	}
	return w.Flush()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (a *app) sessionInspect() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "inspect SESSION", Short: "Show what is known of a session", Args: just("the id of a session, its beginning, or its key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, m, err := a.sessions(cmd.Context(), nil)
			if err != nil {
				return err
			}
			rec, err := m.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := shownSession(rec)
			b, err := session.Peek(rec)
			if err != nil {
				return err
			}
			if out.Made = b.Made; b.State != nil {
				out.Display = b.State.Display
			}
			if asJSON {
				return a.printJSON(out)
			}
			return a.showSession(&out)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

func (a *app) showSession(s *sessionShown) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, show.Lines(firstLine(value)))
		}
	}
	line("session", s.ID)
	line("key", s.Key)
	line("status", string(s.Status))
	line("because", s.Reason)
	line("driver", s.Driver)
	line("sandbox", s.Sandbox)
	line("project", s.Project)
	line("run", s.Run)
	line("owner", s.Owner)
	line("created", s.Created.Format(time.RFC3339))
	line("updated", s.Updated.Format(time.RFC3339))
	if !s.Deadline.IsZero() {
		line("ends", s.Deadline.Format(time.RFC3339))
	}
	if s.InUse != nil {
		line("in use by", s.InUse.String())
	}
	for _, k := range slices.Sorted(maps.Keys(s.Display)) {
		line(k, s.Display[k])
	}
	if s.Made != nil {
		for _, k := range slices.Sorted(maps.Keys(s.Made.Values)) {
			line("made with "+k, s.Made.Shown(k))
		}
	}
	return w.Flush()
}

func (a *app) sessionStop() *cobra.Command {
	var f projectFlags
	c := &cobra.Command{
		Use: "stop SESSION...", Short: "Stop sandboxes and keep their workspaces", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, p, m, err := a.sessions(cmd.Context(), &f)
			if err != nil {
				return err
			}
			return a.eachSession(cmd.Context(), m, args, func(rec *state.Session) (string, error) {
				if rec.Status == state.Stopped {
					return "is stopped already", nil
				}
				s, err := h.OpenSession(cmd.Context(), p, rec.ID, "session stop", nil)
				if err != nil {
					return "", err
				}
				return "stopped", s.Stop(cmd.Context())
			})
		},
	}
	f.add(c.Flags())
	return c
}

func (a *app) sessionRemove() *cobra.Command {
	var f projectFlags
	var force bool
	c := &cobra.Command{
		Use: "rm SESSION...", Short: "Remove sandboxes, with their workspaces", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, m, err := a.sessions(cmd.Context(), &f)
			if err != nil {
				return err
			}
			return a.eachSession(cmd.Context(), m, args, func(rec *state.Session) (string, error) {
				return "removed", m.Remove(cmd.Context(), rec, force)
			})
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&force, "force", false, "forget it also when its sandbox cannot be removed")
	return c
}

// eachSession does something with each session, also when it fails with one.
func (a *app) eachSession(ctx context.Context, m *session.Manager, texts []string, do func(*state.Session) (string, error)) error {
	var all error
	for _, text := range texts {
		rec, err := m.Find(ctx, text)
		var done string
		if err == nil {
			done, err = do(rec)
		}
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		fmt.Fprintln(a.Out, rec.ID, done)
	}
	return all
}

func (a *app) sessionGC() *cobra.Command {
	var f projectFlags
	var dry, asJSON bool
	c := &cobra.Command{
		Use: "gc", Short: "Forget sessions whose sandboxes are gone, and find sandboxes that nothing remembers", Args: noArgs,
		Long: `Compares the sessions of this machine with the sandboxes that the drivers have. Sessions whose sandboxes are gone are
forgotten; sandboxes that were never finished are removed. Sandboxes that this store made and has no session for are told:
what is needed to remove them was in the session. What somebody uses is left alone, and so are other projects' sandboxes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, p, m, err := a.sessions(cmd.Context(), &f)
			if err != nil {
				return err
			}
			names := []string{h.DriverOf(nil)}
			for _, s := range p.Sandboxes {
				names = append(names, h.DriverOf(s))
			}
			found, err := m.Collect(cmd.Context(), names, dry)
			if asJSON {
				if found == nil {
					found = []session.Finding{}
				}
				return errors.Join(a.printJSON(found), err)
			}
			for _, x := range found {
				a.showFinding(x, dry)
			}
			if len(found) == 0 && err == nil {
				fmt.Fprintln(a.Err, "there is nothing to do")
			}
			return err
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

func (a *app) showFinding(x session.Finding, dry bool) {
	subject := fmt.Sprintf("session %s (%s)", x.Session, x.Driver)
	if x.Session == "" {
		subject = "driver " + x.Driver
	}
	end := ""
	switch {
	case x.Error != "":
		end = ": " + x.Error
	case dry && x.Action != "":
		end = ": would be " + x.Action
	case x.Action != "":
		end = ": " + x.Action
	}
	fmt.Fprintln(a.Out, show.Lines(subject+" "+x.What+end))
}
