// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/sdk/driver"
)

func (a *app) snapshotVerify() *cobra.Command {
	var f snapshotFlags
	return f.command(a, &cobra.Command{
		Use: "verify", Short: "Read everything that is stored and say what is damaged, and what suffers from it", Args: noArgs,
	}, func(ctx context.Context, r *snapshot.Repo, _ []string) error {
		problems, err := r.Verify(ctx, nil)
		if err != nil {
			return err
		}
		if f.json {
			if err := a.printJSON(append([]snapshot.Problem{}, problems...)); err != nil {
				return err
			}
		} else {
			for _, p := range problems {
				where := ""
				if p.Snapshot != "" {
					where = "snapshot " + snapshot.Short(p.Snapshot) + ": "
				}
				fmt.Fprintln(a.Out, where+p.Text)
			}
		}
		if len(problems) > 0 {
			return exit(ExitFailure, fmt.Errorf("%d things are wrong in %s", len(problems), r.Where()))
		}
		if !f.json {
			fmt.Fprintln(a.Out, "everything in", r.Where(), "is as it was written")
		}
		return nil
	})
}

func (a *app) snapshotGC() *cobra.Command {
	var f snapshotFlags
	var dry bool
	var keep snapshot.Retention
	c := f.command(a, &cobra.Command{
		Use: "gc", Short: "Free the space that no snapshot needs",
		Long: `Removes what no snapshot needs any more. It waits until nobody else uses the store, so that nothing is taken away from a
process that is saving or restoring. With --keep or --max-age, older snapshots go first; those with a name stay, and the
newest of each workspace.`,
		Args: noArgs,
	}, func(ctx context.Context, r *snapshot.Repo, _ []string) error {
		var gone []*snapshot.Record
		if keep != (snapshot.Retention{}) && !dry {
			recs, err := r.List(ctx)
			if err != nil {
				return err
			}
			series := map[string]bool{}
			for _, rec := range recs {
				series[rec.Series] = true
			}
			for s := range series {
				more, err := r.Prune(ctx, s, keep)
				if err != nil {
					return err
				}
				gone = append(gone, more...)
			}
		}
		swept, err := r.Sweep(ctx, dry)
		if err != nil {
			return err
		}
		if f.json {
			return a.printJSON(map[string]any{"snapshots": len(gone), "swept": swept})
		}
		verb := "freed"
		if dry {
			verb = "would free"
		}
		for _, rec := range gone {
			fmt.Fprintln(a.Out, "removed snapshot", snapshot.Short(rec.ID))
		}
		fmt.Fprintf(a.Out, "%s %s in %d packs; %s stay\n", verb, size(swept.Bytes), swept.Packs, size(swept.Packed))
		return nil
	})
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what could be freed")
	c.Flags().IntVar(&keep.Keep, "keep", 0, "keep this `number` of snapshots of each workspace")
	c.Flags().DurationVar(&keep.MaxAge, "max-age", 0, "remove what is older than this `time`, as in 720h")
	c.MarkFlagsMutuallyExclusive("dry-run", "keep")
	c.MarkFlagsMutuallyExclusive("dry-run", "max-age")
	return c
}

func (a *app) snapshotName() *cobra.Command {
	var f snapshotFlags
	var remove bool
	c := f.command(a, &cobra.Command{
		Use: "name [flags] SNAPSHOT NAME", Short: "Give a snapshot a name, or take one away",
		Example: "  berth snapshot name 3f2a91 before-upgrade\n  berth snapshot name --remove before-upgrade",
		Args: func(_ *cobra.Command, args []string) error {
			if want := map[bool]int{false: 2, true: 1}[remove]; len(args) != want {
				return fmt.Errorf("there are %d arguments; it takes a snapshot and its name, or --remove and a name", len(args))
			}
			return nil
		},
	}, func(ctx context.Context, r *snapshot.Repo, args []string) error {
		if remove {
			return r.Unname(ctx, args[0])
		}
		rec, err := r.Find(ctx, args[0])
		if err != nil {
			return err
		}
		return r.Name(ctx, rec.ID, args[1])
	})
	c.Flags().BoolVar(&remove, "remove", false, "take the name away")
	return c
}

