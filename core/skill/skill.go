// SPDX-License-Identifier: Apache-2.0

// Package skill gives agents skills: directories with a SKILL.md, in the open format, that say how a kind of work is done.
// Skills are written in the project, or come from a directory of the host or from a git repository. They are put into the
// workspace before the first turn, or when the model asks for one; what is there already is left as it is.
//
// The frontmatter is read leniently: a skill whose head is not as it should be is still offered, and a [Finding] says what
// is wrong. Modes of files are kept, so that scripts stay executable.
package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// maxDepth is how deep below the source a skill may lie.
const maxDepth = 4

// Skill is one skill.
type Skill struct {
	Name          string `json:"name"`
	Description   string `json:"description"`
	Compatibility string `json:"compatibility,omitempty"`
	Path          string `json:"path"`           // of its directory in the workspace
	Lazy          bool   `json:"lazy,omitempty"` // put into the workspace when it is asked for
	Files         int    `json:"files"`
}

// Set are the skills of one agent.
type Set struct {
	Skills   []Skill
	Findings []Finding

	spec     *spec.SkillsCapability
	contents *manifest.Contents
}

// Open finds the skills of a capability. Repositories are fetched, unless the options say offline.
func Open(ctx context.Context, sc *spec.SkillsCapability, opts manifest.Options) (*Set, error) {
	s := &Set{spec: sc}
	m := &spec.Manifest{Root: spec.DefaultRoot}
	switch {
	case sc.From != nil:
		m.Entries = []spec.Entry{at(sc.From, sc.Path)}
	case sc.LazyFrom != nil:
		m.Entries = []spec.Entry{at(sc.LazyFrom, sc.Path)}
	default:
		m.Entries = s.inline()
	}
	var err error
	if s.contents, err = manifest.Resolve(ctx, m, opts); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	return s, s.index()
}

// Dir finds the skills in a directory of the host; one that holds a SKILL.md is a skill itself.
func Dir(ctx context.Context, dir string) (*Set, error) {
	return Open(ctx, &spec.SkillsCapability{
		Path: path.Base(dir), From: &spec.Entry{Kind: spec.EntryLocalDir, LocalDir: &spec.LocalDirEntry{Source: dir, Symlinks: "skip", KeepModes: true}},
	}, manifest.Options{})
}

// at gives an entry a place.
func at(e *spec.Entry, where string) spec.Entry {
	out := *e
	out.Path = where
	return out
}

// inline are the entries of the skills that the project itself holds.
func (s *Set) inline() []spec.Entry {
	var out []spec.Entry
	for _, sk := range s.spec.Skills {
		dir := path.Join(s.spec.Path, sk.Name)
		out = append(out, spec.Entry{
			Kind: spec.EntryFile, Path: path.Join(dir, skillFile), Pos: s.spec.Pos, File: &spec.FileEntry{Content: []byte(document(sk))},
		})
		for _, e := range sk.Entries {
			e.Path = path.Join(dir, e.Path)
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b spec.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// document is the SKILL.md of a skill that is written in the project.
func document(sk spec.Skill) string {
	var b strings.Builder
	line := func(key, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s: %q\n", key, strings.Join(strings.Fields(text), " "))
		}
	}
	b.WriteString(fence + "\n")
	line("name", sk.Name)
	line("description", sk.Description)
	line("compatibility", sk.Compatibility)
	b.WriteString(fence + "\n\n" + strings.TrimRight(sk.Content, "\n") + "\n")
	return b.String()
}

// index reads every SKILL.md.
func (s *Set) index() error {
	var taken []string // directories of skills
	for i := range s.contents.Members {
		m := &s.contents.Members[i]
		dir, file := path.Split(m.Path)
		dir = path.Clean(dir)
		depth := strings.Count(strings.TrimPrefix(dir, s.spec.Path), "/")
		if file != skillFile || depth > maxDepth || slices.ContainsFunc(taken, func(d string) bool { return dir != d && strings.HasPrefix(dir, d+"/") }) {
			continue
		}
		add := func(level, format string, args ...any) {
			s.Findings = append(s.Findings, Finding{Path: m.Path, Level: level, Message: fmt.Sprintf(format, args...)})
		}
		if m.Type != driver.TypeRegular {
			add(levelError, "it is no regular file, and the skill is left out")
			continue
		}
		taken = append(taken, dir)
		text, err := content(m)
		if err != nil {
			return err
		}
		h := parse(path.Base(dir), text, add)
		if other := s.find(h.name); len(other) > 0 {
			add(levelError, "another skill has the name %q: %s", h.name, other[0].Path)
		}
		sk := Skill{Name: h.name, Description: h.description, Compatibility: h.compatibility, Path: dir, Lazy: s.lazy(dir)}
		for j := range s.contents.Members {
			if f := &s.contents.Members[j]; f.Type == driver.TypeRegular && strings.HasPrefix(f.Path, dir+"/") {
				sk.Files++
			}
		}
		s.Skills = append(s.Skills, sk)
	}
	slices.SortFunc(s.Skills, func(a, b Skill) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path)) })
	return nil
}

func (s *Set) lazy(dir string) bool {
	if s.spec.LazyFrom != nil {
		return true
	}
	return slices.ContainsFunc(s.spec.Skills, func(sk spec.Skill) bool { return sk.Deferred && path.Join(s.spec.Path, sk.Name) == dir })
}

// find gives the skills that a name means: that of the frontmatter, or of the directory.
func (s *Set) find(name string) []Skill {
	var exact, dirs []Skill
	for _, sk := range s.Skills {
		switch name {
		case sk.Name:
			exact = append(exact, sk)
		case path.Base(sk.Path):
			dirs = append(dirs, sk)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return dirs
}

func content(m *manifest.Member) (string, error) {
	if m.Source == "" {
		return string(m.Content), nil
	}
	f, err := os.Open(m.Source)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err = errors.Join(err, f.Close()); err == nil && len(b) > maxDocument {
		err = errs.New(errs.ConfigInvalid, "%s is larger than %d bytes", m.Source, maxDocument)
	}
	return string(b), err
}

// Instructions tell the model which skills there are. Root is the workspace's; empty = paths are shown relative to it.
func (s *Set) Instructions(root string) string {
	if s == nil || len(s.Skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("You have skills: directories that say how a kind of work is done here. When a task fits a description, read that skill's " +
		skillFile + " before you begin, follow it, and open its other files only where it refers to them.")
	if slices.ContainsFunc(s.Skills, func(sk Skill) bool { return sk.Lazy }) {
		b.WriteString(" A skill that is not loaded yet is put into the workspace by load_skill.")
	}
	b.WriteString("\n\n")
	left := maxShownDescriptions
	for i, sk := range s.Skills {
		line := fmt.Sprintf("- %s: %s (%s)\n", sk.Name, sk.Description, path.Join(root, sk.Path, skillFile))
		if sk.Lazy {
			line = fmt.Sprintf("- %s: %s (load_skill)\n", sk.Name, sk.Description)
		}
		if left -= len(line); left < 0 {
			fmt.Fprintf(&b, "- and %d more, which are not described here:", len(s.Skills)-i)
			for _, rest := range s.Skills[i:] {
				b.WriteString(" " + rest.Name)
			}
			b.WriteByte('\n')
			break
		}
		b.WriteString(line)
	}
	return b.String()
}
