// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/wire"
)

func (a *app) driverCommand() *cobra.Command {
	return group("driver", "List, describe, lock, verify and test drivers",
		a.driverList(), a.driverDescribe(), a.driverLock(), a.driverVerify(), a.driverConformance())
}

// driverInfo is a driver as list shows it.
type driverInfo struct {
	Name    string      `json:"name"`
	Source  string      `json:"source"`
	Version string      `json:"version,omitempty"` // what the file says of itself
	Locked  string      `json:"locked,omitempty"`  // version of the lock file
	Path    string      `json:"path,omitempty"`
	SHA256  string      `json:"sha256,omitempty"`
	How     catalog.How `json:"how,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Error   string      `json:"error,omitempty"` // why it cannot be used
	Hint    string      `json:"hint,omitempty"`
}

// wanted are the drivers of the project in the working directory, by name; nil without a project.
func (a *app) wanted(ctx context.Context, dir string) (map[string]spec.DriverRequirement, error) {
	if !hasProject(dir) {
		return nil, nil
	}
	l, err := a.load(ctx, dir, &projectFlags{})
	if err != nil {
		return nil, err
	}
	out := maps.Clone(l.Project.RequiredDrivers)
	if out == nil {
		out = map[string]spec.DriverRequirement{}
	}
	for _, s := range l.Project.Sandboxes {
		name := s.Driver
		if d := l.Project.Drivers[name]; d != nil && d.Uses != "" {
			name = d.Uses
		}
		if _, ok := out[name]; !ok {
			out[name] = spec.DriverRequirement{}
		}
	}
	if len(l.Project.Sandboxes) == 0 {
		out[berth.DefaultDriver] = spec.DriverRequirement{}
	}
	return out, nil
}

func (a *app) driverList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "Say which drivers there are, which file each is, and why",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cat, err := a.drivers()
			if err != nil {
				return err
			}
			reqs, err := a.wanted(cmd.Context(), a.Dir)
			if err != nil {
				return err
			}
			lock, err := catalog.ReadLock(a.Dir)
			if err != nil {
				return err
			}
			wanted := map[string]spec.DriverRequirement{}
			for _, source := range cat.Sources() {
				wanted[source] = spec.DriverRequirement{Source: source}
			}
			for _, e := range lock.Entries {
				wanted[e.Source] = spec.DriverRequirement{Source: e.Source}
			}
			for name, req := range reqs {
				source := catalog.Source(name, req)
				req.Source = source
				wanted[source] = req
			}
			infos := []driverInfo{}
			for _, source := range slices.Sorted(maps.Keys(wanted)) {
				infos = append(infos, a.inform(cmd.Context(), cat, lock.Entry(source), wanted[source]))
			}
			if asJSON {
				return a.printJSON(infos)
			}
			return a.showDrivers(infos)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

// inform says which file a driver is, and whether it can be used.
func (a *app) inform(ctx context.Context, cat *catalog.Catalog, entry *catalog.LockEntry, req spec.DriverRequirement) driverInfo {
	info := driverInfo{Name: filepath.Base(req.Source), Source: req.Source}
	if entry != nil {
		info.Locked = entry.Version
	}
	b, err := cat.Resolve(ctx, a.Dir, info.Name, req)
	var d driver.Description
	if err == nil {
		info.Path, info.SHA256, info.How, info.Reason = b.Path, b.SHA256, b.How, b.Reason
		d, err = cat.Describe(ctx, b)
	}
	if err != nil {
		info.Error = err.Error()
		if e, ok := errors.AsType[*errs.Error](err); ok {
			info.Hint = e.Hint
			info.Path = cmp.Or(info.Path, e.Context["path"])
		}
		return info
	}
	info.Version = d.Version
	if b.Version != "" && b.Version != d.Version {
		info.Reason += "; the lock file calls it " + b.Version
	}
	return info
}

// showDrivers prints a table, and below it what is wrong with those that cannot be used.
func (a *app) showDrivers(infos []driverInfo) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "DRIVER\tVERSION\tLOCKED\tFOUND\tFILE")
	for _, i := range infos {
		found := string(i.How) + ": " + i.Reason
		if i.Error != "" {
			found = "not usable, see below"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Source, cmp.Or(i.Version, "-"), cmp.Or(i.Locked, "-"), found, cmp.Or(i.Path, "-"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, i := range infos {
		if i.Error == "" {
			continue
		}
		fmt.Fprintf(a.Out, "\n%s is not usable: %s\n", i.Source, i.Error)
		if i.Hint != "" {
			fmt.Fprintln(a.Out, "hint:", i.Hint)
		}
	}
	return nil
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) driverDescribe() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "describe NAME",
		Short: "Say what a driver can do, how it is configured, and what it enforces on this machine",
		Args:  just("the name of a driver"),

		ValidArgsFunction: a.completeDriver,
		RunE: func(cmd *cobra.Command, args []string) error {
			cat, err := a.drivers()
			if err != nil {
				return err
			}
			b, err := cat.Resolve(cmd.Context(), a.Dir, args[0], spec.DriverRequirement{})
			if err != nil {
				return err
			}
			d, err := cat.Ask(cmd.Context(), b)
			if err != nil {
				return err
			}
			if asJSON {
				text, err := wire.MarshalDescription(d)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.Out, "%s\n", text)
				return err
			}
			return a.showDriver(b, d)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

func (a *app) driverLock() *cobra.Command {
	return &cobra.Command{
		Use:   "lock [NAME...]",
		Short: "Write the installed drivers' versions and hashes into the lock file",
		Long:  "Accepts the driver files that are installed now. Without a name it locks those that the project needs.",

		ValidArgsFunction: a.completeDriver,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.lockProject(cmd.Context(), a.Dir, args)
		},
	}
}

// lockProject locks drivers of a project; all that it needs when no name is given.
func (a *app) lockProject(ctx context.Context, dir string, names []string) error {
	cat, err := a.drivers()
	if err != nil {
		return err
	}
	reqs, err := a.wanted(ctx, dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(reqs))
	}
	if len(names) == 0 {
		return usage("there is no project in %s: name the drivers to lock", dir)
	}
	lock, err := catalog.ReadLock(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		e, err := cat.LockOne(ctx, lock, n, reqs[n])
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "locked %s %s\n", e.Source, e.Version)
	}
	if err := lock.Write(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out, "wrote", lock.Path())
	return nil
}

func (a *app) driverVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Hold the installed drivers against the lock file",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cat, err := a.drivers()
			if err != nil {
				return err
			}
			lock, err := catalog.ReadLock(a.Dir)
			if err != nil {
				return err
			}
			if len(lock.Entries) == 0 {
				return exit(ExitFailure, fmt.Errorf("there is nothing to verify: %s has no driver\nhint: berth driver lock", lock.Path()))
			}
			var all error
			for _, e := range lock.Entries {
				req := spec.DriverRequirement{Source: e.Source}
				b, err := cat.Resolve(cmd.Context(), a.Dir, e.Source, req)
				if err != nil {
					all = errors.Join(all, err)
					continue
				}
				fmt.Fprintf(a.Out, "ok  %s %s  %s\n", e.Source, e.Version, b.Path)
			}
			return all
		},
	}
}