func (a *app) snapshotRemove() *cobra.Command {
	var f snapshotFlags
	return f.command(a, &cobra.Command{
		Use: "rm [flags] SNAPSHOT...", Short: "Remove snapshots; berth snapshot gc frees their space",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("the snapshots are missing")
			}
			return nil
		},
	}, func(ctx context.Context, r *snapshot.Repo, args []string) error {
		var recs []*snapshot.Record
		for _, arg := range args { // all are found before one is removed
			rec, err := r.Find(ctx, arg)
			if err != nil {
				return err
			}
			recs = append(recs, rec)
		}
		for _, rec := range recs {
			if err := r.Remove(ctx, rec); err != nil {
				return err
			}
			fmt.Fprintln(a.Out, "removed", snapshot.Short(rec.ID))
		}
		return nil
	})
}

func (a *app) snapshotExport() *cobra.Command {
	var f snapshotFlags
	return f.command(a, &cobra.Command{
		Use: "export [flags] SNAPSHOT FILE", Short: "Write a snapshot as a tar archive",
		Long: `Writes a snapshot as an archive that tar unpacks. A FILE that ends in .zst is compressed; "-" is standard output, which is
not.`,
		Example: "  berth snapshot export before-upgrade workspace.tar.zst\n  berth snapshot export 3f2a91 - | tar -t",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("there are %d arguments; it takes a snapshot and a file", len(args))
			}
			return nil
		},
	}, func(ctx context.Context, r *snapshot.Repo, args []string) (err error) {
		rec, err := r.Find(ctx, args[0])
		if err != nil {
			return err
		}
		if args[1] == "-" {
			w := bufio.NewWriterSize(a.Out, 1<<20)
			return errors.Join(r.Export(ctx, rec, w, false), w.Flush())
		}
		path := a.path(args[1])
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return usage("%s exists already and is left as it is\nhint: name a new file", path)
		}
		if err != nil {
			return err
		}
		err = r.Export(ctx, rec, file, strings.HasSuffix(path, ".zst") || strings.HasSuffix(path, ".tzst"))
		if err = errors.Join(err, file.Close()); err != nil {
			return errors.Join(err, os.Remove(path)) // half an archive is of no use
		}
		return nil
	})
}

func (a *app) snapshotImport() *cobra.Command {
	var f snapshotFlags
	var o snapshot.ImportOptions
	var name string
	c := f.command(a, &cobra.Command{
		Use: "import [flags] FILE", Short: "Make a snapshot of a tar archive, plain or .tar.zst",
		Long: `Makes a snapshot of an archive that any tar program wrote; "-" is standard input. The archive is not trusted: what would
lead out of the workspace is refused, and so is more than the bounds that the flags can raise.`,
		Args: just("an archive"),
	}, func(ctx context.Context, r *snapshot.Repo, args []string) error {
		if name != "" {
			if err := snapshot.CheckName(name); err != nil {
				return err
			}
		}
		in := a.In
		if args[0] != "-" {
			file, err := os.Open(a.path(args[0]))
			if err != nil {
				return err
			}
			defer file.Close()
			in = file
			o.Labels = map[string]string{"file": filepath.Base(args[0])}
		}
		rec, x, err := r.Import(ctx, untilEOF(in), o)
		if err != nil {
			return err
		}
		if name != "" {
			if err := r.Name(ctx, rec.ID, name); err != nil {
				return err
			}
		}
		return a.saved(rec, x, f.json)
	})
	fs := c.Flags()
	fs.StringVar(&name, "name", "", "give it this `name`")
	fs.StringVar(&o.Series, "of", "", "put it among the snapshots of this `sandbox`, where restore = \"latest\" finds it")
	fs.Uint64Var(&o.Limits.MaxExtractedBytes, "max-bytes", driver.DefaultMaxExtractedBytes, "most `bytes` of content")
	fs.Uint64Var(&o.Limits.MaxInputBytes, "max-archive-bytes", driver.DefaultMaxInputBytes, "most `bytes` of the archive")
	fs.Uint64Var(&o.Limits.MaxMembers, "max-members", driver.DefaultMaxMembers, "most files and directories")
	return c
}
