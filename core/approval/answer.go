// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/run"
)

// subcommand is a word that says what a program does, as in "git push".
var subcommand = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Kind is the kind of call that an answer to this one covers when it is to count for later ones. [Describe] says it in
// words.
//
// A plain command is covered with whatever stands behind its program and subcommand ("git push"); any other command, and
// one of a program that runs other programs, only exactly as it is. A call about files is covered for those files, any
// other call with its tool.
func (r *Rules) Kind(c *Call) run.Cover {
	f := r.look(c)
	k := run.Cover{Agent: c.Agent, Tool: c.Tool, Server: c.Server}
	switch {
	case f.command && len(f.plain) > 1 && subcommand.MatchString(f.plain[1]) && !slices.Contains(shells, path.Base(f.plain[0])) &&
		!slices.Contains(wrappers, path.Base(f.plain[0])) && !interprets(f.plain[0]):
		k.Words = f.plain[:2]
	case f.command && c.Subject.Command.Shell == "":
		k.Command = c.Subject.Command.Text
	case f.command:
		k.Arguments = canonical(c.Arguments)
	case len(f.paths) > 0:
		k.Paths = slices.Compact(slices.Sorted(slices.Values(f.paths)))
	}
	return k
}

// interprets reports whether a program runs the file that its first argument names.
func interprets(program string) bool {
	return regexp.MustCompile(`^(python|perl|ruby|node|deno|php|lua|awk|gawk|Rscript|java|make|source|\.)[0-9.]*$`).MatchString(path.Base(program))
}

// covers reports whether a call is of a kind.
func covers(k *run.Cover, c *Call, f *facts) bool {
	if k.Agent != c.Agent || k.Tool != c.Tool || k.Server != c.Server {
		return false
	}
	switch {
	case len(k.Words) > 0:
		return len(f.plain) >= len(k.Words) && slices.Equal(f.plain[:len(k.Words)], k.Words)
	case k.Command != "":
		return c.Subject.Command != nil && c.Subject.Command.Shell == "" && c.Subject.Command.Text == k.Command
	case k.Arguments != "":
		return canonical(c.Arguments) == k.Arguments
	case len(k.Paths) > 0:
		return len(f.paths) > 0 && !slices.ContainsFunc(f.paths, func(p string) bool { return !slices.Contains(k.Paths, p) })
	default:
		return !f.command && len(f.paths) == 0
	}
}

// Covered reports whether an answer of this kind decides a call.
func (r *Rules) Covered(k run.Cover, c *Call) bool { return covers(&k, c, r.look(c)) }

// Describe says what a kind of call is.
func Describe(k run.Cover) string {
	tool := k.Tool
	if k.Server != "" {
		tool += " of " + k.Server
	}
	switch {
	case len(k.Words) > 0:
		return fmt.Sprintf("%s with one plain command that begins with `%s`, in any directory", tool, join(k.Words))
	case k.Command != "":
		return fmt.Sprintf("%s with exactly this command, in any directory", tool)
	case k.Arguments != "":
		return fmt.Sprintf("%s with exactly these arguments", tool)
	case len(k.Paths) > 0:
		return fmt.Sprintf("%s on no other path than %s", tool, strings.Join(k.Paths, ", "))
	default:
		return "every call of " + tool
	}
}
