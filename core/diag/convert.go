// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Converter turns the HCL library's diagnostics into ours: our codes and words, names nearby as suggestions, the
// opening of what was not closed, and none that only follows from another.
type Converter struct {
	Files Files
	// Schema is that of the body which was read; nil when it was not a body.
	Schema *hcl.BodySchema
	// Header is where a missing argument is reported; zero = where the library reports it.
	Header hcl.Range
	// Functions and Names are what an expression may use.
	Functions []string
	Names     []string
	// JSON says that the file is in JSON syntax, for syntax errors.
	JSON bool
}

// Convert gives our form of the library's diagnostics.
func (c Converter) Convert(in hcl.Diagnostics) Diagnostics {
	in = c.tidy(in)
	var out Diagnostics
	misspelt := map[string]bool{}
	for _, d := range in {
		n := c.one(d)
		if n.Code == UnsupportedArgument || n.Code == UnsupportedBlock {
			if name := c.suggestName(c.Files.bytesOf(n.Subject)); name != "" {
				misspelt[name] = true
			}
		}
		out = append(out, n)
	}
	// A missing argument is not told when a misspelt one beside it was meant.
	kept := out[:0]
	for i, d := range out {
		if d.Code == MissingArgument && misspelt[quoted(in[i].Detail)] {
			continue
		}
		kept = append(kept, d)
	}
	return kept
}

func (c Converter) one(d *hcl.Diagnostic) *Diagnostic {
	if n, ok := d.Extra.(notClosed); ok {
		return n.Diagnostic
	}
	out := &Diagnostic{Severity: Error, Code: UnexpectedToken, Summary: lowerFirst(d.Summary)}
	if d.Severity == hcl.DiagWarning {
		out.Severity = Warning
	}
	if d.Subject != nil {
		out.Subject = *d.Subject
	}
	if c.JSON {
		out.Code = JSONSyntax
	}
	detail := c.redact(d, strings.TrimSpace(d.Detail))
	out.Values = c.valuesOf(d)
	if known, ok := c.known(d, out, detail); ok {
		return known
	}
	out.Code = codeOf(d, out.Code)
	if detail != "" {
		out.Notes = append(out.Notes, detail)
	}
	return out
}

