// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// tidy drops syntax errors that only follow from an earlier one.
func (c Converter) tidy(in hcl.Diagnostics) hcl.Diagnostics {
	var out hcl.Diagnostics
	jsonDone := map[string]bool{}
	unclosed := map[string]bool{}
	for _, d := range in {
		file := ""
		if d.Subject != nil {
			file = d.Subject.Filename
		}
		switch {
		case unclosed[file]:
			// Everything behind the opening is read as text, or as code that was text.
			continue
		case c.JSON && jsonDone[file]:
			continue
		case d.Summary == "Invalid expression" && repeats(out, d):
			continue
		case isUnclosed(d):
			if found := c.opening(d); found != nil {
				unclosed[file] = true
				d = found
			}
		}
		jsonDone[file] = c.JSON
		out = append(out, d)
	}
	return out
}

func repeats(before hcl.Diagnostics, d *hcl.Diagnostic) bool {
	for _, b := range before {
		if b.Subject != nil && d.Subject != nil && *b.Subject == *d.Subject {
			return true
		}
	}
	return false
}

func isUnclosed(d *hcl.Diagnostic) bool {
	if d.Subject == nil {
		return false
	}
	switch d.Summary {
	case "Invalid multi-line string", "Unterminated template string", "Unterminated string literal":
		return true
	}
	return false
}

// notClosed is the Extra of a diagnostic that opening made; one prints it.
type notClosed struct{ *Diagnostic }

// opening finds the quote or heredoc that is open where d is.
func (c Converter) opening(d *hcl.Diagnostic) *hcl.Diagnostic {
	file := c.Files[d.Subject.Filename]
	if file == nil {
		return nil
	}
	tokens, _ := hclsyntax.LexConfig(file.Bytes, d.Subject.Filename, hcl.InitialPos)
	var open []hclsyntax.Token
	for _, t := range tokens {
		if t.Range.Start.Byte >= d.Subject.End.Byte && t.Type != hclsyntax.TokenEOF {
			break
		}
		switch t.Type {
		case hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			open = append(open, t)
		case hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		default: // neither opens nor closes
		}
	}
	if len(open) == 0 {
		return nil
	}
	var out *Diagnostic
	if t := open[0]; t.Type == hclsyntax.TokenOHeredoc {
		out = c.openHeredoc(t)
	} else {
		out = c.openQuote(open[len(open)-1])
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Subject: out.Subject.Ptr(), Extra: notClosed{out}}
}

func (c Converter) openQuote(t hclsyntax.Token) *Diagnostic {
	r := t.Range
	line, start, ok := c.Files.line(r.Filename, r.Start.Line)
	if ok {
		line = strings.TrimRight(line, " \t")
		if end := start + len(line); end > r.End.Byte {
			r.End.Column += len(cells(line[r.End.Byte-start:]))
			r.End.Byte = end
		}
	}
	return Errorf(NotClosed, r, "string is not closed on its line").
		Labelf("opened here").
		Helpf("close the quote, or use a heredoc (<<-EOT) for text of several lines")
}

func (c Converter) openHeredoc(t hclsyntax.Token) *Diagnostic {
	r := t.Range
	text := strings.TrimRight(string(t.Bytes), "\r\n")
	r.End = r.Start
	r.End.Byte += len(text)
	r.End.Column += len(cells(text))
	marker := strings.TrimLeft(text, "<-")
	d := Errorf(NotClosed, r, "heredoc is not closed").Labelf("no line with only %q follows", marker)
	for n := r.Start.Line + 1; ; n++ {
		line, start, ok := c.Files.line(r.Filename, n)
		if !ok {
			break
		}
		word := strings.TrimSpace(line)
		if !nearMarker(word, marker) {
			continue
		}
		indent := strings.Index(line, word)
		near := hcl.Range{Filename: r.Filename}
		near.Start = hcl.Pos{Line: n, Column: indent + 1, Byte: start + indent}
		near.End = hcl.Pos{Line: n, Column: indent + 1 + len(cells(word)), Byte: start + indent + len(word)}
		d.Relate(near, "is this meant to be %q?", marker)
		break
	}
	return d
}

// nearMarker reports whether a line looks like a heredoc's end that was misspelt or has something behind it.
func nearMarker(word, marker string) bool {
	if word == "" || word == marker || len(word) > len(marker)+8 {
		return false
	}
	if rest, ok := strings.CutPrefix(word, marker); ok {
		return !strings.ContainsAny(rest, " \t")
	}
	return distance(strings.ToLower(word), strings.ToLower(marker), 1) <= 1
}
