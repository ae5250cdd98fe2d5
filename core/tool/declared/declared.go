// SPDX-License-Identifier: Apache-2.0

// Package declared makes tools of a project's tool blocks: commands, in the sandbox or on the host, and HTTP requests.
//
// A command is a list of arguments, and no shell sees it: what the model says cannot become anything but an argument.
// Output is bounded. Arguments are checked against the tool's parameters before anything is done. Secrets that the files
// give to a command or a request are taken out of what comes back.
package declared

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// DefaultTimeout bounds a call of a tool that says nothing about it.
const DefaultTimeout = time.Minute

// Runner runs commands: a sandbox, or the host.
type Runner interface {
	Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error)
}

// Sandbox is what tools that work in the sandbox need of it.
type Sandbox interface {
	Runner
	Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error)
	driver.FileSystem
}

// Env is where tools work.
type Env struct {
	Sandbox Sandbox // nil = there is none
	Host    Runner  // for target "host"
	Dir     string  // in the sandbox, where relative directories start; empty = the workspace root
	User    string  // in the sandbox; empty = its default
	Vars    spec.RunVars
}

// New makes the tool of a block. The kinds are command and http.
func New(t *spec.Tool, env Env) (tool.Tool, error) {
	b, err := newBase(t, env)
	if err != nil {
		return nil, err
	}
	switch t.Kind {
	case "command":
		if b.onHost() {
			return &command{base: b, where: env.Host}, nil
		}
		if env.Sandbox == nil {
			return nil, b.errorf("it works in a sandbox, and its agent has none").WithHint(`set sandboxed = true in the agent, or target = "host" in the tool`)
		}
		return &sandboxCommand{command{base: b, where: env.Sandbox}}, nil
	case "http":
		r, err := newRequester(b)
		if err != nil {
			return nil, err
		}
		if r.safe() {
			return &safeRequester{r}, nil
		}
		return r, nil
	}
	return nil, b.errorf("tools of this kind are made elsewhere")
}

// Plan makes a tool that can be described and not called.
func Plan(t *spec.Tool) (tool.Tool, error) {
	return New(t, Env{Sandbox: nowhere{}})
}

// nowhere is a sandbox that is not there.
type nowhere struct{ Sandbox }

// base is what all kinds have.
type base struct {
	*spec.Tool
	env    Env
	schema *jsonschema.Resolved
	spec   model.ToolSpec
}

// noParameters is the schema of a tool that says nothing about its arguments.
const noParameters = `{"type":"object","properties":{},"required":[],"additionalProperties":false}`

func newBase(t *spec.Tool, env Env) (base, error) {
	b := base{Tool: t, env: env}
	raw := t.Parameters
	if len(raw) == 0 {
		raw = json.RawMessage(noParameters)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return b, b.errorf("its parameters are no JSON Schema: %v", err)
	}
	if s.Type != "object" {
		return b, b.errorf("its parameters are of the type %q", s.Type).WithHint("write object({ NAME = TYPE })")
	}
	var err error
	if b.schema, err = s.Resolve(nil); err != nil {
		return b, b.errorf("its parameters are no JSON Schema: %v", err)
	}
	strict := Strict(raw)
	if t.Strict != nil && *t.Strict && !strict {
		return b, b.errorf("it is strict, and some of its parameters may be left out or are of any type").
			WithHint("leave strict out, or give every attribute a type without optional()")
	}
	if t.Strict != nil {
		strict = *t.Strict
	}
	b.spec = model.ToolSpec{Kind: model.ToolFunction, Name: t.Label, Description: t.Description, Parameters: raw, Strict: strict}
	return b, nil
}

func (b *base) errorf(format string, args ...any) *errs.Error {
	at := ""
	if b.Pos.File != "" {
		at = fmt.Sprintf("%s:%d: ", b.Pos.File, b.Pos.Line)
	}
	return errs.New(errs.ConfigInvalid, "%stool %s.%s: %s", at, b.Kind, b.Label, fmt.Sprintf(format, args...))
}

