// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"encoding/json"
	"regexp"

	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

var serverOwn = []string{"extends", "remove", "command", "env", "cwd", "run_in", "url", "headers", "server_url"}

func (d *decoder) server(v *spec.MCPServer, r read.Reader, l string) {
	kind := r.Node().Labels[0]
	*v = spec.MCPServer{
		Kind: kind, Label: l, Command: r.Strings("command"), Env: r.SecretMap("env"), Cwd: r.String("cwd"),
		URL: r.String("url"), Headers: r.SecretMap("headers"), Options: r.Fields(serverOwn...), Pos: r.Pos(),
	}
	if kind == "stdio" {
		v.RunIn = r.String("run_in")
		d.program(r)
	}
	if kind == "hosted" {
		v.URL = r.String("server_url")
	}
	for _, b := range []string{"retry", "tool_filter", "approval"} {
		if x := r.Block(b); x.OK() {
			v.Options[b] = x.Nested()
		}
	}
}

// program reports an empty command.
func (d *decoder) program(r read.Reader) {
	a := r.Node().Attr("command")
	if a != nil && !a.Bad && !a.Later && len(r.Strings("command")) == 0 {
		d.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "command is empty").Labelf("name a program"))
	}
}

var toolOwn = []string{
	"description", "parameters", "strict", "needs_approval", "timeout", "on_timeout", "defer_loading", "enabled",
	"input_guardrails", "output_guardrails", "server",
}

func (d *decoder) tool(v *spec.Tool, r read.Reader, l string) {
	kind := r.Node().Labels[0]
	*v = spec.Tool{
		Kind: kind, Label: l, Description: chomp(r.String("description")), Parameters: r.JSON("parameters"), Strict: r.BoolPtr("strict"),
		Timeout: r.Duration("timeout"), OnTimeout: r.String("on_timeout"), DeferLoading: r.Bool("defer_loading"), Enabled: r.Expr("enabled"),
		InputGuards: many[spec.Guardrail](d, r, "input_guardrails"), OutputGuards: many[spec.Guardrail](d, r, "output_guardrails"),
		Body: r.Fields(toolOwn...), Pos: r.Pos(),
	}
	if r.Later("needs_approval") {
		v.ApprovalExpr = r.Expr("needs_approval")
	} else {
		v.NeedsApproval = r.Bool("needs_approval")
	}
	for _, b := range []string{"config", "user_location", "ranking"} {
		if x := r.Block(b); x.OK() {
			v.Body[b] = x.Nested()
		}
	}
	if kind == "mcp" {
		if s := one[spec.MCPServer](d, r, "server"); s != nil {
			v.Body["server"] = s
		}
	}
	if kind == "command" {
		d.program(r)
	}
	if kind != "hosted" && kind != "mcp" && v.Description == "" && !r.Has("description") {
		d.add(diag.Warnf(diag.MissingArgument, r.Node().Header, "tool %q has no description", l).
			Labelf("the model chooses tools by their descriptions"))
	}
	d.stages(r, "input_guardrails", "tool_input")
	d.stages(r, "output_guardrails", "tool_output")
	d.hosted(r, kind)
}

// hosted reports attributes of another hosted tool.
func (d *decoder) hosted(r read.Reader, kind string) {
	if kind != "hosted" || !r.Has("type") {
		return
	}
	of := map[string]string{
		"allowed_domains": "web_search", "search_context_size": "web_search", "external_access": "web_search", "user_location": "web_search",
		"vector_store_ids": "file_search", "max_results": "file_search", "include_results": "file_search", "filters": "file_search", "ranking": "file_search",
		"container": "code_interpreter", "model": "image_generation", "size": "image_generation", "quality": "image_generation", "background": "image_generation",
	}
	typ := r.String("type")
	for _, a := range r.Node().Sorted() {
		if want := of[a.Name]; want != "" && want != typ && typ != "" {
			d.add(diag.Errorf(diag.Conflicting, a.NameRange, "%q is for %s", a.Name, want).Labelf("this tool is %s", typ))
		}
	}
	for _, b := range r.Node().Blocks {
		if want := of[b.Type]; want != "" && want != typ && typ != "" {
			d.add(diag.Errorf(diag.Conflicting, b.Header, "%q is for %s", b.Type, want).Labelf("this tool is %s", typ))
		}
	}
}

