// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/sdk/errs"
)

func (a *app) sessionSnapshot(project *projectFlags) *cobra.Command {
	var name string
	var asJSON bool
	c := &cobra.Command{
		Use: "snapshot [flags] SESSION", Short: "Save the workspace of a session", Args: just("a session"),
		Long: `Saves the workspace of a session where its sandbox block says, else in the project's .berth/snapshots, and says what is not in
the snapshot. The session stays as it was.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" {
				if err := snapshot.CheckName(name); err != nil {
					return err
				}
			}
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				rec, err := s.Save(ctx)
				if err != nil {
					return err
				}
				if name != "" {
					if err := s.Repo().Name(ctx, rec.ID, name); err != nil {
						return err
					}
				}
				x, err := s.Repo().Load(ctx, rec)
				if err != nil {
					return err
				}
				return a.saved(rec, x, asJSON)
			})
		},
	}
	c.Flags().StringVar(&name, "name", "", "give the snapshot this `name`, which keeps it from being removed by age or number")
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

func (a *app) sessionRestore(project *projectFlags) *cobra.Command {
	var discard bool
	c := &cobra.Command{
		Use: "restore [flags] SESSION SNAPSHOT", Short: "Put a snapshot in the place of a session's workspace", Args: cobra.ExactArgs(2),
		Long: `Puts a snapshot in the place of what a session's workspace holds, which is saved first. The snapshot is checked before and while it
is written, beside what is there; when anything fails, the workspace stays what it was. Commands that run in the sandbox go on, in
directories that may be gone.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				rec, err := s.Repo().Find(ctx, args[1])
				if err != nil {
					return err
				}
				if !discard {
					before, err := s.SaveAside(ctx, "before a restore of "+s.ID())
					if err != nil {
						return fmt.Errorf("%w; --discard replaces it all the same", err)
					}
					fmt.Fprintf(a.Err, "the workspace as it was is snapshot %s, until it is removed\n", snapshot.Short(before.ID))
				}
				if err := s.Replace(ctx, rec); err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "restored snapshot %s: %d entries, %s\n", snapshot.Short(rec.ID), rec.Entries, size(rec.Bytes))
				return nil
			})
		},
	}
	c.Flags().BoolVar(&discard, "discard", false, "do not save the workspace before")
	return c
}

// saved tells of a snapshot that was just made.
func (a *app) saved(rec *snapshot.Record, x *snapshot.Index, asJSON bool) error {
	if asJSON {
		return a.printJSON(shown{ID: rec.ID, Record: rec, Left: x.Left})
	}
	fmt.Fprintf(a.Out, "snapshot %s: %d entries, %s, %s of them new\n", snapshot.Short(rec.ID), rec.Entries, size(rec.Bytes), size(rec.New))
	a.left(x.Left)
	return nil
}

// diffLive compares a snapshot, or the last one of a session, with what the session's workspace holds now.
func (a *app) diffLive(cmd *cobra.Command, f *snapshotFlags, name string, args []string) error {
	return a.inSession(cmd, &f.projectFlags, name, func(ctx context.Context, s *session.Session) error {
		repo := s.Repo()
		find := func() (*snapshot.Record, error) { return repo.LatestOf(ctx, s.ID()) }
		if len(args) > 0 {
			find = func() (*snapshot.Record, error) { return repo.Find(ctx, args[0]) }
		}
		from, err := find()
		if err != nil {
			return err
		}
		if from == nil {
			return errs.New(errs.SnapshotUnusable, "session %s was never saved", s.ID()).
				WithHint("name the snapshot to compare with, or save one: berth session snapshot %s", s.ID())
		}
		changes, err := s.Differs(ctx, from)
		if err != nil {
			return err
		}
		return a.showChanges(slices.Collect(changes), f.json)
	})
}
