// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
)

// reader is a tool that reads memories. There is none that changes anything or sees another file.
type reader struct {
	m    *Memory
	spec model.ToolSpec
	do   func(ctx context.Context, m *Memory, args readerArgs) (string, *tool.Error, error)
}

type readerArgs struct {
	Path  string `json:"path"`
	Words string `json:"words"`
}

var _ tool.Recovering = (*reader)(nil)

func schemaOf(name, about string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{%q:{"type":"string","description":%q}},"required":[%q],"additionalProperties":false}`, name, about, name))
}

// readers are the tools of the agent that merges.
func (m *Memory) readers() []tool.Tool {
	fn := func(name, about string, params json.RawMessage, do func(context.Context, *Memory, readerArgs) (string, *tool.Error, error)) tool.Tool {
		return &reader{m: m, do: do, spec: model.ToolSpec{Kind: model.ToolFunction, Name: name, Description: about, Parameters: params, Strict: true}}
	}
	return []tool.Tool{
		fn("list_memory", "List the files of the memory.", json.RawMessage(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`), listMemory),
		fn("read_memory", "Read a file of the memory.", schemaOf("path", "As list_memory gives it."), readMemory),
		fn("search_memory", "Find the lines of the memory that hold a text, in any case.", schemaOf("words", "The text."), searchMemory),
	}
}

func (r *reader) Spec() model.ToolSpec { return r.spec }

// Recovers says that to read again does no harm.
func (*reader) Recovers() {}

func (r *reader) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var args readerArgs
	if bad := tool.DecodeArguments(call.Arguments, &args); bad != nil {
		return tool.Result{Error: bad}, nil
	}
	text, bad, err := r.do(ctx, r.m, args)
	return tool.Result{Text: bounded(text, maxText), Error: bad}, err
}

// readable are the files that the tools show.
func (m *Memory) readable(ctx context.Context) ([]string, error) {
	all, err := m.list(ctx, m.Layout.Memories)
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, ".md") }), err
}

func listMemory(ctx context.Context, m *Memory, _ readerArgs) (string, *tool.Error, error) {
	names, err := m.readable(ctx)
	return strings.Join(names, "\n"), nil, err
}

func readMemory(ctx context.Context, m *Memory, args readerArgs) (string, *tool.Error, error) {
	names, err := m.readable(ctx)
	if err != nil {
		return "", nil, err
	}
	name := path.Clean(args.Path)
	if !slices.Contains(names, name) {
		return "", &tool.Error{Code: tool.CodeArguments, Message: fmt.Sprintf("there is no file %q in the memory", args.Path), Hint: "list_memory lists them"}, nil
	}
	text, _, err := m.read(ctx, path.Join(m.Layout.Memories, name))
	return string(text), nil, err
}

func searchMemory(ctx context.Context, m *Memory, args readerArgs) (string, *tool.Error, error) {
	words := strings.ToLower(strings.TrimSpace(args.Words))
	if words == "" {
		return "", &tool.Error{Code: tool.CodeArguments, Message: `argument "words" is empty`}, nil
	}
	names, err := m.readable(ctx)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	for _, name := range names {
		text, _, err := m.read(ctx, path.Join(m.Layout.Memories, name))
		if err != nil {
			return "", nil, err
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if n++; strings.Contains(strings.ToLower(line), words) {
				fmt.Fprintf(&b, "%s:%d: %s\n", name, n, strings.TrimSpace(line))
			}
		}
	}
	if b.Len() == 0 {
		return "nothing was found", nil, nil
	}
	return b.String(), nil, nil
}
