// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// Step is what one entry would do to a fresh workspace.
type Step struct {
	Kind  spec.EntryKind `json:"kind"`
	Path  string         `json:"path"`
	From  string         `json:"from,omitempty"` // host path or address; host files leave the machine with a hosted driver
	Files int            `json:"files,omitempty"`
	Bytes int64          `json:"bytes,omitempty"`
	Note  string         `json:"note,omitempty"`
}

// Plan says what would be created, copied, cloned and mounted, an entry each, in the manifest's order.
func (c *Contents) Plan() []Step {
	index := map[*spec.Entry]int{}
	var steps []Step
	for i := range c.Manifest.Entries {
		e := &c.Manifest.Entries[i]
		s := Step{Kind: e.Kind, Path: e.Path, Note: e.Description}
		switch e.Kind {
		case spec.EntryLocalFile:
			s.From = e.LocalFile.Source
		case spec.EntryLocalDir:
			s.From = e.LocalDir.Source
		case spec.EntryGitRepo:
			s.From, _ = gitAddress(e.GitRepo) // Resolve has refused a bad one
			s.Note = "at " + e.GitRepo.Ref
		case spec.EntryMount:
			s.From = e.Mount.Kind
		case spec.EntryFile, spec.EntryDir:
		}
		index[e] = len(steps)
		steps = append(steps, s)
	}
	for i := range c.Members {
		m := &c.Members[i]
		if n, ok := index[m.Entry]; ok && m.Type != driver.TypeDirectory {
			steps[n].Files++
			steps[n].Bytes += m.Size
		}
	}
	return steps
}