// known rewrites the library's diagnostics that users meet most.
func (c Converter) known(d *hcl.Diagnostic, out *Diagnostic, detail string) (*Diagnostic, bool) {
	switch s := d.Summary; {
	case s == "Unsupported argument" || s == "Extraneous JSON object property" || s == "Invalid attribute name":
		return c.unsupportedArgument(out, detail), true
	case s == "Unsupported block type":
		return c.unsupportedBlock(out, detail), true
	case strings.HasPrefix(s, "Unexpected ") && strings.HasSuffix(s, " block"):
		out.Code = UnsupportedBlock
		out.Summary = fmt.Sprintf("unsupported block type %q", quoted(s))
		out.Label = "no blocks are allowed here; write " + quoted(s) + " = { ... }"
	case s == "Missing required argument":
		out.Code = MissingArgument
		out.Summary = "missing required argument"
		out.Label = fmt.Sprintf("%q is required here", quoted(detail))
		if c.Header.Filename != "" {
			out.Subject = c.Header
		}
	case strings.HasPrefix(s, "Missing ") && strings.Contains(detail, "blocks must have"):
		out.Code = WrongLabels
		if d.Context != nil {
			out.Subject = trimmed(c.Files, *d.Context)
		}
		out.Notes = append(out.Notes, detail)
	case strings.HasPrefix(s, "Extraneous label for"):
		out.Code = WrongLabels
		out.Notes = append(out.Notes, detail)
	case s == "Attribute redefined" || s == "Duplicate argument":
		out.Code = DuplicateName
		name := quoted(detail)
		out.Summary = fmt.Sprintf("argument %q is set twice", name)
		out.Label = "each argument may be set only once"
		if r, ok := placeIn(detail, out.Subject, c.Files); ok {
			out.Relate(r, "first set here")
		}
	case s == "Call to unknown function":
		out.Code = UnknownFunction
		name := c.Files.bytesOf(out.Subject)
		if name == "" {
			name = quoted(detail)
		}
		out.Summary = fmt.Sprintf("no function named %q", Printable(name))
		if near := Suggest(name, c.Functions); near != "" {
			out.Label = fmt.Sprintf("did you mean %q?", near)
		}
	case s == "Unknown variable":
		out.Code = UnknownRoot
		name := quoted(detail)
		out.Summary = fmt.Sprintf("unknown name %q", name)
		if near := Suggest(name, c.Names); near != "" {
			out.Label = fmt.Sprintf("did you mean %q?", near)
		}
	case s == "Invalid single-argument block definition":
		out.Code = OneLineBlock
		out.Summary = "a block on one line can have one argument only"
		out.Label = "write the block over several lines, one argument on each"
		if strings.Contains(detail, "must also be closed on the same line") {
			out.Summary = "a block that starts with an argument on its line must end on that line"
			out.Label = "put the argument on a line of its own"
		}
	case s == "Invalid character encoding":
		out.Code = Encoding
		out.Summary = "file is not UTF-8"
		out.Label = fmt.Sprintf("at byte offset %d", out.Subject.Start.Byte)
		out.Helpf("save the file as UTF-8")
	case s == "Invalid character" && strings.HasPrefix(detail, "Single quotes"):
		out.Summary = "single quotes are not valid"
		out.Label = `use double quotes (") around text`
	case s == "Invalid string literal" && strings.HasPrefix(detail, "Template sequences"):
		out.Summary = "a label cannot be an expression"
		out.Label = "labels are plain text"
		out.Helpf(`a dynamic block has "labels", which are expressions`)
	case s == "Invalid expression" && strings.TrimSpace(c.Files.bytesOf(out.Subject)) == "":
		out.Summary = "a value is missing"
		out.Label = "an expression is needed here"
	case s == "Argument or block definition required" && c.Files.nextIs(out.Subject, ':'):
		out.Summary = "a colon is not valid here"
		out.Label = "write the equals sign: " + c.Files.bytesOf(out.Subject) + " = ..."
	case s == "Unclosed configuration block":
		out.Code = NotClosed
		out.Summary = "block is not closed"
		out.Label = "no matching } follows"
		out.Helpf("a brace may be missing, or one too many may stand, further down")
	default:
		return out, false
	}
	return out, true
}

func (c Converter) unsupportedArgument(out *Diagnostic, detail string) *Diagnostic {
	name := strings.Trim(c.Files.bytesOf(out.Subject), `"`)
	if name == "" {
		name = quoted(detail)
	}
	out.Code = UnsupportedArgument
	out.Summary = fmt.Sprintf("unsupported argument %q", Printable(name))
	out.Label = c.nameLabel(name, true)
	return out
}

func (c Converter) unsupportedBlock(out *Diagnostic, detail string) *Diagnostic {
	name := strings.Trim(c.Files.bytesOf(out.Subject), `"`)
	if name == "" {
		name = quoted(detail)
	}
	out.Code = UnsupportedBlock
	out.Summary = fmt.Sprintf("unsupported block type %q", Printable(name))
	out.Label = c.nameLabel(name, false)
	return out
}

// nameLabel says what was probably meant by a name that the schema does not have.
func (c Converter) nameLabel(name string, argument bool) string {
	if c.Schema == nil {
		return ""
	}
	if argument && hasBlock(c.Schema, name) {
		return "write " + name + " { ... } without the equals sign"
	}
	if !argument && hasAttribute(c.Schema, name) {
		return "write " + name + " = { ... }"
	}
	if near := c.suggestName(name); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}

