// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

type jsonReport struct {
	FormatVersion string           `json:"format_version"`
	Valid         bool             `json:"valid"`
	ErrorCount    int              `json:"error_count"`
	WarningCount  int              `json:"warning_count"`
	Diagnostics   []jsonDiagnostic `json:"diagnostics"`
}

type jsonDiagnostic struct {
	Severity string        `json:"severity"`
	Code     string        `json:"code,omitempty"`
	Summary  string        `json:"summary"`
	Detail   string        `json:"detail,omitempty"`
	Label    string        `json:"label,omitempty"`
	Range    *jsonRange    `json:"range,omitempty"`
	Snippet  *jsonSnippet  `json:"snippet,omitempty"`
	Related  []jsonRelated `json:"related,omitempty"`
	Help     []string      `json:"help,omitempty"`
	URL      string        `json:"url,omitempty"`
}

type jsonRange struct {
	Filename string  `json:"filename"`
	Start    jsonPos `json:"start"`
	End      jsonPos `json:"end"`
}

type jsonPos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

type jsonSnippet struct {
	Context        string      `json:"context,omitempty"`
	Code           string      `json:"code"`
	StartLine      int         `json:"start_line"`
	HighlightStart int         `json:"highlight_start"`
	HighlightEnd   int         `json:"highlight_end"`
	Values         []jsonValue `json:"values,omitempty"`
}

type jsonValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type jsonRelated struct {
	Range jsonRange `json:"range"`
	Text  string    `json:"text"`
}

// WriteJSON prints one object with every finding, for programs.
func WriteJSON(w io.Writer, ds Diagnostics, files Files) error {
	errors, warnings := ds.Count()
	report := jsonReport{
		FormatVersion: "1",
		Valid:         errors == 0,
		ErrorCount:    errors,
		WarningCount:  warnings,
		Diagnostics:   []jsonDiagnostic{},
	}
	for _, d := range ds.Sorted() {
		report.Diagnostics = append(report.Diagnostics, toJSON(d, files))
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

func toJSON(d *Diagnostic, files Files) jsonDiagnostic {
	out := jsonDiagnostic{
		Severity: d.Severity.String(),
		Summary:  d.Summary,
		Detail:   strings.Join(d.Notes, "\n"),
		Label:    d.Label,
		Help:     d.Help,
		URL:      d.URL,
	}
	if d.Code != 0 {
		out.Code = d.Code.String()
	}
	if d.Subject.Filename != "" {
		r := toJSONRange(d.Subject)
		out.Range = &r
		out.Snippet = toJSONSnippet(d, files)
	}
	for _, r := range d.Related {
		out.Related = append(out.Related, jsonRelated{Range: toJSONRange(r.Range), Text: r.Text})
	}
	return out
}

func toJSONRange(r hcl.Range) jsonRange {
	return jsonRange{
		Filename: r.Filename,
		Start:    jsonPos{Line: r.Start.Line, Column: r.Start.Column, Byte: r.Start.Byte},
		End:      jsonPos{Line: r.End.Line, Column: r.End.Column, Byte: r.End.Byte},
	}
}

// mostSnippet bounds the code of a snippet: a file may be one very long line.
const mostSnippet = 2000

func toJSONSnippet(d *Diagnostic, files Files) *jsonSnippet {
	line, start, ok := files.line(d.Subject.Filename, d.Subject.Start.Line)
	if !ok {
		return nil
	}
	from := clamp(d.Subject.Start.Byte-start, len(line))
	to := len(line)
	if d.Subject.End.Line == d.Subject.Start.Line {
		to = max(from, clamp(d.Subject.End.Byte-start, len(line)))
	}
	if len(line) > mostSnippet {
		a := clamp(from-mostSnippet/4, len(line))
		b := min(len(line), a+mostSnippet)
		line, from, to = line[a:b], from-a, min(to, b)-a
	}
	s := &jsonSnippet{
		Context:        files.block(d.Subject),
		Code:           line,
		StartLine:      d.Subject.Start.Line,
		HighlightStart: from,
		HighlightEnd:   to,
	}
	for _, v := range d.Values {
		s.Values = append(s.Values, jsonValue{Name: v.Name, Value: v.Text})
	}
	return s
}

// WriteShort prints one line for each finding, in the form that editors and CI problem matchers know.
func WriteShort(w io.Writer, ds Diagnostics) error {
	b := bufio.NewWriter(w)
	for _, d := range ds.Sorted() {
		b.WriteString(d.short() + "\n") //nolint:errcheck // Flush gives the error.
	}
	return b.Flush()
}
