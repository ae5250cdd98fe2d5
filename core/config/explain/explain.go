// SPDX-License-Identifier: Apache-2.0

// Package explain holds the long text of every code that a diagnostic can have: what it means, an example that gives
// it and one that does not.
package explain

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/diag"
)

//go:embed codes.txt
var codes string

// Text explains one code.
type Text struct {
	Code    diag.Code
	Title   string
	Meaning string
	Needs   string // what a plain check of the files does not show: "untrusted", "run", "driver" or "host"; usually empty
	Wrong   []File
	Right   []File
}

// File is one file of an example.
type File struct {
	Name    string
	Content string
}

// All gives every text in the order of the codes.
func All() []Text {
	var out []Text
	for part := range strings.SplitSeq(strings.TrimPrefix(codes, "=== "), "\n=== ") {
		out = append(out, parse(part))
	}
	return out
}

// Find gives the text of a code.
func Find(code diag.Code) (Text, bool) {
	all := All()
	i := slices.IndexFunc(all, func(t Text) bool { return t.Code == code })
	if i < 0 {
		return Text{}, false
	}
	return all[i], true
}

// parse reads one part: the code and title, the meaning, then files behind lines such as "-- wrong main.berth.hcl --".
func parse(part string) Text {
	head, rest, _ := strings.Cut(part, "\n")
	number, title, _ := strings.Cut(head, " ")
	code, _ := diag.ParseCode(number)
	t := Text{Code: code, Title: title}
	pieces := strings.Split("\n"+rest, "\n-- ")
	t.Meaning = strings.TrimSpace(pieces[0])
	if first, more, ok := strings.Cut(t.Meaning, "\n"); ok && strings.HasPrefix(first, "needs: ") {
		t.Needs, t.Meaning = strings.TrimPrefix(first, "needs: "), strings.TrimSpace(more)
	}
	for _, p := range pieces[1:] {
		header, content, _ := strings.Cut(p, "\n")
		which, name, _ := strings.Cut(strings.TrimSuffix(header, " --"), " ")
		f := File{Name: name, Content: strings.TrimSuffix(content, "\n") + "\n"}
		if which == "wrong" {
			t.Wrong = append(t.Wrong, f)
		} else {
			t.Right = append(t.Right, f)
		}
	}
	return t
}

// String is what `berth explain` prints.
func (t Text) String() string {
	var b strings.Builder
	b.WriteString(t.Code.String() + ": " + t.Title + "\n\n" + t.Meaning + "\n")
	for _, group := range []struct {
		title string
		files []File
	}{{"Wrong:", t.Wrong}, {"Right:", t.Right}} {
		if len(group.files) == 0 {
			continue
		}
		b.WriteString("\n" + group.title + "\n")
		for _, f := range group.files {
			b.WriteString("\n  # " + f.Name + "\n")
			for line := range strings.SplitSeq(strings.TrimSuffix(f.Content, "\n"), "\n") {
				b.WriteString(strings.TrimRight("  "+line, " ") + "\n")
			}
		}
	}
	return b.String()
}
