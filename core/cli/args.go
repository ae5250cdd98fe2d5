// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/core/diag"
)

// noArgs is the check of a command that takes none.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is one too many: there are no arguments", args[0])
	}
	return nil
}

// oneProject is the check of a command that takes one project or none.
func oneProject(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("there are %d arguments, and one project is understood: %q is one too many", len(args), args[1])
	}
	return nil
}

// just is the check of a command that takes one argument, such as "the name of a driver".
func just(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s is missing", what)
		case 1:
			return nil
		default:
			return fmt.Errorf("there are %d arguments, and only %s is understood: %q is one too many", len(args), what, args[1])
		}
	}
}

// wrapArgs makes wrong arguments a usage error.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			var known *exitError
			switch {
			case errors.As(err, &known):
				return err
			case err != nil:
				return usage("%w\nhint: usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// subcommand is the check of a command that only has subcommands: whatever is left is none of them.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = "did you mean " + strings.Join(like, " or ") + "?"
	}
	return usage("%s has no command %q\nhint: %s", cmd.CommandPath(), args[0], hint)
}

// flagError says what is wrong with a flag, and what to do.
func flagError(cmd *cobra.Command, err error) error {
	hint, err := flagFault(cmd, err)
	return usage("%w\nhint: %s", err, hint)
}

func flagFault(cmd *cobra.Command, err error) (hint string, fault error) {
	hint = "see " + cmd.CommandPath() + " --help"
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		flag := "--" + unknown.GetSpecifiedName()
		given := unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			flag, given = "-"+short, short
		}
		if like := flagLike(cmd, given); like != "" {
			hint = "did you mean " + like + "?"
		}
		err = fmt.Errorf("%s has no flag %s", cmd.CommandPath(), flag)
	case errors.As(err, &valueless):
		name, _ := pflag.UnquoteUsage(valueless.GetFlag())
		err = fmt.Errorf("--%s has no value: it is followed by %s", valueless.GetFlag().Name, strings.ToUpper(name))
	case errors.As(err, &invalid):
		kind := "a " + invalid.GetFlag().Value.Type()
		if kind == "a bool" {
			kind = "true or false"
		}
		err = fmt.Errorf("--%s cannot be %q: it is %s", invalid.GetFlag().Name, invalid.GetValue(), kind)
	}
	return hint, err
}

// flagLike finds the flag or the command that was probably meant; empty = none.
func flagLike(cmd *cobra.Command, given string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	for _, name := range names {
		if name == given {
			return "--" + name // it was given with one dash
		}
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() == given {
			return sub.CommandPath()
		}
	}
	if like := diag.Suggest(given, names); like != "" {
		return "--" + like
	}
	return ""
}

// atLeast is the check of a command that takes n arguments or more, such as "a session and a path".
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return fmt.Errorf("there are %d arguments, and at least %d are needed: %s", len(args), n, what)
		}
		return nil
	}
}

// between is the check of a command that takes from least to most arguments.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("there are %d arguments, and at least %d are needed: %s", len(args), least, what)
		case len(args) > most:
			return fmt.Errorf("there are %d arguments, and only %s are understood: %q is one too many", len(args), what, args[most])
		}
		return nil
	}
}