func (c Converter) suggestName(name string) string {
	if c.Schema == nil {
		return ""
	}
	name = strings.Trim(name, `"`)
	var names []string
	for _, a := range c.Schema.Attributes {
		names = append(names, a.Name)
	}
	for _, b := range c.Schema.Blocks {
		names = append(names, b.Type)
	}
	return Suggest(name, names)
}

func hasAttribute(s *hcl.BodySchema, name string) bool {
	for _, a := range s.Attributes {
		if a.Name == name {
			return true
		}
	}
	return false
}

func hasBlock(s *hcl.BodySchema, name string) bool {
	for _, b := range s.Blocks {
		if b.Type == name {
			return true
		}
	}
	return false
}

// codeOf sorts the diagnostics of evaluation, which have an expression, from those of the grammar.
func codeOf(d *hcl.Diagnostic, syntax Code) Code {
	if call, ok := hcl.DiagnosticExtra[hclsyntax.FunctionCallDiagExtra](d); ok {
		var own interface{ Code() Code }
		if errors.As(call.FunctionCallError(), &own) {
			return own.Code()
		}
	}
	switch d.Summary {
	case "Error in function call":
		return FunctionFailed
	case "Invalid function argument", "Not enough function arguments", "Too many function arguments",
		"Invalid expanding argument value":
		return FunctionArguments
	case "Function calls not allowed":
		return FunctionArguments
	case "Unsupported attribute", "Missing map element", "Invalid index", "Attempt to index null value",
		"Attempt to get attribute from null value":
		return UnknownField
	case "Expression makes too much":
		return OutOfRange
	case "Variables not allowed":
		return RunTimeName
	}
	if d.Expression != nil {
		return WrongType
	}
	return syntax
}

var (
	inQuotes  = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	linePlace = regexp.MustCompile(`at (\S+):(\d+),(\d+)-`)
)

// quoted is the first text in quotes.
func quoted(s string) string {
	m := inQuotes.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	return m[1]
}

// placeIn finds the first place that the library printed into a text, as a range in the same file.
func placeIn(detail string, near hcl.Range, files Files) (hcl.Range, bool) {
	m := linePlace.FindStringSubmatch(detail)
	if m == nil {
		return hcl.Range{}, false
	}
	var line, column int
	if _, err := fmt.Sscan(m[2], &line); err != nil {
		return hcl.Range{}, false
	}
	if _, err := fmt.Sscan(m[3], &column); err != nil {
		return hcl.Range{}, false
	}
	text, start, ok := files.line(near.Filename, line)
	if !ok {
		return hcl.Range{}, false
	}
	cs := cells(text)
	if column < 1 || column > len(cs) {
		return hcl.Range{}, false
	}
	r := hcl.Range{Filename: near.Filename}
	r.Start = hcl.Pos{Line: line, Column: column, Byte: start + cs[column-1].start}
	n := near.End.Byte - near.Start.Byte
	r.End = hcl.Pos{Line: line, Column: column + n, Byte: r.Start.Byte + n}
	return r, true
}

// nextIs reports whether c is the first character after r.
func (f Files) nextIs(r hcl.Range, c byte) bool {
	file := f[r.Filename]
	if file == nil || r.End.Byte > len(file.Bytes) {
		return false
	}
	rest := strings.TrimLeft(string(file.Bytes[r.End.Byte:min(len(file.Bytes), r.End.Byte+64)]), " \t")
	return rest != "" && rest[0] == c
}

// trimmed takes an opening brace and the space before it off a block's header.
func trimmed(files Files, r hcl.Range) hcl.Range {
	text := files.bytesOf(r)
	short := strings.TrimRight(strings.TrimSuffix(text, "{"), " \t")
	n := len(text) - len(short)
	if n == 0 || short == "" {
		return r
	}
	r.End.Byte -= n
	r.End.Column -= n
	return r
}

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	second, _ := utf8.DecodeRuneInString(s[n:])
	if unicode.IsUpper(second) {
		return s
	}
	return string(unicode.ToLower(r)) + s[n:]
}
