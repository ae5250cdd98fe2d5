// SPDX-License-Identifier: Apache-2.0

package format

import (
	"fmt"
	"strings"
)

const contextLines = 3

// Diff shows what formatting changes, as a unified diff. The formatter keeps the number of lines, so that each line has
// its counterpart; where that is not so, everything counts as changed.
func Diff(name string, before, after []byte) string {
	a, b := lines(before), lines(after)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", name, name)
	if len(a) != len(b) {
		hunk(&out, a, b, 0, len(a), len(b))
		return out.String()
	}
	for i := 0; i < len(a); i++ {
		if a[i] == b[i] {
			continue
		}
		from, to := max(0, i-contextLines), i+1
		for quiet := 0; to < len(a) && quiet < 2*contextLines; to++ {
			if a[to] == b[to] {
				quiet++
			} else {
				quiet = 0
			}
		}
		for to > i+1 && a[to-1] == b[to-1] {
			to--
		}
		i = to
		to = min(len(a), to+contextLines)
		hunk(&out, a, b, from, to, to)
	}
	return out.String()
}

func hunk(out *strings.Builder, a, b []string, from, toA, toB int) {
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", from+1, toA-from, from+1, toB-from)
	for i := from; i < max(toA, toB); {
		if i < toA && i < toB && a[i] == b[i] {
			put(out, ' ', a[i])
			i++
			continue
		}
		j := i
		for j < max(toA, toB) && (j >= toA || j >= toB || a[j] != b[j]) {
			j++
		}
		for _, l := range a[min(i, toA):min(j, toA)] {
			put(out, '-', l)
		}
		for _, l := range b[min(i, toB):min(j, toB)] {
			put(out, '+', l)
		}
		i = j
	}
}

func put(out *strings.Builder, sign byte, line string) {
	out.WriteByte(sign)
	out.WriteString(line)
	if !strings.HasSuffix(line, "\n") {
		out.WriteString("\n\\ No newline at end of file\n")
	}
}

func lines(src []byte) []string {
	l := strings.SplitAfter(string(src), "\n")
	if l[len(l)-1] == "" {
		l = l[:len(l)-1]
	}
	return l
}
