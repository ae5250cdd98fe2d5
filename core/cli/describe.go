// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
)

func (a *app) showDriver(b catalog.Binary, d driver.Description) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "driver\t%s %s\n", b.Source, d.Version)
	fmt.Fprintf(w, "file\t%s\n", b.Path)
	if b.SHA256 != "" {
		fmt.Fprintf(w, "\tsha256:%s\n", b.SHA256)
	}
	fmt.Fprintf(w, "\t%s: %s\n", b.How, b.Reason)
	if d.Docs != "" {
		fmt.Fprintf(w, "docs\t%s\n", d.Docs)
	}
	fmt.Fprintln(w, "\nWhat it enforces on this machine:")
	for _, i := range d.Isolation {
		fmt.Fprintf(w, "  %s\t%s\n", i.Axis, i.Statement)
		if i.Gap != "" {
			fmt.Fprintf(w, "\tnot stronger: %s\n", i.Gap)
		}
	}
	fmt.Fprintln(w, "\nWhat it can do:")
	for _, f := range d.Features {
		fmt.Fprintf(w, "  %s\n", f)
	}
	for _, u := range d.Unimplementable {
		fmt.Fprintf(w, "  never %s\t%s\n", u.Feature, u.Reason)
	}
	if d.ProcessConfig != nil {
		fmt.Fprintln(w, "\nconfig { } of a driver block:")
		showBlock(w, "  ", &d.ProcessConfig.Block)
	}
	if d.SandboxConfig != nil {
		fmt.Fprintln(w, "\nconfig { } of a sandbox block:")
		showBlock(w, "  ", &d.SandboxConfig.Block)
	}
	return w.Flush()
}

// showBlock lists the arguments of a block, and the blocks in it.
func showBlock(w io.Writer, indent string, b *schema.Block) {
	for i := range b.Attributes {
		at := &b.Attributes[i]
		typ, usual := cmp.Or(at.Unit, at.Type.String()), ""
		switch {
		case at.Default != nil:
			usual = " (default " + literal(at.Default) + ")"
		case at.Required:
			usual = " (required)"
		}
		doc := at.Doc
		if len(at.OneOf) > 0 {
			doc += " One of " + literal(at.OneOf) + "."
		}
		if at.Immutable {
			doc += " It cannot change while a sandbox lives."
		}
		fmt.Fprintf(w, "%s%s\t%s%s\t%s\n", indent, at.Name, typ, usual, doc)
	}
	for i := range b.Blocks {
		n := &b.Blocks[i]
		fmt.Fprintf(w, "%s%s { }\t%s\t%s\n", indent, strings.Join(append([]string{n.Type}, n.Labels...), " "), "block", n.Block.Doc)
		showBlock(w, indent+"  ", &n.Block)
	}
}

// literal is a value of a schema as a file would say it.
func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
