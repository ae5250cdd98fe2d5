// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// TreeOptions bound [Tree].
type TreeOptions struct {
	Depth int // 0 = 3
	Bytes int // 0 = 5,000
}

// Tree renders the workspace for a prompt: names, sizes, descriptions, mounts. Where it does not fit, the deepest level
// is left out first, and it says how much is not shown.
func (c *Contents) Tree(opts TreeOptions) string {
	if opts.Depth == 0 {
		opts.Depth = 3
	}
	if opts.Bytes == 0 {
		opts.Bytes = 5000
	}
	if len(c.Members) == 0 {
		return c.Manifest.Root + " (empty)"
	}
	var text string
	for depth := opts.Depth; depth > 0; depth-- {
		if text = c.tree(depth); len(text) <= opts.Bytes {
			return text
		}
	}
	cut := strings.LastIndexByte(text[:opts.Bytes-80], '\n')
	return fmt.Sprintf("%s\n… %d more lines; list directories to see them", text[:max(cut, 0)], strings.Count(text[max(cut, 0):], "\n")-1)
}

func (c *Contents) tree(depth int) string {
	var b strings.Builder
	b.WriteString(c.Manifest.Root)
	hidden := map[string]int{} // by the deepest directory that is shown
	type line struct{ path, text string }
	var lines []line
	for i := range c.Members {
		m := &c.Members[i]
		parts := strings.Split(m.Path, "/")
		if len(parts) > depth {
			if m.Type != driver.TypeDirectory {
				hidden[strings.Join(parts[:depth], "/")]++
			}
			continue
		}
		lines = append(lines, line{m.Path, m.line(parts[len(parts)-1])})
	}
	// Directories come with what they hold, whatever characters their names have.
	slices.SortStableFunc(lines, func(a, b line) int {
		return strings.Compare(strings.ReplaceAll(a.path, "/", "\x00"), strings.ReplaceAll(b.path, "/", "\x00"))
	})
	for _, l := range lines {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat("  ", strings.Count(l.path, "/")+1))
		b.WriteString(l.text)
		if n := hidden[l.path]; n > 0 {
			fmt.Fprintf(&b, "  (%d files)", n)
		}
	}
	return b.String()
}

func (m *Member) line(name string) string {
	var b strings.Builder
	b.WriteString(name)
	switch m.Type {
	case driver.TypeDirectory:
		b.WriteByte('/')
	case driver.TypeSymlink:
		b.WriteString(" -> " + m.Target)
	case driver.TypeRegular:
		b.WriteString("  " + size(m.Size))
	case driver.TypeUnknown, driver.TypeFIFO, driver.TypeSocket, driver.TypeDevice:
	}
	if e := m.Entry; e != nil && e.Path == m.Path {
		if e.Kind == spec.EntryMount {
			access := "read and write"
			if e.Mount.ReadOnly {
				access = "read only"
			}
			fmt.Fprintf(&b, "  (%s mount, %s)", e.Mount.Kind, access)
		}
		if e.Description != "" {
			b.WriteString("  " + e.Description)
		}
	}
	return b.String()
}

func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}