// Spec tells the model about the tool.
func (b *base) Spec() model.ToolSpec { return b.spec }

// TimeLimit is the block's.
func (b *base) TimeLimit() (limit time.Duration, endRun bool) {
	limit = b.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	return limit, b.OnTimeout == "fail"
}

// NeedsApproval is what the block says. Arguments that it cannot look at need one.
func (b *base) NeedsApproval(arguments string) bool {
	if b.ApprovalExpr == nil {
		return b.Tool.NeedsApproval
	}
	vars, bad := b.vars(arguments)
	if bad != nil {
		return true
	}
	v, err := b.ApprovalExpr.Eval(vars)
	needed, ok := v.(bool)
	return err != nil || !ok || needed
}

// vars checks arguments and makes the names of expressions of them.
func (b *base) vars(arguments string) (spec.RunVars, *tool.Error) {
	vars := b.env.Vars
	vars.Params = map[string]any{}
	if bad := tool.DecodeArguments(arguments, &vars.Params); bad != nil {
		return vars, bad
	}
	if vars.Params == nil {
		vars.Params = map[string]any{}
	}
	if err := b.schema.Validate(vars.Params); err != nil {
		return vars, tool.Misfit(err)
	}
	return vars, nil
}

// secrets are the secrets of one call, for what comes back.
type secrets struct{ redact.Set }

// reveal gives an attribute that is a map of texts, with its secrets, and remembers those.
func (b *base) reveal(ctx context.Context, name string, vars spec.RunVars, seen *secrets) (map[string]string, error) {
	out := map[string]string{}
	switch v := b.Body[name].(type) {
	case nil:
	case map[string]string:
		return v, nil
	case map[string]value.Secret:
		for key, s := range v {
			text, found, err := s.Lookup(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s of tool %s: %w", name, b.Label, err)
			}
			if found {
				out[key] = text
			}
			if s.Name() != "" {
				seen.Add(text)
			}
		}
	case spec.Expr:
		got, err := v.Eval(vars)
		if err != nil {
			return nil, err
		}
		m, ok := got.(map[string]any)
		if !ok {
			return nil, b.errorf("%s is no map", name)
		}
		for key, e := range m {
			if e != nil {
				out[key] = fmt.Sprint(e)
			}
		}
	}
	return out, nil
}

// text evaluates an attribute that is a text, or any value, which becomes JSON. An attribute that is not there, or null,
// is not found.
func (b *base) text(name string, vars spec.RunVars) (text string, found bool, err error) {
	v := b.Body[name]
	if e, ok := v.(spec.Expr); ok {
		if v, err = e.Eval(vars); err != nil {
			return "", false, err
		}
	}
	switch v := v.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	}
	raw, err := json.Marshal(v)
	return string(raw), true, err
}

// word gives an attribute that is one of a few words.
func (b *base) word(name, without string) string {
	if s, ok := b.Body[name].(string); ok && s != "" {
		return s
	}
	return without
}

func (b *base) onHost() bool { return b.word("target", "sandbox") == "host" }

// Strict says whether a schema has the form that providers follow exactly: every object closed, and all that it has
// required.
func Strict(schema json.RawMessage) bool {
	var s any
	dec := json.NewDecoder(bytes.NewReader(schema))
	return dec.Decode(&s) == nil && strict(s)
}

func strict(v any) bool {
	s, ok := v.(map[string]any)
	if !ok {
		return false
	}
	switch s["type"] {
	case "object":
		if s["additionalProperties"] != false {
			return false
		}
		props, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		if len(required) != len(props) {
			return false
		}
		for _, p := range props {
			if !strict(p) {
				return false
			}
		}
		return true
	case "array":
		return s["prefixItems"] == nil && s["uniqueItems"] == nil && strict(s["items"])
	case "string", "number", "integer", "boolean":
		return true
	}
	return false
}
