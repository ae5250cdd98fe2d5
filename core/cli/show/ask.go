// SPDX-License-Identifier: Apache-2.0

package show

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Question shows a call in full, and why it is asked about.
func Question(tool, arguments, reason string, unsure bool) string {
	var b strings.Builder
	switch {
	case unsure:
		fmt.Fprintf(&b, "? %s may have been called already: %s\n", oneLine(tool), oneLine(reason))
	case reason != "":
		fmt.Fprintf(&b, "? %s wants an approval: %s\n", oneLine(tool), oneLine(reason))
	default:
		fmt.Fprintf(&b, "? %s wants an approval\n", oneLine(tool))
	}
	for _, l := range Call(arguments) {
		b.WriteString("    " + l + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// main are the arguments that a call is about; they are shown first, and without their names.
var main = []string{"cmd", "patch", "input", "path", "chars"}

// Call shows a call's arguments in full, as lines that steer no terminal.
func Call(arguments string) []string {
	var text string
	if json.Unmarshal([]byte(arguments), &text) == nil { // a custom tool's, as an event has them
		return strings.Split(Lines(strings.TrimSuffix(text, "\n")), "\n")
	}
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &m) != nil {
		return strings.Split(Lines(strings.TrimSuffix(arguments, "\n")), "\n")
	}
	var out []string
	for _, name := range main {
		var s string
		if raw, ok := m[name]; ok && json.Unmarshal(raw, &s) == nil && s != "" {
			delete(m, name)
			out = append(out, strings.Split(visible(strings.TrimSuffix(s, "\n")), "\n")...)
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if string(m[name]) == "null" {
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s", oneLine(name), printable(string(m[name]))))
	}
	return out
}

// visible shows what printable would leave out: a person must see what is decided about.
func visible(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if p := printable(l); p != strings.ReplaceAll(l, "\t", "        ") && p != l {
			q := fmt.Sprintf("%q", l)
			lines[i] = q[1 : len(q)-1]
		}
	}
	return strings.Join(lines, "\n")
}
