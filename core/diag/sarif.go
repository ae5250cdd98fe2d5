// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"cmp"
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

const sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"

type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool       sarifTool     `json:"tool"`
	ColumnKind string        `json:"columnKind"`
	Results    []sarifResult `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID string `json:"id"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId,omitempty"`
	Level     string          `json:"level"`
	Message   sarifMessage    `json:"message"`
	Locations []sarifLocation `json:"locations,omitempty"`
	Related   []sarifLocation `json:"relatedLocations,omitempty"`
}

type sarifMessage struct {
	Text string `json:"text"`
}

type sarifLocation struct {
	ID       int           `json:"id,omitempty"`
	Message  *sarifMessage `json:"message,omitempty"`
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   sarifRegion   `json:"region"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	StartLine   int `json:"startLine"`
	StartColumn int `json:"startColumn"`
	EndLine     int `json:"endLine"`
	EndColumn   int `json:"endColumn"`
}

// WriteSARIF prints a SARIF 2.1.0 log, which code hosts show beside the lines. The version is berth's.
func WriteSARIF(w io.Writer, ds Diagnostics, files Files, version string) error {
	run := sarifRun{
		Tool:       sarifTool{Driver: sarifDriver{Name: "berth", Version: version, Rules: []sarifRule{}}},
		ColumnKind: "unicodeCodePoints",
		Results:    []sarifResult{},
	}
	for _, d := range ds.Sorted() {
		run.Results = append(run.Results, toSARIF(d, files))
		if rule := (sarifRule{ID: d.Code.String()}); d.Code != 0 && !slices.Contains(run.Tool.Driver.Rules, rule) {
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
		}
	}
	slices.SortFunc(run.Tool.Driver.Rules, func(a, b sarifRule) int { return cmp.Compare(a.ID, b.ID) })
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{run}})
}

func toSARIF(d *Diagnostic, files Files) sarifResult {
	parts := []string{d.Summary}
	if d.Label != "" {
		parts = append(parts, d.Label)
	}
	parts = append(parts, d.Notes...)
	for _, h := range d.Help {
		parts = append(parts, "help: "+h)
	}
	out := sarifResult{Level: d.Severity.String(), Message: sarifMessage{Text: strings.Join(parts, "\n")}}
	if d.Code != 0 {
		out.RuleID = d.Code.String()
	}
	if d.Subject.Filename != "" {
		out.Locations = []sarifLocation{{Physical: files.sarifPlace(d.Subject)}}
	}
	for i, r := range d.Related {
		out.Related = append(out.Related, sarifLocation{
			ID: i + 1, Message: &sarifMessage{Text: r.Text}, Physical: files.sarifPlace(r.Range),
		})
	}
	return out
}

// sarifPlace turns columns from grapheme clusters into code points, which is what SARIF counts.
func (f Files) sarifPlace(r hcl.Range) sarifPhysical {
	column := func(p hcl.Pos) int {
		line, start, ok := f.line(r.Filename, p.Line)
		if !ok {
			return max(1, p.Column)
		}
		return len([]rune(line[:clamp(p.Byte-start, len(line))])) + 1
	}
	uri := (&url.URL{Path: filepath.ToSlash(r.Filename)}).String()
	return sarifPhysical{
		Artifact: sarifArtifact{URI: uri},
		Region: sarifRegion{
			StartLine: max(1, r.Start.Line), StartColumn: column(r.Start),
			EndLine: max(1, r.End.Line), EndColumn: column(r.End),
		},
	}
}
