// SPDX-License-Identifier: Apache-2.0

// Package prompt puts together what a model is told before a run: the base prompt, the agent's instructions, those of
// its capabilities, and facts about the sandbox. Everything in it is true of what the runtime does.
package prompt

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
)

// Base is the built-in base prompt of an agent that works in a sandbox.
//
//go:embed base.md
var Base string

// Parts are the parts of the instructions; empty ones are left out.
type Parts struct {
	Base         string
	Agent        string   // the agent's own instructions
	Capabilities []string // in the capabilities' order
	Sandbox      *Sandbox // nil = a plain agent
}

// Sandbox is what the model is told about where it works.
type Sandbox struct {
	Root      string
	Cwd       string // absolute; empty = Root
	Tree      string // rendered; see core/manifest
	Grants    []Grant
	Isolation []driver.Isolation
}

// Grant is a path outside the workspace that is visible.
type Grant struct {
	Path, Description string
	ReadOnly          bool
}

// Build joins the parts.
func Build(p Parts) string {
	var sections []string
	add := func(heading, text string) {
		text = strings.TrimSpace(text)
		if text == "" {
			return
		}
		if heading != "" {
			text = "# " + heading + "\n\n" + text
		}
		sections = append(sections, text)
	}
	add("", p.Base)
	add("Instructions", p.Agent)
	add("Tools", strings.Join(p.Capabilities, "\n\n"))
	if p.Sandbox != nil {
		add("Workspace", p.Sandbox.text())
	}
	return strings.Join(sections, "\n\n")
}

func (s *Sandbox) text() string {
	var b strings.Builder
	cwd := s.Cwd
	if cwd == "" {
		cwd = s.Root
	}
	fmt.Fprintf(&b, "The workspace is %s. ", s.Root)
	fmt.Fprintf(&b, "Commands start in %s, and relative paths start there.\n", cwd)
	if s.Tree != "" {
		fmt.Fprintf(&b, "At the start it holds:\n\n```\n%s\n```\n", strings.TrimRight(s.Tree, "\n"))
	}
	for i, g := range s.Grants {
		if i == 0 {
			b.WriteString("\nOutside it you may also use:\n\n")
		}
		mode := "read and write"
		if g.ReadOnly {
			mode = "read only"
		}
		fmt.Fprintf(&b, "- %s (%s)", g.Path, mode)
		if g.Description != "" {
			fmt.Fprintf(&b, ": %s", g.Description)
		}
		b.WriteByte('\n')
	}
	for _, i := range s.Isolation {
		if i.Axis == "network" {
			fmt.Fprintf(&b, "\nNetwork: %s.\n", i.Statement)
		}
	}
	return b.String()
}
