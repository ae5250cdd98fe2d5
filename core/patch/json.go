// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"fmt"
	"strings"
)

// operation is one operation in the JSON forms: that of the provider's own tool, and those that models write when
// the tool is a function.
type operation struct {
	Type      string `json:"type"`
	Path      string `json:"path"`
	Diff      string `json:"diff"`
	MoveTo    string `json:"move_to"`
	MoveToAlt string `json:"moveTo"`

	Patch      string          `json:"patch"`
	Input      string          `json:"input"`
	Operation  *operation      `json:"operation"`
	Operations []operation     `json:"operations"`
	Command    json.RawMessage `json:"command"` // ["apply_patch", text]
}

// ParseJSON reads a patch from JSON: {"patch": text}, one operation {"type": "create_file" | "update_file" |
// "delete_file", "path", "diff", "move_to"}, {"operation"}, {"operations": […]}, or an array of operations.
func ParseJSON(text string) (*Patch, error) {
	var ops []operation
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		if err := json.Unmarshal([]byte(text), &ops); err != nil {
			return nil, &Error{Kind: Syntax, Message: "the arguments are not valid JSON", Err: err}
		}
	} else {
		var op operation
		if err := json.Unmarshal([]byte(text), &op); err != nil {
			return nil, &Error{Kind: Syntax, Message: "the arguments are not valid JSON", Err: err}
		}
		if t := op.text(); t != "" {
			return Parse(t)
		}
		ops = op.flatten()
	}
	p := &Patch{}
	for i := range ops {
		s, err := ops[i].section()
		if err != nil {
			return nil, err
		}
		p.Sections = append(p.Sections, *s)
	}
	if len(p.Sections) == 0 {
		return nil, &Error{Kind: Syntax, Message: `there is no operation: give "patch", or "type" and "path"`}
	}
	return p, nil
}

func (o *operation) text() string {
	if o.Patch != "" {
		return o.Patch
	}
	if o.Input != "" {
		return o.Input
	}
	var argv []string
	if json.Unmarshal(o.Command, &argv) == nil && len(argv) > 0 {
		return argv[len(argv)-1]
	}
	return ""
}

func (o *operation) flatten() []operation {
	switch {
	case o.Operation != nil:
		return []operation{*o.Operation}
	case o.Operations != nil:
		return o.Operations
	case o.Type == "" && o.Path == "":
		return nil
	default:
		return []operation{*o}
	}
}

func (o *operation) section() (*Section, error) {
	fail := func(format string, args ...any) error {
		return &Error{Kind: Syntax, Path: o.Path, Message: fmt.Sprintf(format, args...)}
	}
	if strings.TrimSpace(o.Path) == "" {
		return nil, fail(`"path" is missing`)
	}
	s := &Section{Path: o.Path, MoveTo: o.MoveTo + o.MoveToAlt}
	switch o.Type {
	case "create_file":
		s.Op = OpAdd
		diff, final := strings.CutSuffix(o.Diff, "\n")
		if diff == "" && !final {
			break
		}
		for i, l := range splitPatch(diff) {
			rest, ok := strings.CutPrefix(l, "+")
			if !ok {
				return nil, fail(`line %d of the diff of a new file starts with "+", this one is %q`, i+1, clip(l))
			}
			s.Lines = append(s.Lines, rest)
		}
	case "update_file":
		s.Op = OpUpdate
		hunks, err := ParseHunks(o.Diff)
		if err != nil {
			return nil, withPath(err, o.Path)
		}
		if len(hunks) == 0 && s.MoveTo == "" {
			return nil, fail(`"diff" changes nothing`)
		}
		s.Hunks = hunks
	case "delete_file":
		s.Op = OpDelete
	default:
		return nil, fail(`"type" is %q; it is create_file, update_file or delete_file`, o.Type)
	}
	return s, nil
}
