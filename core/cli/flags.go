// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/core/config"
)

func (f *projectFlags) add(fs *pflag.FlagSet) {
	fs.Var(varFlag{f, false}, "var", "set a variable, `NAME=VALUE`")
	fs.Var(varFlag{f, true}, "var-file", "read variables from a `file`")
	fs.BoolVar(&f.allowUndeclared, "allow-undeclared", false, "only warn about undeclared names in variable files")
	fs.BoolVar(&f.untrusted, "untrusted", false, "refuse everything in the files that would reach the host")
}

// varFlag keeps --var and --var-file in the order of the command line: later ones win.
type varFlag struct {
	f    *projectFlags
	file bool
}

func (varFlag) String() string { return "" }

func (v varFlag) Type() string {
	if v.file {
		return "file"
	}
	return "NAME=VALUE"
}

func (v varFlag) Set(s string) error {
	if v.file {
		v.f.vars = append(v.f.vars, config.Var{File: s})
	} else {
		v.f.vars = append(v.f.vars, config.Var{Assign: s})
	}
	return nil
}

func cutPair(s string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(s, "=")
	return name, value, ok && name != "" && value != ""
}
