// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/patch"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

const patchDescription = `Adds, changes, moves and deletes text files with one patch:

*** Begin Patch
*** Add File: path
+each line of the new file
*** Update File: path
*** Move to: new path (optional)
@@ a line that stands before the place (optional)
 unchanged line
-removed line
+added line
*** Delete File: path
*** End Patch

Paths are relative to the working directory. "*** End of File" behind a hunk puts it at the end of the file.`

const patchSchema = `{"type":"object","required":["patch"],"properties":{
"patch":{"type":"string","description":"The patch, from *** Begin Patch to *** End Patch."}}}`

// patchTool is apply_patch in one of its three forms.
type patchTool struct {
	*Filesystem
	kind model.ToolKind
}

func (t patchTool) Spec() model.ToolSpec {
	s := model.ToolSpec{Kind: t.kind, Name: "apply_patch", Description: patchDescription}
	switch t.kind {
	case model.ToolCustom:
		s.Grammar = &model.Grammar{Syntax: "lark", Definition: patch.Grammar}
	case model.ToolFunction:
		s.Parameters = json.RawMessage(patchSchema)
	case model.ToolPatch, model.ToolHosted:
	}
	return s
}

func (t patchTool) parse(arguments string) (*patch.Patch, error) {
	if t.kind == model.ToolCustom || strings.HasPrefix(strings.TrimSpace(arguments), "*") {
		return patch.Parse(arguments) // a model that was offered a function may write the text all the same
	}
	return patch.ParseJSON(arguments)
}

// About names every path that a patch touches, also those that files are moved to.
func (t patchTool) About(arguments string) (tool.Subject, error) {
	p, err := t.parse(arguments)
	if err != nil {
		return tool.Subject{}, err
	}
	var s tool.Subject
	for _, sec := range p.Sections {
		s.Paths = append(s.Paths, t.path(sec.Path))
		if sec.MoveTo != "" {
			s.Paths = append(s.Paths, t.path(sec.MoveTo))
		}
	}
	return s, nil
}

func (t patchTool) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	p, err := t.parse(call.Arguments)
	if err != nil {
		return refused(err), nil
	}
	res, err := patch.Apply(ctx, tree{t.Filesystem}, p)
	if ctx.Err() != nil {
		return tool.Result{}, context.Cause(ctx)
	}
	if err != nil {
		return refused(err), nil
	}
	return done(res), nil
}

func refused(err error) tool.Result {
	kind := patch.KindOf(err)
	e := &tool.Error{Code: string(kind), Message: err.Error(), Retryable: true}
	switch kind {
	case patch.NoMatch, patch.Ambiguous:
		e.Hint = "no file was changed; mend these hunks and send the whole patch again"
	case patch.Changed:
		e.Hint = "no file was changed; read the file again and make the patch anew"
	case patch.Access:
		e.Retryable = false
		if code := errs.CodeOf(err); code != errs.Internal {
			e.Code = string(code)
		}
	case patch.Syntax, patch.Conflict:
		e.Hint = "no file was changed"
	}
	return tool.Result{Error: e, Summary: "refused: " + firstLine(e.Message)}
}

func done(res *patch.Result) tool.Result {
	var b strings.Builder
	b.WriteString("Patch applied:\n")
	files := make([]map[string]any, 0, len(res.Changes))
	added, removed := 0, 0
	for _, c := range res.Changes {
		letter := map[patch.Op]string{patch.OpAdd: "A", patch.OpUpdate: "M", patch.OpDelete: "D"}[c.Op]
		fmt.Fprintf(&b, "%s %s", letter, c.Path)
		if c.MoveTo != "" {
			fmt.Fprintf(&b, " -> %s", c.MoveTo)
		}
		b.WriteByte('\n')
		for _, n := range c.Notes {
			fmt.Fprintf(&b, "  note on hunk %d, line %d: %s\n", n.Hunk, n.Line, n.Message)
		}
		added, removed = added+c.Added, removed+c.Removed
		f := map[string]any{"op": string(c.Op), "path": c.Path, "added": c.Added, "removed": c.Removed}
		if c.MoveTo != "" {
			f["move_to"] = c.MoveTo
		}
		files = append(files, f)
	}
	noun := "files"
	if len(res.Changes) == 1 {
		noun = "file"
	}
	return tool.Result{
		Text: b.String(), Detail: map[string]any{"files": files},
		Summary: fmt.Sprintf("%d %s changed, +%d -%d", len(res.Changes), noun, added, removed),
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
