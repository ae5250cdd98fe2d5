// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/berth-dev/berth/core/model"
)

// version is written into the first line of a transcript.
const version = 1

// maxLine bounds one turn.
const maxLine = 64 << 20

// Transcript is what a model will say, turn by turn.
type Transcript struct {
	Model string // of the recording; for people
	Turns []Turn
}

// header is the first line.
type header struct {
	Version int    `json:"berth_transcript"`
	Model   string `json:"model,omitempty"`
}

// Turn is one answer: either written, with Say and Calls, or recorded, with Items.
type Turn struct {
	// Expect are texts that the tool outputs since the turn before must hold. A replay that does not see them stops:
	// the answer would not fit what happened.
	Expect []string `json:"expect,omitempty"`
	Say    string   `json:"say,omitempty"`
	Calls  []Call   `json:"calls,omitempty"`

	// InCall is the call of an agent as a tool whose run gets the answer; empty = the outer run. Each such run has turns of
	// its own.
	InCall string `json:"in_call,omitempty"`

	ResponseID string            `json:"response_id,omitempty"`
	Items      []json.RawMessage `json:"items,omitempty"`
	Usage      *model.Usage      `json:"usage,omitempty"`

	line int
}

// Call is a tool call of a written turn. A function gets Args; a tool with free input gets Input, and when it is
// offered as a function Input becomes its argument "patch".
type Call struct {
	Tool  string          `json:"tool"`
	ID    string          `json:"id,omitempty"` // empty = made from turn and position
	Args  json.RawMessage `json:"args,omitempty"`
	Input string          `json:"input,omitempty"`
}

// Open reads a transcript from a file.
func Open(path string) (*Transcript, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("transcript: %w", err)
	}
	defer f.Close()
	t, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("transcript %s: %w", path, err)
	}
	return t, nil
}

// Parse reads a transcript: one JSON object a line. Empty lines and lines that start with "#" are left out.
func Parse(r io.Reader) (*Transcript, error) {
	t := &Transcript{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	seen := false
	for n := 1; sc.Scan(); n++ {
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if !seen {
			var h header
			if err := json.Unmarshal(line, &h); err != nil || h.Version != version {
				return nil, fmt.Errorf("line %d: it is no transcript, which begins with the line {\"berth_transcript\": %d}\n"+
					"hint: berth run --record FILE writes one", n, version)
			}
			t.Model, seen = h.Model, true
			continue
		}
		turn := Turn{line: n}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&turn); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if turn.Items == nil && turn.Say == "" && turn.Calls == nil {
			return nil, fmt.Errorf(`line %d: a turn needs "say", "calls" or "items"`, n)
		}
		t.Turns = append(t.Turns, turn)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if !seen {
		return nil, errors.New("the file is empty")
	}
	return t, nil
}

// Response makes the answer of turn number n, from 0, for a model that was offered these tools.
func (t *Turn) Response(n int, tools []model.ToolSpec) (*model.Response, error) {
	res := &model.Response{ID: t.ResponseID}
	if res.ID == "" {
		res.ID = fmt.Sprintf("resp_replay_%d", n+1)
	}
	items := t.Items
	if items == nil {
		made, err := t.items(n, tools)
		if err != nil {
			return nil, err
		}
		items = made
	}
	for _, raw := range items {
		var head struct {
			Type model.ItemType `json:"type"`
		}
		if err := json.Unmarshal(raw, &head); err != nil || head.Type == "" {
			return nil, fmt.Errorf("line %d: an item without a type", t.line)
		}
		res.Items = append(res.Items, model.Item{Type: head.Type, Raw: raw})
	}
	if t.Usage != nil {
		res.Usage = *t.Usage
	}
	res.Usage.Requests = 1
	return res, nil
}

func (t *Turn) items(n int, tools []model.ToolSpec) ([]json.RawMessage, error) {
	var out []json.RawMessage
	add := func(v any) error {
		b, err := json.Marshal(v)
		out = append(out, b)
		return err
	}
	if t.Say != "" {
		if err := add(map[string]any{
			"type": model.ItemMessage, "id": fmt.Sprintf("msg_%d", n+1), "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": t.Say, "annotations": []any{}}},
		}); err != nil {
			return nil, err
		}
	}
	for i, c := range t.Calls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", n+1, i+1)
		}
		item := map[string]any{"type": model.ItemFunctionCall, "call_id": id, "name": c.Tool, "status": "completed"}
		switch {
		case kindOf(tools, c.Tool) == model.ToolCustom:
			item["type"], item["input"] = model.ItemCustomToolCall, c.Input
		case c.Input != "":
			args, err := json.Marshal(map[string]string{"patch": c.Input})
			if err != nil {
				return nil, err
			}
			item["arguments"] = string(args)
		case c.Args == nil:
			item["arguments"] = "{}"
		default:
			item["arguments"] = string(c.Args)
		}
		if err := add(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func kindOf(tools []model.ToolSpec, name string) model.ToolKind {
	for _, t := range tools {
		if t.Name == name {
			return t.Kind
		}
	}
	return model.ToolFunction
}
