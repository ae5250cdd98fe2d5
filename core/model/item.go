// SPDX-License-Identifier: Apache-2.0

package model

import "encoding/json"

// ItemType is the "type" of a Responses API item.
type ItemType string

// The types that the harness itself understands. Others are kept and passed on.
const (
	ItemMessage              ItemType = "message"
	ItemReasoning            ItemType = "reasoning"
	ItemFunctionCall         ItemType = "function_call"
	ItemFunctionCallOutput   ItemType = "function_call_output"
	ItemCustomToolCall       ItemType = "custom_tool_call"
	ItemCustomToolCallOutput ItemType = "custom_tool_call_output"
	ItemPatchCall            ItemType = "apply_patch_call"
	ItemPatchCallOutput      ItemType = "apply_patch_call_output"
	ItemCompaction           ItemType = "compaction"
)

// Item is one entry of a transcript. It is immutable.
type Item struct {
	Type ItemType
	Raw  json.RawMessage // the whole item, as it goes to the provider
}

// ToolCall is a call that the harness has to perform.
type ToolCall struct {
	CallID    string
	Kind      ToolKind // function, custom or apply_patch
	Name      string
	Arguments string // JSON of a function, free text of a custom tool, the operation's JSON of apply_patch
}

// Role is the role of a message; empty for all other items.
func (it Item) Role() string { return it.head().Role }

// CallID is the id of a call, or of the call that an output answers; empty for all other items.
func (it Item) CallID() string { return it.head().CallID }

func (it Item) head() (h struct {
	Role   string `json:"role"`
	CallID string `json:"call_id"`
},
) {
	_ = json.Unmarshal(it.Raw, &h) // what is missing shows as empty
	return h
}
