// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"context"
	"encoding/json"

	"github.com/berth-dev/berth/core/model"
)

// Func makes a tool of a Go function. Parameters is the JSON Schema of its arguments, nil = it has none; the function gets
// them as JSON ([DecodeArguments] reads them) and gives what the model reads. An error goes to the model too.
func Func(name, description string, parameters json.RawMessage, f func(ctx context.Context, arguments string) (string, error)) Tool {
	if parameters == nil {
		parameters = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	return &function{model.ToolSpec{Kind: model.ToolFunction, Name: name, Description: description, Parameters: parameters}, f}
}

type function struct {
	spec model.ToolSpec
	f    func(ctx context.Context, arguments string) (string, error)
}

func (t *function) Spec() model.ToolSpec { return t.spec }

func (t *function) Call(ctx context.Context, c Call) (Result, error) {
	text, err := t.f(ctx, c.Arguments)
	return Result{Text: text}, err
}
