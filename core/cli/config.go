// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/config"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Look at the configuration", a.configShow())
}

func (a *app) configShow() *cobra.Command {
	var f projectFlags
	var opt config.ShowOptions
	c := &cobra.Command{
		Use:   "show [flags] [FILE|DIR]",
		Short: "Print the project after merging, extends and defaults",
		Long:  "Prints what will really be used. Secrets are not shown. What it prints can be read again.",
		Args:  oneProject,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := a.Dir
			if len(args) == 1 {
				path = args[0]
			}
			l, err := a.load(cmd.Context(), path, &f)
			if err != nil {
				return err
			}
			text, err := l.Show(opt)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.Out, text)
			return err
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&opt.Origin, "origin", false, "say where each line comes from")
	c.Flags().BoolVar(&opt.JSON, "json", false, "print JSON instead of HCL")
	c.Flags().StringVar(&opt.Block, "block", "", "only this block, `KIND.NAME`")
	return c
}
