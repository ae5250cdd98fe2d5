// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/spec"
)

// completeProject lets a shell complete the names that a project defines, for the flags that take them.
func (a *app) completeProject(c *cobra.Command, f *runFlags) {
	names := func(of func(*spec.Project) []string) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if a.chdir() != nil { // completion runs before the flags of the command line were looked at
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			path := a.Dir
			if len(args) > 0 {
				path = args[0]
			}
			l, err := a.loadAll(cmd.Context(), path, &f.projectFlags)
			if err != nil || l.Project == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			out := of(l.Project)
			slices.Sort(out)
			return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
		}
	}
	complete := map[string]cobra.CompletionFunc{
		"run": names(func(p *spec.Project) []string {
			return slices.AppendSeq(slices.Collect(maps.Keys(p.Runs)), maps.Keys(p.Agents))
		}),
		"sandbox": names(func(p *spec.Project) []string {
			return append(slices.Collect(maps.Keys(p.Sandboxes)), a.catalog.Names()...)
		}),
		"model": names(func(p *spec.Project) []string { return slices.Collect(maps.Keys(p.Models)) }),
	}
	for flag, f := range complete {
		if c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, f) // it only fails for a flag that is not there
		}
	}
}

// completeDriver completes the name of an installed driver.
func (a *app) completeDriver(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	cat, err := a.drivers()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cat.Names(), cobra.ShellCompDirectiveNoFileComp
}
