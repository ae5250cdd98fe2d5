// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// ParseItem makes an item of its JSON. It keeps the bytes, on one line, and does not look further than the type.
func ParseItem(raw []byte) (Item, error) {
	var head struct {
		Type ItemType `json:"type"`
		Role string   `json:"role"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Item{}, fmt.Errorf("transcript item: %w", err)
	}
	if head.Type == "" && head.Role != "" {
		head.Type = ItemMessage // the short form of a message has no type
	}
	if head.Type == "" {
		return Item{}, fmt.Errorf("transcript item: it has no type")
	}
	if bytes.ContainsAny(raw, "\n\r") {
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			return Item{}, fmt.Errorf("transcript item: %w", err)
		}
		raw = line.Bytes()
	}
	return Item{Type: head.Type, Raw: raw}, nil
}

// WithoutID gives the item without its "id", for providers that did not store it. An item that has none is kept as it is.
func (it Item) WithoutID() Item {
	var members map[string]json.RawMessage
	if json.Unmarshal(it.Raw, &members) != nil || members["id"] == nil {
		return it
	}
	delete(members, "id")
	return newItem(it.Type, members)
}

// Message makes a message item of a role that is not the model's: user, developer or system.
func Message(role, text string) Item {
	return newItem(ItemMessage, message{Type: ItemMessage, Role: role, Content: []part{{Type: partInput, Text: &text}}})
}

// Assistant makes a message item as a model gives it. Providers that do not speak the Responses API use it.
func Assistant(text string) Item {
	return newItem(ItemMessage, message{
		Type: ItemMessage, Role: "assistant", Status: "completed", Content: []part{{Type: partOutput, Text: &text}},
	})
}

// CallItem makes the item of a call as a model gives it. Providers that do not speak the Responses API use it.
func CallItem(c ToolCall) Item {
	switch c.Kind {
	case ToolCustom:
		return newItem(ItemCustomToolCall, call{
			Type: ItemCustomToolCall, CallID: c.CallID, Name: c.Name, Input: &c.Arguments,
		})
	case ToolPatch:
		return newItem(ItemPatchCall, call{
			Type: ItemPatchCall, CallID: c.CallID, Operation: json.RawMessage(c.Arguments), Status: "completed",
		})
	default:
		return newItem(ItemFunctionCall, call{
			Type: ItemFunctionCall, CallID: c.CallID, Name: c.Name, Arguments: &c.Arguments, Status: "completed",
		})
	}
}

// Output is the result of a tool call as the model sees it.
type Output struct {
	Text   string
	Images []OutputImage
	// Failed marks a failure where the item has a place for it.
	Failed bool
}

// OutputImage is a picture in an [Output].
type OutputImage struct {
	MIME   string
	Data   []byte
	Detail string // low, high, auto or empty
}

// OutputItem makes the item that answers a call. Pictures become a note for a model that cannot see them.
func OutputItem(c ToolCall, out Output, support Support) Item {
	text := out.Text
	var content any
	switch {
	case len(out.Images) == 0:
		content = text
	case support.ImageToolOutput && c.Kind != ToolPatch:
		parts := make([]part, 0, 1+len(out.Images))
		if text != "" {
			parts = append(parts, part{Type: partInput, Text: &text})
		}
		for _, im := range out.Images {
			parts = append(parts, part{
				Type:     "input_image",
				ImageURL: "data:" + im.MIME + ";base64," + base64.StdEncoding.EncodeToString(im.Data),
				Detail:   im.Detail,
			})
		}
		content = parts
	default:
		for _, im := range out.Images {
			if text != "" {
				text += "\n"
			}
			text += fmt.Sprintf("[a picture was left out: %s, %d bytes; this model takes no pictures from tools]",
				im.MIME, len(im.Data))
		}
		content = text
	}
	o := callOutput{CallID: c.CallID, Output: content}
	switch c.Kind {
	case ToolCustom:
		o.Type = ItemCustomToolCallOutput
	case ToolPatch:
		o.Type, o.Status = ItemPatchCallOutput, "completed"
		if out.Failed {
			o.Status = "failed"
		}
	default:
		o.Type = ItemFunctionCallOutput
	}
	return newItem(o.Type, o)
}

// ToolCall reads the call out of an item; ok is false when the item is none that the harness performs. An item that is
// a call and cannot be read gives a call with what could be read.
func (it Item) ToolCall() (c ToolCall, ok bool) {
	switch it.Type {
	case ItemFunctionCall, ItemCustomToolCall, ItemPatchCall:
	default:
		return ToolCall{}, false
	}
	var in call
	_ = json.Unmarshal(it.Raw, &in) // what is missing shows as empty
	c = ToolCall{CallID: in.CallID, Name: in.Name}
	switch it.Type {
	case ItemCustomToolCall:
		c.Kind, c.Arguments = ToolCustom, deref(in.Input)
	case ItemPatchCall:
		c.Kind, c.Name, c.Arguments = ToolPatch, string(ToolPatch), string(in.Operation)
	default:
		c.Kind, c.Arguments = ToolFunction, deref(in.Arguments)
	}
	return c, true
}

// Text is the text of a message that the model wrote, or of a tool's output; refusals do not count. It is empty for
// all other items.
func (it Item) Text() string {
	var in struct {
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
	}
	switch it.Type {
	case ItemMessage, ItemFunctionCallOutput, ItemCustomToolCallOutput, ItemPatchCallOutput:
	default:
		return ""
	}
	if json.Unmarshal(it.Raw, &in) != nil {
		return ""
	}
	body := in.Content
	if it.Type != ItemMessage {
		body = in.Output
	}
	if len(body) == 0 {
		return ""
	}
	if body[0] == '"' {
		var s string
		_ = json.Unmarshal(body, &s) // it was checked as part of the item
		return s
	}
	var parts []part
	if json.Unmarshal(body, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		switch p.Type {
		case partInput, partOutput, "text":
			b.WriteString(deref(p.Text))
		}
	}
	return b.String()
}

const (
	partInput  = "input_text"
	partOutput = "output_text"
)

type message struct {
	Type    ItemType `json:"type"`
	Role    string   `json:"role"`
	Status  string   `json:"status,omitempty"`
	Content []part   `json:"content"`
}

type part struct {
	Type     string  `json:"type"`
	Text     *string `json:"text,omitempty"`
	ImageURL string  `json:"image_url,omitempty"`
	Detail   string  `json:"detail,omitempty"`
}

type call struct {
	Type      ItemType        `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name,omitempty"`
	Arguments *string         `json:"arguments,omitempty"`
	Input     *string         `json:"input,omitempty"`
	Operation json.RawMessage `json:"operation,omitempty"`
	Status    string          `json:"status,omitempty"`
}

type callOutput struct {
	Type   ItemType `json:"type"`
	CallID string   `json:"call_id"`
	Status string   `json:"status,omitempty"`
	Output any      `json:"output"`
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// newItem encodes an item. It leaves <, > and & as they are, since code is full of them.
func newItem(t ItemType, v any) Item {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Only an invalid operation in a patch call can get here; it is kept as a string.
		if c, ok := v.(call); ok {
			op, _ := json.Marshal(string(c.Operation))
			c.Operation = op
			return newItem(t, c)
		}
	}
	return Item{Type: t, Raw: bytes.TrimRight(b.Bytes(), "\n")}
}

// JSON is the call's arguments as a JSON value: a text that is none becomes a string.
func (c ToolCall) JSON() json.RawMessage {
	if json.Valid([]byte(c.Arguments)) {
		return json.RawMessage(c.Arguments)
	}
	raw, _ := json.Marshal(c.Arguments) // a string always can be
	return raw
}
