// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/core/spec"
)

func (a *app) snapshotCommand() *cobra.Command {
	return group("snapshot", "List, show, compare, check, name, remove, export and import saved workspaces",
		a.snapshotList(), a.snapshotShow(), a.snapshotDiff(), a.snapshotVerify(), a.snapshotGC(), a.snapshotName(), a.snapshotRemove(),
		a.snapshotExport(), a.snapshotImport())
}

// snapshotFlags say where the snapshots are.
type snapshotFlags struct {
	runFlags
	store string
	json  bool
}

func (f *snapshotFlags) command(a *app, c *cobra.Command, run func(ctx context.Context, r *snapshot.Repo, args []string) error) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.snapshots(cmd.Context(), f)
		if err != nil {
			return err
		}
		return run(cmd.Context(), r, args)
	}
	fs := c.Flags()
	f.add(fs)
	fs.StringVar(&f.store, "store", "", "`directory` of the snapshots, instead of the project's")
	fs.StringVar(&f.Sandbox, "sandbox", "", "`NAME` of the sandbox block whose snapshots are meant, where there are several")
	fs.BoolVar(&f.json, "json", false, "print it as JSON")
	a.completeProject(c, &f.runFlags)
	return c
}

// snapshots finds the store: the one that is named, else that of the project in the working directory.
func (a *app) snapshots(ctx context.Context, f *snapshotFlags) (*snapshot.Repo, error) {
	p, block, dir := &spec.Project{Dir: a.Dir}, (*spec.Sandbox)(nil), f.store
	if dir == "" && hasProject(a.Dir) {
		f.Path = a.Dir
		project, r, err := a.execProject(ctx, &f.runFlags)
		if err != nil {
			return nil, err
		}
		p, block = project, r.Sandbox
	}
	var repo *snapshot.Repo
	var err error
	if dir != "" {
		repo, err = berth.OpenSnapshotFolder(ctx, a.path(dir), false)
	} else {
		repo, err = berth.OpenSnapshots(ctx, p, block)
	}
	if err != nil {
		return nil, err
	}
	repo.OnRemove(func(ctx context.Context, n snapshot.Native) {
		if err := a.removeNative(ctx, p, n); err != nil {
			fmt.Fprintf(a.Err, "warning: the snapshot %s of driver %q was not removed: %v\n", n.ID, n.Driver, err)
		}
	})
	return repo, nil
}

// removeNative has a driver remove a snapshot of its own.
func (a *app) removeNative(ctx context.Context, p *spec.Project, n snapshot.Native) error {
	h, err := a.harness(a.Dir)
	if err != nil {
		return err
	}
	m, err := h.Sessions(ctx, p)
	if err != nil {
		return err
	}
	return m.Drivers.DeleteSnapshot(ctx, n.Driver, n.ID)
}

// shown is a snapshot as it is printed.
type shown struct {
	ID    string   `json:"id"`
	Names []string `json:"names,omitempty"`
	*snapshot.Record
	Shared *snapshot.Shared `json:"content,omitempty"`
	Left   []index.Left     `json:"left_out_paths,omitempty"`
}

func (a *app) snapshotList() *cobra.Command {
	var f snapshotFlags
	return f.command(a, &cobra.Command{
		Use: "list", Short: "List the saved workspaces, the newest first", Args: noArgs,
	}, func(ctx context.Context, r *snapshot.Repo, _ []string) error {
		recs, bad := r.List(ctx)
		if bad != nil && len(recs) == 0 {
			return bad
		}
		names, err := r.Names(ctx)
		if err != nil {
			return err
		}
		out := make([]shown, len(recs))
		for i, rec := range recs {
			out[i] = shown{ID: rec.ID, Names: namesOf(names, rec.ID), Record: rec}
		}
		if f.json {
			if err := a.printJSON(out); err != nil {
				return err
			}
			return bad
		}
		if len(out) == 0 {
			fmt.Fprintln(a.Err, "there are no snapshots in", r.Where())
			return nil
		}
		w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tTAKEN\tOF\tENTRIES\tSIZE\tNEW\tLEFT OUT\tNAMES")
		for _, s := range out {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", snapshot.Short(s.ID), s.Created.Local().Format(time.DateTime), dash(s.Series), s.Entries,
				size(s.Bytes), size(s.New), s.Record.Left, dash(strings.Join(s.Names, " ")))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		return bad
	})
}

