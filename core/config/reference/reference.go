// SPDX-License-Identifier: Apache-2.0

// Package reference writes the language's reference as Markdown, from the schema tree.
package reference

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/config/schema"
	mounts "github.com/berth-dev/berth/mounts/spec"
)

// Write writes the reference.
func Write(w io.Writer) error {
	p := &printer{w: w}
	p.line("# Configuration reference")
	p.line("")
	p.line("Generated from the schema by `make generate`; do not edit. See [the language](language.md) for how files,")
	p.line("variables, references and secrets work.")
	p.line("")
	p.line("**S**: may hold secrets. **R**: may use `run.*`. **H**: reaches the host, refused in untrusted projects.")
	for _, b := range schema.Root().Blocks {
		p.block(b, nil)
	}
	p.storage()
	return p.err
}

// storage writes which storage can be mounted where.
func (p *printer) storage() {
	p.line("\n## Storage\n")
	p.line("What `mount` can bring into whose sandboxes, by kind; `auto` takes the first strategy that the driver has. The other")
	p.line("drivers mount nothing yet.\n")
	p.line("| kind | %s |", strings.Join(mounts.Drivers(), " | "))
	p.line("| --- |%s", strings.Repeat(" --- |", len(mounts.Drivers())))
	for _, k := range mounts.Kinds() {
		var row strings.Builder
		row.WriteString(fmt.Sprintf("| `%s` |", k))
		for _, d := range mounts.Drivers() {
			row.WriteString(" " + or(strings.Join(mounts.Supports(d, k), ", "), "-") + " |")
		}
		p.line("%s", row.String())
	}
	p.line("\n| strategy | what it does | the credentials are in the | in this version |\n| --- | --- | --- | --- |")
	for _, s := range mounts.Strategies() {
		built := "no"
		if s.Built {
			built = "yes"
		}
		p.line("| `%s` | %s | %s | %s |", s.Name, s.Doc, s.Keys, built)
	}
	p.line("\n| kind | tools of `in_container` |\n| --- | --- |")
	for _, k := range mounts.Kinds() {
		p.line("| `%s` | %s |", k, strings.Join(mounts.Tools(k), ", "))
	}
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// block writes a block; above are the types around it.
func (p *printer) block(b *schema.Block, above []string) {
	path := append(slices.Clone(above), header(b))
	p.line("\n%s `%s`\n", strings.Repeat("#", min(2+len(above), 5)), strings.Join(path, " > "))
	doc := b.Doc
	if b.Flags&schema.Host != 0 {
		doc += " **H**"
	}
	p.line("%s%s", doc, often(b))
	for _, l := range b.Labels {
		if len(l.Enum) > 0 {
			p.line("\nThe label %q is one of %s.", l.Name, words(l.Enum))
		}
	}
	p.body(&b.Body, path)
	for _, label := range slices.Sorted(maps.Keys(b.ByLabel)) {
		extra := b.ByLabel[label]
		if len(extra.Attrs)+len(extra.Blocks) == 0 && extra.Driver == "" {
			continue
		}
		p.line("\nWith the label `%s`:", label)
		p.body(extra, append(slices.Clone(above), fmt.Sprintf("%s %q", b.Type, label)))
	}
}

func header(b *schema.Block) string {
	var s strings.Builder
	s.WriteString(b.Type)
	for _, l := range b.Labels {
		fmt.Fprintf(&s, " %q", strings.ToUpper(strings.ReplaceAll(l.Name, " ", "_")))
	}
	return s.String()
}

func often(b *schema.Block) string {
	switch {
	case b.Min > 0 && b.Max == 1:
		return " Exactly one."
	case b.Min > 0:
		return fmt.Sprintf(" At least %d.", b.Min)
	case b.Max == 1:
		return " At most one."
	default:
		return ""
	}
}

func (p *printer) body(b *schema.Body, path []string) {
	if b.Driver != "" {
		p.line("\nThe body is what the driver's schema says; see `berth driver describe NAME`.")
	}
	if b.Open && b.Free != nil {
		p.line("\nTakes any attribute: %s", b.Free.Doc)
	}
	if len(b.Attrs) > 0 {
		p.line("\n| attribute | type | default | |\n|---|---|---|---|")
		for _, a := range b.Attrs {
			p.line("| `%s` | %s | %s | %s |", a.Name, typeOf(a), usual(a), cell(about(a)))
		}
	}
	for _, group := range b.ExactlyOne {
		p.line("\nExactly one of %s.", words(group))
	}
	for _, group := range b.AtMostOne {
		p.line("\nAt most one of %s.", words(group))
	}
	for _, n := range b.Blocks {
		// A directory holds what a manifest holds; once is enough.
		if slices.ContainsFunc(path, func(s string) bool { return s == header(n) }) {
			p.line("\nMay hold `%s` blocks again.", n.Type)
			continue
		}
		p.block(n, path)
	}
}

func typeOf(a *schema.Attr) string {
	switch a.Kind {
	case schema.Duration:
		return "duration"
	case schema.Size:
		return "size"
	case schema.Ref:
		return "reference to " + strings.Join(a.Refs, ", ")
	case schema.Refs:
		return "references to " + strings.Join(a.Refs, ", ")
	case schema.RefOrString:
		return "string, or reference to " + strings.Join(a.Refs, ", ")
	case schema.Expr:
		return "expression"
	case schema.BoolOrExpr:
		return "bool or expression"
	case schema.TypeExpr:
		return "type"
	case schema.Literal:
		return "literal string"
	case schema.Names:
		return "names"
	case schema.Value:
	}
	return cell(a.Type.FriendlyNameForConstraint())
}

func usual(a *schema.Attr) string {
	switch {
	case a.Required:
		return "**required**"
	case a.DefText != "":
		return cell(a.DefText)
	case a.Default != nil:
		return fmt.Sprintf("`%v`", a.Default)
	default:
		return ""
	}
}

func about(a *schema.Attr) string {
	var s strings.Builder
	s.WriteString(a.Doc)
	if len(a.Enum) > 0 {
		s.WriteString(" One of " + words(a.Enum) + ".")
	}
	for _, f := range []struct {
		flag schema.Flags
		mark string
	}{{schema.Secret, "S"}, {schema.Runtime, "R"}, {schema.Host, "H"}} {
		if a.Has(f.flag) {
			s.WriteString(" **" + f.mark + "**")
		}
	}
	if a.Deprecated != "" {
		s.WriteString(" Deprecated: " + a.Deprecated)
	}
	return s.String()
}

func words(list []string) string {
	return "`" + strings.Join(list, "`, `") + "`"
}

// cell keeps a text from ending a table's cell.
func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ") }
