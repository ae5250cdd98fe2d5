// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/skill"
)

func (a *app) skillCommand() *cobra.Command {
	return group("skill", "Look at skills, and check them",
		a.skills("list", "List the skills of a project's agents, or of a directory", false),
		a.skills("check", "Check the skills of a project's agents, or of a directory", true))
}

// skillsOf are the skills of one agent; agent is empty for those of a directory.
type skillsOf struct {
	Agent    string          `json:"agent,omitempty"`
	Skills   []skill.Skill   `json:"skills"`
	Findings []skill.Finding `json:"findings"`
}

func (a *app) skills(use, short string, check bool) *cobra.Command {
	var f projectFlags
	var asJSON bool
	c := &cobra.Command{
		Use: use + " [flags] [FILE|DIR]", Short: short,
		Long: short + `. A directory without a project is one skill, or holds skills. Repositories are fetched. What is wrong with a
skill is told; an error is what keeps an agent from using it as it is meant, and ends check with exit code 1.`,
		Args: oneProject,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := a.Dir
			if len(args) == 1 {
				dir = a.path(args[0])
			}
			all, err := a.findSkills(cmd.Context(), dir, &f)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(all)
			} else {
				err = a.showSkills(all, check)
			}
			for _, s := range all {
				if check && slices.ContainsFunc(s.Findings, skill.Finding.Serious) && err == nil {
					return exit(ExitFailure, nil)
				}
			}
			return err
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

func (a *app) findSkills(ctx context.Context, dir string, f *projectFlags) ([]skillsOf, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	if !hasProject(dir) && filepath.Ext(dir) == "" {
		set, err := skill.Dir(ctx, dir)
		if err != nil {
			return nil, err
		}
		if len(set.Skills)+len(set.Findings) == 0 {
			return nil, fmt.Errorf("there is no SKILL.md in %s or below: %w", dir, fs.ErrNotExist)
		}
		return []skillsOf{{Skills: set.Skills, Findings: set.Findings}}, nil
	}
	l, err := a.load(ctx, dir, f)
	if err != nil {
		return nil, err
	}
	cache, _, err := a.dirs()
	if err != nil {
		return nil, err
	}
	all := []skillsOf{}
	for _, label := range slices.Sorted(maps.Keys(l.Project.Agents)) {
		sc := l.Project.Agents[label].Capabilities.Skills
		if sc == nil {
			continue
		}
		set, err := skill.Open(ctx, sc, manifest.Options{CacheDir: cache})
		if err != nil {
			return nil, fmt.Errorf("agent %q: %w", label, err)
		}
		all = append(all, skillsOf{Agent: label, Skills: set.Skills, Findings: set.Findings})
	}
	return all, nil
}

func (a *app) showSkills(all []skillsOf, check bool) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	n := 0
	for _, s := range all {
		n += len(s.Skills)
		if s.Agent != "" && !check {
			fmt.Fprintf(w, "agent %s\n", s.Agent)
		}
		for _, sk := range s.Skills {
			if check {
				continue
			}
			when := "from the start"
			if sk.Lazy {
				when = "when asked for"
			}
			fmt.Fprintf(w, "  %s\t%s\t%d files\t%s\n", sk.Name, when, sk.Files, cut(sk.Description))
		}
		for _, f := range s.Findings {
			fmt.Fprintf(w, "%s: %s: %s\n", f.Level, f.Path, f.Message)
		}
	}
	switch {
	case check:
		fmt.Fprintf(w, "%d skills were looked at\n", n)
	case n == 0:
		fmt.Fprintln(a.Err, "there are no skills")
	}
	return w.Flush()
}

// cut is the beginning of a description.
func cut(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