func namesOf(names map[string]string, id string) (out []string) {
	for name, of := range names {
		if of == id {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// onLine is a name of any bytes that steers no terminal and stays on its line.
func onLine(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

// size is a number of bytes for people.
func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/(1<<10), 0
	for ; f >= 1000 && unit < 4; unit++ {
		f /= 1 << 10
	}
	return fmt.Sprintf("%.3g %ciB", f, "KMGTP"[unit])
}

func (a *app) snapshotShow() *cobra.Command {
	var f snapshotFlags
	var files bool
	c := f.command(a, &cobra.Command{
		Use: "show [flags] SNAPSHOT", Short: "Say what a snapshot is, how much it shares with others, and what is not in it", Args: just("a snapshot"),
	}, func(ctx context.Context, r *snapshot.Repo, args []string) error {
		rec, err := r.Find(ctx, args[0])
		if err != nil {
			return err
		}
		x, err := r.Load(ctx, rec)
		if err != nil {
			return err
		}
		if files && !f.json {
			for i := range x.Entries {
				if e := &x.Entries[i]; e.Path != "" {
					fmt.Fprintf(a.Out, "%s %04o %s %12d %s\n", kinds[e.Kind], e.Mode, e.ModTime.Local().Format(time.DateTime), e.Size, onLine(e.Path))
				}
			}
			return nil
		}
		recs, err := r.List(ctx)
		if err != nil {
			return err
		}
		share, err := r.Share(ctx, recs)
		if err != nil {
			return err
		}
		names, err := r.Names(ctx)
		if err != nil {
			return err
		}
		mine := share[rec.ID]
		s := shown{ID: rec.ID, Names: namesOf(names, rec.ID), Record: rec, Shared: &mine, Left: x.Left}
		if f.json {
			return a.printJSON(s)
		}
		w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
		for _, l := range [][2]string{
			{"id", rec.ID},
			{"names", strings.Join(s.Names, " ")},
			{"taken", rec.Created.Local().Format(time.DateTime)},
			{"of", rec.Series},
			{"parent", rec.Parent},
			{"session", rec.Session},
			{"run", rec.Run},
			{"driver", rec.Driver},
			{"entries", fmt.Sprint(rec.Entries)},
			{"size", size(rec.Bytes)},
			{"content", fmt.Sprintf("%s, of which %s are in no other snapshot", size(mine.Bytes), size(mine.Unique))},
			{"added", fmt.Sprintf("%s when it was taken, in %s of the store", size(rec.New), size(rec.Stored))},
			{"excluded", strings.Join(rec.Exclude, " ")},
		} {
			if l[1] != "" {
				fmt.Fprintf(w, "%s\t%s\n", l[0], onLine(l[1]))
			}
		}
		if n := rec.Native; n != nil {
			fmt.Fprintf(w, "beside it\t%s, by driver %s itself\n", n.ID, n.Driver)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		a.left(x.Left)
		return nil
	})
	c.Flags().BoolVar(&files, "files", false, "list what is in it instead")
	return c
}

var kinds = map[index.Kind]string{index.Dir: "dir ", index.File: "file", index.Symlink: "link", index.HardLink: "hard"}

// left tells what a snapshot does not hold.
func (a *app) left(left []index.Left) {
	if len(left) > 0 {
		fmt.Fprintln(a.Out, "not in it:")
	}
	for _, l := range left {
		fmt.Fprintf(a.Out, "  %s: %s\n", onLine(l.Path), l.Reason)
	}
}

func (a *app) snapshotDiff() *cobra.Command {
	var f snapshotFlags
	var live string
	c := f.command(a, &cobra.Command{
		Use: "diff [flags] FROM TO", Short: "Say what changed from one snapshot to another, or to what a session's workspace holds now",
		Long: `Prints a line for each path that differs: + is new, - is gone, M has another content or is another kind of file, m has
another mode, owner or time.

With --session the workspace of a session stands in the place of TO; without FROM it is compared with the last snapshot of
that session. What the snapshot leaves out on purpose is left out on both sides.`,
		Example: "  berth snapshot diff before-upgrade 3f2a91\n  berth snapshot diff --session dev before-upgrade\n  berth snapshot diff --session dev",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case live != "" && len(args) > 1:
				return fmt.Errorf("there are %d arguments, and with --session one snapshot is understood", len(args))
			case live == "" && len(args) != 2:
				return fmt.Errorf("there are %d arguments, and two snapshots are understood", len(args))
			}
			return nil
		},
	}, func(ctx context.Context, r *snapshot.Repo, args []string) error {
		var sides [2]*snapshot.Index
		for i, arg := range args {
			rec, err := r.Find(ctx, arg)
			if err != nil {
				return err
			}
			if sides[i], err = r.Load(ctx, rec); err != nil {
				return err
			}
		}
		return a.showChanges(slices.Collect(snapshot.Diff(sides[0], sides[1])), f.json)
	})
	stored := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if live == "" {
			return stored(cmd, args)
		}
		return a.diffLive(cmd, &f, live, args)
	}
	c.Flags().StringVar(&live, "session", "", "compare with what the workspace of this `SESSION` holds now")
	c.MarkFlagsMutuallyExclusive("session", "store")
	return c
}

func (a *app) showChanges(changes []snapshot.Change, asJSON bool) error {
	if asJSON {
		return a.printJSON(append([]snapshot.Change{}, changes...))
	}
	signs := map[snapshot.ChangeKind]string{snapshot.Added: "+", snapshot.Removed: "-", snapshot.Modified: "M", snapshot.Meta: "m"}
	for _, c := range changes {
		more := ""
		if c.Kind == snapshot.Modified && c.Old != c.New {
			more = fmt.Sprintf(" (%s, was %s)", size(c.New), size(c.Old))
		}
		fmt.Fprintf(a.Out, "%s %s%s\n", signs[c.Kind], onLine(c.Path), more)
	}
	return nil
}
