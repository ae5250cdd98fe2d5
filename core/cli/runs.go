// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/stream"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/value"
)

// runs is the register of runs.
func (a *app) runs(ctx context.Context) (*runs.Register, error) {
	store, err := a.runsStore(ctx)
	if err != nil {
		return nil, err
	}
	return &runs.Register{Dir: runs.Dir{Path: a.host.StateStore.Dir}, Store: store, Now: time.Now}, nil
}

func (a *app) runsCommand() *cobra.Command {
	return group("runs", "Look at runs, export and remove them",
		a.runsListCommand(), a.runsShowCommand(), a.runsLogCommand(), a.runsExportCommand(), a.runsRmCommand())
}

// withRun is a command about one run, named by its id or the beginning of it.
func (a *app) withRun(use, short string, do func(ctx context.Context, reg *runs.Register, id string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: just("the name of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			reg, err := a.runs(cmd.Context())
			if err != nil {
				return err
			}
			id, err := reg.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return do(cmd.Context(), reg, id)
		},
	}
}

func (a *app) runsListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List the runs, the oldest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reg, err := a.runs(cmd.Context())
			if err != nil {
				return err
			}
			all, err := reg.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.Err, "there are no runs")
				return nil
			}
			w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "RUN\tSTATUS\tAGENT\tTURNS\tTOKENS\tUPDATED")
			for i := range all {
				s := &all[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, status(s), show.Lines(s.Agent), s.Turns,
					show.Count(s.Usage.TotalTokens), s.Updated.Local().Format(time.DateTime))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// status is where a run stands, in a few words.
func status(s *runs.Summary) string {
	if s.Host == "" {
		return standing(s)
	}
	return standing(s) + " on " + show.Lines(s.Host)
}

func standing(s *runs.Summary) string {
	switch {
	case s.Error != "":
		return "unreadable"
	case s.Live && s.Waiting > 0:
		return fmt.Sprintf("waits for %d decisions", s.Waiting)
	case s.Live:
		return "runs"
	case s.Status == "running":
		return "interrupted"
	case s.Waiting > 0:
		return fmt.Sprintf("%s, %d decisions wanted", s.Status, s.Waiting)
	default:
		return string(s.Status)
	}
}

func (a *app) runsShowCommand() *cobra.Command {
	var asJSON bool
	c := a.withRun("show [flags] RUN", "Say where a run is, and what it waits for", func(ctx context.Context, reg *runs.Register, id string) error {
		r, err := reg.Read(ctx, id)
		if err != nil {
			return err
		}
		if asJSON {
			return a.printJSON(r)
		}
		s := &r.Summary
		w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
		for _, line := range [][2]string{
			{"run", s.ID},
			{"status", status(s)},
			{"agent", show.Lines(s.Agent)},
			{"turns", fmt.Sprint(s.Turns)},
			{"tokens", show.Count(s.Usage.TotalTokens)},
			{"worked", value.Duration(s.Worked.Round(time.Second))},
			{"started", s.Started.Local().Format(time.DateTime)},
			{"updated", s.Updated.Local().Format(time.DateTime)},
		} {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
		if st := r.State.Stop; st != nil && st.Error != nil {
			fmt.Fprintf(w, "ended\t%s\n", show.Lines(st.Error.Message))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, wait := range r.Waiting {
			fmt.Fprintf(a.Out, "\n%s\n  call %s\n", show.Question(wait.Tool, string(wait.Arguments), wait.Reason, wait.Unsure), wait.CallID)
			switch d := wait.Decision; {
			case d != nil:
				fmt.Fprintf(a.Out, "  %s by %s; berth resume %s goes on with it\n", map[bool]string{true: "approved", false: "rejected"}[d.Allow], show.Lines(d.By), id)
			default:
				fmt.Fprintf(a.Out, "  berth approve %[1]s %[2]s, or berth reject %[1]s %[2]s --message TEXT\n", id, wait.CallID)
				if wait.Covers != "" {
					fmt.Fprintf(a.Out, "  with --always also %s\n", show.Lines(wait.Covers))
				}
			}
		}
		return nil
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) runsLogCommand() *cobra.Command {
	return a.withRun("log RUN", "Print a run's events, one JSON object a line, as berth run --json does", func(_ context.Context, reg *runs.Register, id string) error {
		path, err := runlog.Dir(reg.Dir.Path, id)
		if err != nil {
			return err
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the log of run %s is on another machine\nhint: berth runs show %s says where", id, id)
		}
		for rec, err := range runlog.Read(path) {
			if err != nil {
				return err
			}
			if rec.Type != stream.EntryType {
				continue
			}
			if _, err := fmt.Fprintf(a.Out, "%s\n", rec.Data); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) runsExportCommand() *cobra.Command {
	return a.withRun("export RUN", "Print a run as one JSON value that berth resume --state goes on with, on a machine with the same project",
		func(ctx context.Context, _ *runs.Register, id string) error {
			h, err := a.harness(a.Dir)
			if err != nil {
				return err
			}
			doc, err := h.Export(ctx, id)
			if err != nil {
				return err
			}
			if doc.Note, err = portable(doc.Note); err != nil {
				return err
			}
			return a.printJSON(doc)
		})
}

// portable is a note without the paths of this machine.
func portable(note json.RawMessage) (json.RawMessage, error) {
	var f runFlags
	if len(note) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(note, &f); err != nil {
		return nil, err
	}
	f.Path, f.Replay = "", ""
	return json.Marshal(&f)
}

func (a *app) runsRmCommand() *cobra.Command {
	return a.withRun("rm RUN", "Remove a run that no process works on", func(ctx context.Context, reg *runs.Register, id string) error {
		if err := reg.Remove(ctx, id); err != nil {
			return err
		}
		_, err := fmt.Fprintln(a.Out, "removed run", id)
		return err
	})
}

// latest is the run of this directory's project that was worked on last and can be resumed.
func (a *app) latest(ctx context.Context) (string, error) {
	reg, err := a.runs(ctx)
	if err != nil {
		return "", err
	}
	h, err := a.harness(a.Dir)
	if err != nil {
		return "", err
	}
	all, err := reg.List(ctx)
	if err != nil {
		return "", err
	}
	id := runs.Latest(all, func(s *runs.Summary) bool {
		if !s.Resumable() || s.Host != "" {
			return false
		}
		note, err := h.Note(ctx, s.ID)
		var f runFlags
		return err == nil && json.Unmarshal(note, &f) == nil && projectDir(f.Path) == a.Dir
	})
	if id == "" {
		return "", fmt.Errorf("no run of the project in %s can be resumed\nhint: berth runs list shows all runs", a.Dir)
	}
	return id, nil
}

// importRun puts an exported run among those of this machine, for the project in the working directory.
func (a *app) importRun(file string, fresh bool) (*runs.Document, error) {
	f, err := os.Open(a.path(file))
	if err != nil {
		return nil, usage("--state: %w", err)
	}
	const most = 1 << 30
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	if len(data) > most {
		return nil, fmt.Errorf("--state: %s is larger than 1 GiB", file)
	}
	doc, err := runs.ReadDocument(data)
	if err != nil {
		return nil, fmt.Errorf("--state %s: %w", file, err)
	}
	if len(doc.Sandboxes) > 0 && !fresh {
		return nil, fmt.Errorf("run %s worked in a sandbox, and its workspace is not in %s\n"+
			"hint: --fresh-workspace goes on in a new one that the manifest fills; the model is told", doc.RunID, file)
	}
	return doc, nil
}
