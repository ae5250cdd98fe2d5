// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/model"
)

func TestParseItem(t *testing.T) {
	for raw, want := range map[string]model.ItemType{
		`{"type":"message","role":"user","content":"x"}`:       model.ItemMessage,
		`{"role":"user","content":"x"}`:                        model.ItemMessage,
		`{"type":"web_search_call","id":"ws_1"}`:               "web_search_call",
		"{\n  \"type\": \"reasoning\",\n  \"text\": \"a\\n\"}": model.ItemReasoning,
	} {
		it, err := model.ParseItem([]byte(raw))
		if err != nil || it.Type != want || strings.Contains(string(it.Raw), "\n") {
			t.Errorf("ParseItem(%q) = %s %q, %v", raw, it.Type, it.Raw, err)
		}
		var a, b any
		if json.Unmarshal([]byte(raw), &a) != nil || json.Unmarshal(it.Raw, &b) != nil || !cmp.Equal(a, b) {
			t.Errorf("ParseItem(%q) changed the value: %q", raw, it.Raw)
		}
	}
	for _, raw := range []string{``, `{}`, `[]`, `"x"`, `{"type":""}`, `{"type":"message"`, `{"type":7}`} {
		if it, err := model.ParseItem([]byte(raw)); err == nil {
			t.Errorf("ParseItem(%q) = %v", raw, it)
		}
	}
}

// A call that is made and read is the same call; its arguments keep every byte.
func TestCallItemRoundTrip(t *testing.T) {
	for _, c := range []model.ToolCall{
		{CallID: "c1", Kind: model.ToolFunction, Name: "look", Arguments: `{"a":"<b> & \"c\""}`},
		{CallID: "c2", Kind: model.ToolFunction, Name: "look", Arguments: `{broken`},
		{CallID: "c3", Kind: model.ToolFunction, Name: "look"},
		{CallID: "c4", Kind: model.ToolCustom, Name: "patch", Arguments: "*** Begin\n+<x>\n"},
		{CallID: "c5", Kind: model.ToolPatch, Name: "apply_patch", Arguments: `{"type":"create_file","path":"a","diff":"+<x>\n"}`},
	} {
		it := model.CallItem(c)
		if strings.ContainsAny(string(it.Raw), "\n") || !json.Valid(it.Raw) {
			t.Errorf("the item of %v is %q", c, it.Raw)
		}
		again, err := model.ParseItem(it.Raw)
		if err != nil || again.Type != it.Type {
			t.Errorf("%q parses as %v: %v", it.Raw, again, err)
		}
		if got, ok := it.ToolCall(); !ok || got != c {
			t.Errorf("%q reads as %+v, want %+v", it.Raw, got, c)
		}
		out := model.OutputItem(c, model.Output{Text: "done <1>", Failed: c.CallID == "c5"}, model.Support{})
		if out.Text() != "done <1>" || !strings.Contains(string(out.Raw), `"call_id":"`+c.CallID+`"`) {
			t.Errorf("output %q", out.Raw)
		}
		if _, ok := out.ToolCall(); ok {
			t.Errorf("the output %q is taken for a call", out.Raw)
		}
	}
	bad := model.CallItem(model.ToolCall{CallID: "c", Kind: model.ToolPatch, Arguments: `{no json`})
	if !json.Valid(bad.Raw) {
		t.Errorf("a broken operation gives %q", bad.Raw)
	}
}

func TestPatchOutputSaysWhetherItFailed(t *testing.T) {
	c := model.ToolCall{CallID: "c", Kind: model.ToolPatch, Name: "apply_patch"}
	for failed, want := range map[bool]string{
		false: `{"type":"apply_patch_call_output","call_id":"c","status":"completed","output":"x"}`,
		true:  `{"type":"apply_patch_call_output","call_id":"c","status":"failed","output":"x"}`,
	} {
		if got := string(model.OutputItem(c, model.Output{Text: "x", Failed: failed}, model.Support{}).Raw); got != want {
			t.Errorf("failed %t: %s", failed, got)
		}
	}
}

func TestText(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"},{"type":"output_text","text":"b"}]}`: "ab",
		`{"type":"message","role":"user","content":"plain"}`: "plain",
		`{"type":"message","role":"user"}`:                   "",
		`{"type":"message","role":"user","content":7}`:       "",
		`{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"},{"type":"input_image"}]}`: "x",
		`{"type":"reasoning","content":[{"type":"output_text","text":"secret"}]}`:                                          "",
		`{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}`:                                               "",
	} {
		it, err := model.ParseItem([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := it.Text(); got != want {
			t.Errorf("%s has the text %q, want %q", raw, got, want)
		}
	}
	if got := model.Message("user", "<a>\n\"b\"").Text(); got != "<a>\n\"b\"" {
		t.Errorf("a message keeps %q", got)
	}
	if got := model.Assistant("x").Text(); got != "x" {
		t.Errorf("an answer keeps %q", got)
	}
}

func TestWithoutID(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"reasoning","id":"rs_1","encrypted_content":"<a&b>"}`: `{"encrypted_content":"<a&b>","type":"reasoning"}`,
		`{"type":"reasoning","summary":[]}`:                            `{"type":"reasoning","summary":[]}`,
	} {
		it, err := model.ParseItem([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := it.WithoutID(); string(got.Raw) != want || got.Type != model.ItemReasoning {
			t.Errorf("%s becomes %s", raw, got.Raw)
		}
	}
}

func FuzzItem(f *testing.F) {
	f.Add([]byte(`{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}`))
	f.Add([]byte(`{"type":"message","content":[{"type":"output_text","text":null}]}`))
	f.Add([]byte(`{"type":"apply_patch_call","operation":{"type":"x"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		it, err := model.ParseItem(raw)
		if err != nil {
			return
		}
		if strings.ContainsAny(string(it.Raw), "\n\r") {
			t.Fatalf("%q is not one line", it.Raw)
		}
		it.Text()
		if c, ok := it.ToolCall(); ok {
			model.CallItem(c)
			model.OutputItem(c, model.Output{Text: "x"}, model.Support{})
		}
	})
}
