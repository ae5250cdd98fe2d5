// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"strings"
)

const (
	beginMark  = "*** Begin Patch"
	endMark    = "*** End Patch"
	addMark    = "*** Add File: "
	deleteMark = "*** Delete File: "
	updateMark = "*** Update File: "
	moveMark   = "*** Move to: "
	eofMark    = "*** End of File"
)

// Grammar is the format in Lark's notation, for models that can be held to one.
const Grammar = `start: begin_patch section+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

section: add_section | delete_section | update_section
add_section: "*** Add File: " path LF add_line+
delete_section: "*** Delete File: " path LF
update_section: "*** Update File: " path LF move? hunk*
move: "*** Move to: " path LF
path: /(.+)/
add_line: "+" /(.*)/ LF

hunk: (anchor | change_line)+ eof?
anchor: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof: "*** End of File" LF

%import common.LF
`

// Parse reads a patch. Blank lines and white space around it, a fenced block, and a shell here-document around it are
// ignored. Errors are *[Error] and name the line.
func Parse(text string) (*Patch, error) {
	p := &parser{lines: splitPatch(text)}
	p.trimWrapping()
	if err := p.envelope(); err != nil {
		return nil, err
	}
	out := &Patch{}
	for !p.done() {
		s, err := p.section()
		if err != nil {
			return nil, err
		}
		out.Sections = append(out.Sections, *s)
	}
	if len(out.Sections) == 0 {
		return nil, syntax(p.at(), "the patch changes no file: put a %q, %q or %q section between the marks",
			strings.TrimSpace(addMark), strings.TrimSpace(updateMark), strings.TrimSpace(deleteMark))
	}
	return out, nil
}

// ParseHunks reads the body of one update: hunks without an envelope.
func ParseHunks(diff string) ([]Hunk, error) {
	p := &parser{lines: splitPatch(diff)}
	p.end = len(p.lines)
	if p.end > 0 && p.lines[p.end-1] == "" {
		p.end--
	}
	hunks, err := p.hunks()
	if err != nil {
		return nil, err
	}
	if !p.done() {
		return nil, syntax(p.at(), "unexpected line %q", clip(p.line()))
	}
	return hunks, nil
}

// splitPatch splits at LF only: form feeds and Unicode separators are content.
func splitPatch(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return lines
}

type parser struct {
	lines    []string
	pos, end int
}

func (p *parser) done() bool   { return p.pos >= p.end }
func (p *parser) line() string { return p.lines[p.pos] }
func (p *parser) at() int      { return p.pos + 1 }

// trimWrapping drops what models put around a patch although nobody asked.
func (p *parser) trimWrapping() {
	p.end = len(p.lines)
	for p.pos < p.end && strings.TrimSpace(p.lines[p.pos]) == "" {
		p.pos++
	}
	for p.end > p.pos && strings.TrimSpace(p.lines[p.end-1]) == "" {
		p.end--
	}
	if p.end-p.pos < 3 {
		return
	}
	first, last := strings.TrimSpace(p.lines[p.pos]), strings.TrimSpace(p.lines[p.end-1])
	_, word, here := strings.Cut(first, "<<")
	word = strings.Trim(strings.TrimSpace(strings.TrimPrefix(word, "-")), `'"`)
	if (strings.HasPrefix(first, "```") && last == "```") || (here && word != "" && last == word) {
		p.pos++
		p.end--
	}
}

func (p *parser) envelope() error {
	if p.done() || strings.TrimSpace(p.line()) != beginMark {
		return syntax(p.at(), "a patch starts with %q", beginMark)
	}
	p.pos++
	if p.end <= p.pos || strings.TrimSpace(p.lines[p.end-1]) != endMark {
		return syntax(p.end, "a patch ends with %q", endMark)
	}
	p.end--
	return nil
}

func (p *parser) section() (*Section, error) {
	at, l := p.at(), strings.TrimRight(p.line(), " \t")
	p.pos++
	for _, kind := range []struct {
		mark string
		op   Op
	}{{addMark, OpAdd}, {deleteMark, OpDelete}, {updateMark, OpUpdate}} {
		mark := strings.TrimSpace(kind.mark)
		rest, ok := strings.CutPrefix(l, mark)
		if !ok {
			continue
		}
		path := strings.TrimSpace(rest)
		if path == "" {
			return nil, syntax(at, "%q needs a path behind it", mark)
		}
		s := &Section{Op: kind.op, Path: path, At: at}
		return s, p.body(s)
	}
	if strings.TrimSpace(l) == "" && p.done() {
		return nil, syntax(at, "blank line before %q", endMark)
	}
	return nil, syntax(at, "a file section is expected (%q, %q, %q), not %q", strings.TrimSpace(addMark),
		strings.TrimSpace(updateMark), strings.TrimSpace(deleteMark), clip(l))
}

