// SPDX-License-Identifier: Apache-2.0

// Package fit says whether the memories of agents can be what their files want: that an agent has what it needs to use its
// memory, that several agents do not get into each other's way, and that what is written outlives a run. It reads blocks and
// nothing else.
package fit

import (
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/berth-dev/berth/core/memory"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// Check says what is wrong with the memories of agents that may work together.
func Check(all []*spec.Agent) error {
	var seen []*spec.Agent
	for _, a := range all {
		c := a.Capabilities.Memory
		if c == nil {
			continue
		}
		if err := checkOne(a, c); err != nil {
			return err
		}
		l := memory.LayoutOf(c)
		for _, other := range seen {
			o := other.Capabilities.Memory
			ol := memory.LayoutOf(o)
			switch {
			case (l.Memories == ol.Memories) != (l.Sessions == ol.Sessions):
				return fault(c.Pos, "agents %q and %q share one directory of their memories and not the other", other.Label, a.Label)
			case l == ol && o.Generate != nil && c.Generate != nil && !reflect.DeepEqual(o.Generate, c.Generate):
				return fault(c.Pos, "agents %q and %q write one memory in two ways: their generate blocks differ", other.Label, a.Label)
			}
		}
		seen = append(seen, a)
	}
	return nil
}

func checkOne(a *spec.Agent, c *spec.MemoryCapability) error {
	switch {
	case !a.Sandboxed:
		return fault(c.Pos, "agent %q has memory and no sandbox: memories are files in its workspace", a.Label)
	case !c.Read && c.Generate == nil:
		return fault(c.Pos, "agent %q has memory that is neither read nor written: give it a read or a generate block", a.Label)
	case c.Read && a.Capabilities.Shell == nil:
		return fault(c.Pos, "agent %q reads its memory and has no shell to search it with", a.Label)
	case c.Read && c.LiveUpdate && (a.Capabilities.Filesystem == nil || !a.Capabilities.Filesystem.ApplyPatch):
		return fault(c.Pos, "agent %q may mend its memory (live_update) and has no filesystem capability to do it with", a.Label)
	}
	l := memory.LayoutOf(c)
	for name, dir := range map[string]string{"memories_dir": l.Memories, "sessions_dir": l.Sessions} {
		if !filepath.IsLocal(dir) || dir == "." || strings.Contains(dir, "\\") {
			return fault(c.Pos, "%s of agent %q is %q; it is a directory below the workspace's root", name, a.Label, dir)
		}
	}
	if inside(l.Memories, l.Sessions) || inside(l.Sessions, l.Memories) {
		return fault(c.Pos, "memories_dir and sessions_dir of agent %q are one in the other", a.Label)
	}
	return nil
}

func inside(dir, of string) bool { return dir == of || strings.HasPrefix(dir, of+"/") }

func fault(pos spec.Pos, format string, args ...any) error {
	at := ""
	if pos.File != "" {
		at = fmt.Sprintf("%s:%d: ", filepath.Base(pos.File), pos.Line)
	}
	return errs.New(errs.ConfigInvalid, "%s%s", at, fmt.Sprintf(format, args...))
}

// Stays says that what is written to a layout outlives a run: by the sandbox's session or snapshot, or because it is on a
// mount. Nil stands for the defaults.
func Stays(s *spec.Sandbox, m *spec.Manifest, l memory.Layout) bool {
	if m != nil {
		for i := range m.Entries {
			if e := &m.Entries[i]; e.Kind == spec.EntryMount && inside(l.Memories, path.Clean(e.Path)) {
				return true
			}
		}
	}
	if s == nil {
		return false
	}
	if p := s.Session; p.StateFile != "" || p.Source != "" && p.Source != "create" {
		return true
	}
	p := s.Snapshot
	return p != nil && p.Kind != "none" && p.Kind != "" && p.Persist != "never" && p.Persist != "manual" && p.Restore != "never"
}
