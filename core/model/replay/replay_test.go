// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/model/replay"
)

const script = `# a comment
{"berth_transcript": 1, "model": "m"}

{"say": "look", "calls": [{"tool": "exec_command", "args": {"cmd": "ls"}}, {"tool": "apply_patch", "input": "*** Begin Patch"}]}
{"expect": ["a.txt"], "say": "done"}
`

var tools = []model.ToolSpec{{Kind: model.ToolFunction, Name: "exec_command"}, {Kind: model.ToolCustom, Name: "apply_patch"}}

func play(t *testing.T, m model.Model, items []model.Item, tools []model.ToolSpec) (*model.Response, error) {
	t.Helper()
	var res *model.Response
	for ev, err := range m.Stream(t.Context(), &model.Request{Items: items, Tools: tools}) {
		if err != nil {
			return nil, err
		}
		if d, ok := ev.(model.Done); ok {
			res = d.Response
		}
	}
	return res, nil
}

func parse(t *testing.T, s string) *replay.Transcript {
	t.Helper()
	tr, err := replay.Parse(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var user = model.Item{Type: model.ItemMessage, Raw: json.RawMessage(`{"type":"message","role":"user","content":"hi"}`)}

func output(text string) model.Item {
	b, _ := json.Marshal(map[string]string{"type": "function_call_output", "call_id": "call_1_1", "output": text})
	return model.Item{Type: model.ItemFunctionCallOutput, Raw: b}
}

func TestPlay(t *testing.T) {
	m := replay.New(parse(t, script))
	items := []model.Item{user}
	res, err := play(t, m, items, tools)
	if err != nil {
		t.Fatal(err)
	}
	var types []model.ItemType
	for _, it := range res.Items {
		types = append(types, it.Type)
	}
	if d := cmp.Diff([]model.ItemType{model.ItemMessage, model.ItemFunctionCall, model.ItemCustomToolCall}, types); d != "" {
		t.Fatal(d)
	}
	items = append(append(items, res.Items...), output("a.txt b.txt"))
	if res, err = play(t, m, items, tools); err != nil || !strings.Contains(string(res.Items[0].Raw), "done") {
		t.Fatalf("%v, %v", res, err)
	}
	// A fresh model goes on where the transcript in the request is.
	if res, err = play(t, replay.New(parse(t, script)), items, tools); err != nil || !strings.Contains(string(res.Items[0].Raw), "done") {
		t.Fatalf("%v, %v", res, err)
	}
	_, err = play(t, m, append(items, res.Items...), tools)
	var me *model.Error
	if !errors.As(err, &me) || me.Kind != model.ErrReplay || !strings.Contains(me.Message, "ends after 2 turns") {
		t.Fatalf("%v", err)
	}
}

// A transcript that does not fit what the tools gave stops.
func TestExpect(t *testing.T) {
	m := replay.New(parse(t, script))
	res, err := play(t, m, []model.Item{user}, tools)
	if err != nil {
		t.Fatal(err)
	}
	_, err = play(t, m, append(append([]model.Item{user}, res.Items...), output("nothing here")), tools)
	if err == nil || !strings.Contains(err.Error(), `expects the tools to have answered "a.txt"`) {
		t.Fatalf("%v", err)
	}
}

// Free input becomes the argument of a function where the provider has no custom tools.
func TestInputAsFunction(t *testing.T) {
	res, err := play(t, replay.New(parse(t, script)), []model.Item{user}, []model.ToolSpec{{Kind: model.ToolFunction, Name: "apply_patch"}})
	if err != nil {
		t.Fatal(err)
	}
	var call struct{ Arguments string }
	if err := json.Unmarshal(res.Items[2].Raw, &call); err != nil || call.Arguments != `{"patch":"*** Begin Patch"}` {
		t.Fatalf("%s, %v", res.Items[2].Raw, err)
	}
}

// What was recorded plays the same.
func TestRecord(t *testing.T) {
	var file bytes.Buffer
	rec, err := replay.NewRecorder(replay.New(parse(t, script)), "m", &file)
	if err != nil {
		t.Fatal(err)
	}
	run := func(m model.Model) []model.Item {
		items := []model.Item{user}
		for range 2 {
			res, err := play(t, m, items, tools)
			if err != nil {
				t.Fatal(err)
			}
			items = append(append(items, res.Items...), output("a.txt"))
		}
		return items
	}
	first := run(rec)
	if d := cmp.Diff(first, run(replay.New(parse(t, file.String())))); d != "" {
		t.Error(d)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "empty",
		`{"say": "x"}`:                  "line 1: it is no transcript",
		"{\"berth_transcript\": 2}":     "it is no transcript",
		"{\"berth_transcript\": 1}\n{}": `line 2: a turn needs`,
		"{\"berth_transcript\": 1}\n{\"sya\": \"x\"}": `unknown field "sya"`,
		"{\"berth_transcript\": 1}\nnonsense":         "line 2",
	} {
		if _, err := replay.Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(script)
	f.Fuzz(func(t *testing.T, s string) {
		tr, err := replay.Parse(strings.NewReader(s))
		if err != nil {
			return
		}
		for i := range tr.Turns {
			if _, err := tr.Turns[i].Response(i, tools); err != nil && !strings.Contains(err.Error(), "line") {
				t.Fatal(err)
			}
		}
	})
}