func (p *parser) body(s *Section) error {
	switch s.Op {
	case OpAdd:
		for !p.done() && strings.HasPrefix(p.line(), "+") {
			s.Lines = append(s.Lines, p.line()[1:])
			p.pos++
		}
		if !p.done() && !strings.HasPrefix(p.line(), "*** ") {
			return syntax(p.at(), "each line of the added file %s starts with \"+\", this one is %q", s.Path, clip(p.line()))
		}
	case OpDelete:
		if !p.done() && !strings.HasPrefix(p.line(), "*** ") {
			return syntax(p.at(), "a delete section has no lines, this one is %q", clip(p.line()))
		}
	case OpUpdate:
		if !p.done() {
			if rest, ok := strings.CutPrefix(p.line(), strings.TrimSpace(moveMark)); ok {
				s.MoveTo = strings.TrimSpace(rest)
				if s.MoveTo == "" {
					return syntax(p.at(), "%q needs a path behind it", strings.TrimSpace(moveMark))
				}
				p.pos++
			}
		}
		hunks, err := p.hunks()
		if err != nil {
			return err
		}
		if len(hunks) == 0 && s.MoveTo == "" {
			return syntax(s.At, "the update of %s changes nothing: it needs a hunk or a %q line", s.Path, strings.TrimSpace(moveMark))
		}
		s.Hunks = hunks
	}
	return nil
}

// hunks reads until the next section.
func (p *parser) hunks() ([]Hunk, error) {
	var out []Hunk
	var cur *Hunk
	flush := func() error {
		if cur == nil {
			return nil
		}
		if !cur.changes() {
			return syntax(cur.At, "the hunk changes nothing: it has no line that starts with \"+\" or \"-\"")
		}
		out = append(out, *cur)
		cur = nil
		return nil
	}
	for ; !p.done(); p.pos++ {
		l := p.line()
		switch {
		case strings.TrimRight(l, " \t") == eofMark:
			if cur == nil {
				return nil, syntax(p.at(), "%q stands behind the lines of a hunk", eofMark)
			}
			cur.EOF = true
			if err := flush(); err != nil {
				return nil, err
			}
		case strings.HasPrefix(l, "*** "):
			return out, flush()
		case strings.HasPrefix(l, "@@"):
			if cur != nil && len(cur.Lines) > 0 {
				if err := flush(); err != nil {
					return nil, err
				}
			}
			if cur == nil {
				cur = &Hunk{At: p.at()}
			}
			if a := anchor(l); a != "" {
				cur.Anchors = append(cur.Anchors, a)
			}
		case l == "":
			// Models drop the space of an empty context line.
			if cur == nil {
				cur = &Hunk{At: p.at()}
			}
			cur.Lines = append(cur.Lines, Line{Kind: Context})
		case l[0] == '+' || l[0] == '-' || l[0] == ' ':
			if cur == nil {
				cur = &Hunk{At: p.at()}
			}
			cur.Lines = append(cur.Lines, Line{Kind: LineKind(l[0]), Text: l[1:]})
		case strings.HasPrefix(l, `\ No newline`):
			// Of a unified diff. The file's own final newline, or the lack of it, is kept anyway.
		default:
			return nil, syntax(p.at(), "each line of a hunk starts with \" \", \"+\", \"-\" or \"@@\", this one is %q", clip(l))
		}
	}
	return out, flush()
}

func (h *Hunk) changes() bool {
	for _, l := range h.Lines {
		if l.Kind != Context {
			return true
		}
	}
	return false
}

// anchor gives the text of an "@@" line; the line numbers of a unified diff are no anchor, what follows them is.
func anchor(l string) string {
	l = strings.TrimPrefix(l, "@@")
	if strings.HasPrefix(l, " -") {
		if _, rest, ok := strings.Cut(l[1:], "@@"); ok {
			l = rest
		}
	}
	return strings.TrimRight(strings.TrimPrefix(l, " "), " \t")
}

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func syntax(line int, format string, args ...any) *Error {
	return &Error{Kind: Syntax, PatchLine: line, Message: fmt.Sprintf(format, args...)}
}
