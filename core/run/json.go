// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MarshalEvent gives an event as a JSON object whose first member, "type", names its kind.
func MarshalEvent(ev Event) ([]byte, error) { return tagged(ev.eventType(), ev) }

// MarshalEffect gives an effect as a JSON object whose first member, "type", names its kind.
func MarshalEffect(ef Effect) ([]byte, error) { return tagged(ef.effectType(), ef) }

// UnmarshalEvent reads what [MarshalEvent] wrote. Members that it does not know are ignored.
func UnmarshalEvent(data []byte) (Event, error) {
	switch t, err := tagOf(data); t {
	case "start":
		return decode[Start](data)
	case "resume":
		return decode[Resume](data)
	case "sandbox_prepared":
		return decode[SandboxPrepared](data)
	case "sandbox_failed":
		return decode[SandboxFailed](data)
	case "model_answered":
		return decode[ModelAnswered](data)
	case "model_failed":
		return decode[ModelFailed](data)
	case "tool_done":
		return decode[ToolDone](data)
	case "tool_failed":
		return decode[ToolFailed](data)
	case "tool_unsure":
		return decode[ToolUnsure](data)
	case "decided":
		return decode[Decided](data)
	case "output_checked":
		return decode[OutputChecked](data)
	case "input_checked":
		return decode[InputChecked](data)
	case "passed_on":
		return decode[PassedOn](data)
	case "pass_on_failed":
		return decode[PassOnFailed](data)
	case "tool_suspended":
		return decode[ToolSuspended](data)
	case "tick":
		return decode[Tick](data)
	case "pause":
		return decode[Pause](data)
	case "cancel":
		return decode[Cancel](data)
	default:
		if err != nil {
			return nil, fmt.Errorf("run event: %w", err)
		}
		return nil, fmt.Errorf("run event of unknown type %q", t)
	}
}

// UnmarshalEffect reads what [MarshalEffect] wrote. An executor on another machine needs it.
func UnmarshalEffect(data []byte) (Effect, error) {
	switch t, err := tagOf(data); t {
	case "persist":
		return decode[Persist](data)
	case "prepare_sandbox":
		return decode[PrepareSandbox](data)
	case "call_model":
		return decode[CallModel](data)
	case "run_tool":
		return decode[RunTool](data)
	case "ask_approval":
		return decode[AskApproval](data)
	case "answer_call":
		return decode[AnswerCall](data)
	case "check_output":
		return decode[CheckOutput](data)
	case "check_input":
		return decode[CheckInput](data)
	case "pass_on":
		return decode[PassOn](data)
	case "cancel_effects":
		return decode[CancelEffects](data)
	case "emit":
		return decode[Emit](data)
	case "finish":
		return decode[Finish](data)
	default:
		if err != nil {
			return nil, fmt.Errorf("run effect: %w", err)
		}
		return nil, fmt.Errorf("run effect of unknown type %q", t)
	}
}

func tagged(tag string, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", tag, err)
	}
	out := make([]byte, 0, len(body)+len(tag)+12)
	out = append(out, `{"type":"`...)
	out = append(out, tag...)
	out = append(out, '"')
	if !bytes.Equal(body, []byte("{}")) {
		out = append(out, ',')
	}
	return append(out, body[1:]...), nil
}

func tagOf(data []byte) (string, error) {
	var tag struct {
		Type string `json:"type"`
	}
	err := json.Unmarshal(data, &tag)
	return tag.Type, err
}

func decode[T any](data []byte) (T, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("run: %w", err)
	}
	return v, nil
}