// stages reports guardrails of another stage.
func (d *decoder) stages(r read.Reader, name, stage string) {
	a := r.Node().Attr(name)
	if a == nil {
		return
	}
	for i, n := range a.Targets {
		if n.Labels[0] != stage {
			d.add(diag.Errorf(diag.WrongReference, read.Item(a.Expr, i), "guardrail of stage %q where stage %q is needed", n.Labels[0], stage).
				Labelf("it checks something else").Relate(n.Header, "declared here"))
		}
	}
}

func (d *decoder) guardrail(v *spec.Guardrail, r read.Reader, l string) {
	n := r.Node()
	*v = spec.Guardrail{
		Stage: n.Labels[0], Label: l, Agent: one[spec.Agent](d, r, "agent"), Tripwire: r.Expr("tripwire"), Regex: r.String("regex"),
		Require: r.String("require"), Command: r.Strings("command"), Target: r.String("target"), Go: r.String("go"),
		Message: chomp(r.String("message")), Parallel: r.BoolPtr("parallel"), OnTrip: r.String("on_trip"), Pos: r.Pos(),
	}
	for name, belongs := range map[string]string{"tripwire": "agent", "require": "regex", "target": "command"} {
		a := n.Attr(name)
		switch {
		case a != nil && n.Attr(belongs) == nil:
			d.add(diag.Errorf(diag.Conflicting, a.NameRange, "%q is for guardrails with %q", name, belongs).Labelf("it has no effect here"))
		case a == nil && name == "tripwire" && n.Attr("agent") != nil && n.Attrs["tripwire"] == nil && !n.Misspelt["tripwire"]:
			d.add(diag.Errorf(diag.MissingArgument, n.Header, "missing required argument").Labelf(`"tripwire" is required with "agent"`))
		}
	}
	if a := n.Attr("parallel"); a != nil && v.Stage != "input" {
		d.add(diag.Errorf(diag.Conflicting, a.NameRange, `"parallel" is for stage "input"`).Labelf("this is stage %q", v.Stage))
	}
	if a := n.Attr("on_trip"); a != nil && v.OnTrip == "reject" && v.Stage != "tool_input" && v.Stage != "tool_output" {
		d.add(diag.Errorf(diag.Conflicting, a.Expr.Range(), `"reject" is for tool stages`).Labelf("this is stage %q", v.Stage))
	}
	d.regex(r, "regex")
	d.program(r)
}

// regex reports a regular expression that does not compile.
func (d *decoder) regex(r read.Reader, name string) {
	a := r.Node().Attr(name)
	if a == nil || a.Bad || a.Later {
		return
	}
	if text := r.String(name); text != "" {
		if _, err := regexp.Compile(text); err != nil {
			d.add(diag.Errorf(diag.PatternMismatch, a.Expr.Range(), "%q is no regular expression", name).Labelf("%v", err))
		}
	}
}

func (d *decoder) outputSchema(v *spec.OutputSchema, r read.Reader, l string) {
	*v = spec.OutputSchema{
		Label: l, Schema: r.JSON("type"), Strict: r.Bool("strict"), Description: chomp(r.String("description")), Retry: r.Int("retry"), Pos: r.Pos(),
	}
	a := r.Node().Attr("json_schema")
	if a == nil || a.Bad {
		return
	}
	raw := []byte(r.String("json_schema"))
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		d.add(diag.Errorf(diag.PatternMismatch, a.Expr.Range(), "json_schema is no JSON object").Labelf("%v", err))
		return
	}
	v.Schema = raw
}

// chomp takes line ends off the end of a text.
func chomp(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '\n' || s[len(s)-1] == '\r') {
		s = s[:len(s)-1]
	}
	return s
}
