// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/stream"
)

// maxOutput bounds the text of a result; half of it is kept of the beginning, half of the end.
const maxOutput = 64 << 10

// remote is a tool of a server.
type remote struct {
	*server
	is       remoteTool
	spec     model.ToolSpec
	schema   *jsonschema.Resolved // nil = it cannot be read, and the server checks
	optional optional             // members that strictness made nullable
}

func newTool(s *server, t remoteTool, name string) tool.Tool {
	r := &remote{server: s, is: t}
	r.spec = model.ToolSpec{Kind: model.ToolFunction, Name: name, Description: t.description, Parameters: t.schema}
	var schema jsonschema.Schema
	if err := json.Unmarshal(t.schema, &schema); err == nil {
		r.schema, _ = schema.Resolve(nil) // without it the server checks
	}
	if s.opts.strict {
		if raw, opt, ok := strict(t.schema); ok {
			r.spec.Parameters, r.spec.Strict, r.optional = raw, true, opt
		}
	}
	return r
}

// Spec tells the model about the tool.
func (r *remote) Spec() model.ToolSpec { return r.spec }

// Server is the server's label.
func (r *remote) Server() string { return r.Label }

// NeedsApproval is what the server's block says.
func (r *remote) NeedsApproval(string) bool {
	return matches(r.opts.require, r.is.name) && !matches(r.opts.never, r.is.name)
}

// Call calls the tool.
func (r *remote) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	args := map[string]any{}
	if bad := tool.DecodeArguments(call.Arguments, &args); bad != nil {
		return tool.Result{Error: bad}, nil
	}
	if args == nil { // some models write null for no arguments
		args = map[string]any{}
	}
	r.optional.prune(args)
	if r.schema != nil {
		if err := r.schema.Validate(args); err != nil {
			return tool.Result{Error: tool.Misfit(err)}, nil
		}
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return tool.Result{}, err
	}
	res, err := r.call(ctx, r.is.name, raw, call.Progress)
	switch {
	case err != nil && ctx.Err() != nil:
		return tool.Result{}, context.Cause(ctx)
	case errors.Is(err, errLost):
		return tool.Result{Error: &tool.Error{
			Code: "mcp_connection_lost", Message: err.Error(), Hint: "find out whether the call was made before you make it again; the next call reaches the server anew",
		}}, nil
	case errors.Is(err, errs.ExecTimeout):
		return tool.Result{Error: &tool.Error{Code: "timeout", Message: err.Error(), Hint: "the call may still be going on at the server"}}, nil
	case err != nil:
		return tool.Failed(err), nil
	}
	return r.result(res), nil
}

// result makes a tool's result of what a server gave.
func (r *remote) result(res *sdk.CallToolResult) tool.Result {
	var out tool.Result
	var text strings.Builder
	add := func(s string) {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(s)
	}
	structured := r.structured(res)
	if structured == "" {
		for _, c := range res.Content {
			part, picture := content(c)
			if picture != nil && len(picture.Data) <= tool.MaxImageBytes {
				out.Images = append(out.Images, *picture)
				continue
			}
			add(part)
		}
	} else {
		add(structured)
	}
	out.Text = r.bounded(text.String())
	out.Summary = fmt.Sprintf("%d bytes", text.Len())
	if len(out.Images) > 0 {
		out.Summary += fmt.Sprintf(", %d pictures", len(out.Images))
	}
	if res.IsError {
		if out.Text == "" {
			out.Text = "the tool failed and says no more"
		}
		return tool.Result{Error: &tool.Error{Code: "tool_failed", Message: out.Text}}
	}
	return out
}

// structured is the structured content where it is wanted and there is some.
func (r *remote) structured(res *sdk.CallToolResult) string {
	if !r.opts.structured || res.IsError || res.StructuredContent == nil {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(res.StructuredContent) != nil {
		return ""
	}
	switch text := strings.TrimSpace(b.String()); text {
	case "null", "{}", "[]":
		return ""
	default:
		return text
	}
}

// bounded cuts a text in the middle and takes secrets out.
func (r *remote) bounded(text string) string {
	text = r.seen.String(text)
	if len(text) <= maxOutput {
		return text
	}
	h := &stream.HeadTail{Head: maxOutput / 2, Tail: maxOutput / 2}
	_, _ = h.Write([]byte(text)) // never fails
	return strings.ToValidUTF8(h.String(), "")
}

// content gives a part of a result as text, or as a picture that models take.
func content(c sdk.Content) (string, *tool.Image) {
	switch c := c.(type) {
	case *sdk.TextContent:
		return c.Text, nil
	case *sdk.ImageContent:
		if tool.Picture(c.MIMEType) {
			return fmt.Sprintf("[a picture was left out: %s, %d bytes]", c.MIMEType, len(c.Data)), &tool.Image{MIME: c.MIMEType, Data: c.Data}
		}
		return fmt.Sprintf("[a picture was left out: %s, %d bytes, a type that models do not take]", c.MIMEType, len(c.Data)), nil
	case *sdk.AudioContent:
		return fmt.Sprintf("[sound was left out: %s, %d bytes]", c.MIMEType, len(c.Data)), nil
	case *sdk.EmbeddedResource:
		if c.Resource == nil {
			return "[an empty resource]", nil
		}
		switch {
		case c.Resource.Blob == nil:
			return fmt.Sprintf("[resource %s]\n%s", c.Resource.URI, c.Resource.Text), nil
		case tool.Picture(c.Resource.MIMEType):
			return fmt.Sprintf("[a picture was left out: %s, %d bytes]", c.Resource.URI, len(c.Resource.Blob)), &tool.Image{MIME: c.Resource.MIMEType, Data: c.Resource.Blob}
		}
		return fmt.Sprintf("[resource %s: %s, %d bytes]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob)), nil
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return fmt.Sprintf("[content of an unknown type: %v]", err), nil
	}
	return string(raw), nil
}
