// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

func (d *decoder) agent(v *spec.Agent, r read.Reader, l string) {
	*v = spec.Agent{
		Label: l, Name: r.String("name"), Description: chomp(r.String("description")), HandoffDescription: chomp(r.String("handoff_description")),
		Sandboxed: r.Bool("sandboxed"), Model: d.choice(r, "model"), Settings: d.settings(r.Block("model_settings")),
		Instructions: text(r, "instructions"), Manifest: one[spec.Manifest](d, r, "manifest"), RunAs: r.String("run_as"),
		Tools: many[spec.Tool](d, r, "tools"), MCPServers: many[spec.MCPServer](d, r, "mcp_servers"),
		InputGuardrails: many[spec.Guardrail](d, r, "input_guardrails"), OutputGuardrails: many[spec.Guardrail](d, r, "output_guardrails"),
		OutputSchema: one[spec.OutputSchema](d, r, "output_schema"), ToolUseBehavior: r.String("tool_use_behavior"),
		StopAtTools: r.Strings("stop_at_tools"), ResetToolChoice: r.BoolPtr("reset_tool_choice"),
		Capabilities: d.capabilities(r), Approvals: d.approvals(r.Block("approvals")), Pos: r.Pos(),
	}
	if r.Has("base_instructions") {
		t := text(r, "base_instructions")
		v.BaseInstructions = &t
	}
	if p := r.Block("prompt"); p.OK() {
		v.Prompt = &spec.StoredPrompt{ID: p.String("id"), Version: p.String("version"), Variables: p.StringMap("variables")}
	}
	d.handoffs(v, r)
	for _, b := range r.Blocks("agent_tool") {
		v.AgentTools = append(v.AgentTools, d.agentTool(b))
	}
	if h := r.Block("hooks"); h.OK() {
		v.Hooks = map[string]string{}
		for _, name := range []string{"on_start", "on_end", "on_tool", "on_handoff"} {
			if h.Has(name) {
				v.Hooks[name] = h.String(name)
			}
		}
	}
	d.stages(r, "input_guardrails", "input")
	d.stages(r, "output_guardrails", "output")
	d.stopAt(r)
	d.plain(v, r)
}

// text reads a text and takes the newline off its end.
func text(r read.Reader, name string) spec.Text {
	t := r.Text(name)
	t.Literal = chomp(t.Literal)
	return t
}

func (d *decoder) stopAt(r read.Reader) {
	a := r.Node().Attr("stop_at_tools")
	want := r.String("tool_use_behavior") == "stop_at_tools"
	switch {
	case want && a == nil:
		d.add(diag.Errorf(diag.MissingArgument, r.Node().Attr("tool_use_behavior").Expr.Range(), "missing required argument").
			Labelf(`"stop_at_tools" says which tools`))
	case !want && a != nil:
		d.add(diag.Errorf(diag.Conflicting, a.NameRange, `"stop_at_tools" is for tool_use_behavior = "stop_at_tools"`).Labelf("it has no effect here"))
	}
}

// plain reports what only agents in a sandbox have.
func (d *decoder) plain(v *spec.Agent, r read.Reader) {
	if v.Sandboxed {
		return
	}
	n := r.Node()
	at := n.Attrs["sandboxed"]
	say := func(x *diag.Diagnostic) {
		if at != nil {
			x.Relate(at.Range, "the agent has no sandbox")
		}
		d.add(x)
	}
	for _, name := range []string{"manifest", "run_as"} {
		if a := n.Attr(name); a != nil {
			say(diag.Errorf(diag.Conflicting, a.NameRange, "%q is for agents in a sandbox", name).Labelf("remove it, or the line sandboxed = false"))
		}
	}
	caps := n.Block("capabilities")
	for _, typ := range []string{"shell", "filesystem", "skills", "memory"} {
		if c := caps.Block(typ); c != nil {
			say(diag.Errorf(diag.Conflicting, c.Header, "capability %q is for agents in a sandbox", typ).Labelf("remove it, or the line sandboxed = false"))
		}
	}
}

func (d *decoder) handoffs(v *spec.Agent, r read.Reader) {
	taken := map[*spec.Agent]bool{}
	for _, b := range r.Blocks("handoff") {
		h := &spec.Handoff{
			Agent: one[spec.Agent](d, b, "agent"), ToolName: b.String("tool_name"), Description: chomp(b.String("description")),
			Input: b.JSON("input"), InputFilter: b.String("input_filter"), History: b.String("history"), Workspace: b.String("workspace"),
			NeedsApproval: b.Bool("needs_approval"), Enabled: b.Expr("enabled"), Pos: b.Pos(),
		}
		if h.ToolName == "" {
			h.ToolName = ToolName("transfer_to_" + b.Node().Name())
		}
		if h.Agent == nil {
			continue
		}
		taken[h.Agent] = true
		if h.Agent == v {
			d.add(diag.Errorf(diag.HandoffToItself, b.Node().Attr("agent").Expr.Range(), "agent %q hands over to itself", v.Label))
		}
		v.Handoffs = append(v.Handoffs, h)
	}
	a := r.Node().Attr("handoffs")
	if a == nil {
		return
	}
	for i, n := range a.Targets {
		target, ok := d.made[n].(*spec.Agent)
		switch {
		case !ok:
		case target == v:
			d.add(diag.Errorf(diag.HandoffToItself, read.Item(a.Expr, i), "agent %q hands over to itself", v.Label).Labelf("name another agent"))
		case !taken[target]:
			taken[target] = true
			v.Handoffs = append(v.Handoffs, &spec.Handoff{
				Agent: target, ToolName: ToolName("transfer_to_" + d.labels[n]), InputFilter: "none", History: "full", Workspace: "shared",
				Pos: posOf(a.Expr),
			})
		}
	}
}

var notToolName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// ToolName makes a name that models accept.
func ToolName(s string) string {
	s = notToolName.ReplaceAllString(s, "_")
	return s[:min(len(s), 64)]
}

func (d *decoder) agentTool(r read.Reader) *spec.AgentTool {
	return &spec.AgentTool{
		Name: r.Node().Name(), Agent: one[spec.Agent](d, r, "agent"), Description: chomp(r.String("description")), MaxTurns: r.Int("max_turns"),
		Enabled: r.Expr("enabled"), NeedsApproval: r.Bool("needs_approval"), Parameters: r.JSON("parameters"), IncludeSchema: r.Bool("include_schema"),
		Workspace: r.String("workspace"), History: r.String("history"), Output: r.Expr("output"), Budget: budget(r.Block("budget")), Pos: r.Pos(),
	}
}

func budget(r read.Reader) spec.Budget {
	b := spec.Budget{CostUSD: r.Float("cost_usd"), WallTime: r.Duration("wall_time"), ToolCalls: r.Int("tool_calls")}
	if t := r.Int64Ptr("total_tokens"); t != nil {
		b.TotalTokens = *t
	}
	return b
}

func (d *decoder) approvals(r read.Reader) *spec.Approvals {
	if !r.OK() {
		return nil
	}
	a := &spec.Approvals{Default: r.String("default"), KeepFor: r.DurationPtr("keep_for")}
	for _, b := range r.Blocks("rule") {
		if !b.Bool("enabled") {
			continue
		}
		d.rule(b)
		a.Rules = append(a.Rules, spec.ApprovalRule{
			Name: b.Node().Name(), Tools: b.Strings("tools"), MCPServers: many[spec.MCPServer](d, b, "mcp_servers"),
			Agents: many[spec.Agent](d, b, "agents"), Match: b.Strings("match"), Paths: b.Strings("paths"),
			Decision: b.String("decision"), Reason: chomp(b.String("reason")), Remember: b.String("remember"), Pos: b.Pos(),
		})
	}
	d.shadowed(r, a)
	return a
}

func (d *decoder) rule(r read.Reader) {
	n := r.Node()
	for i, m := range r.Strings("match") {
		if _, err := regexp.Compile(m); err != nil {
			d.add(diag.Errorf(diag.PatternMismatch, read.Item(n.Attr("match").Expr, i), "no regular expression").Labelf("%v", err))
		}
	}
	for _, name := range []string{"tools", "paths"} {
		for i, g := range r.Strings(name) {
			if _, err := path.Match(strings.ReplaceAll(g, "**", "*"), ""); err != nil {
				d.add(diag.Errorf(diag.PatternMismatch, read.Item(n.Attr(name).Expr, i), "%q is no glob", g))
			}
		}
	}
	for _, name := range []string{"tools", "mcp_servers", "agents", "match", "paths"} {
		a := n.Attr(name)
		if a == nil || a.Bad || a.Later {
			continue
		}
		if len(r.Strings(name)) == 0 && len(a.Targets) == 0 {
			d.add(diag.Warnf(diag.RuleNeverMatches, a.Expr.Range(), "rule %q can never match", n.Name()).Labelf("the list is empty"))
		}
	}
}

// shadowed reports rules behind one that matches everything.
func (d *decoder) shadowed(r read.Reader, a *spec.Approvals) {
	all := -1
	for i, rule := range a.Rules {
		if all >= 0 {
			d.add(diag.Warnf(diag.RuleNeverMatches, ruleNode(r, rule.Name).Header, "rule %q can never match", rule.Name).
				Labelf("the first rule that matches decides").Relate(ruleNode(r, a.Rules[all].Name).Header, "this one matches every call"))
			continue
		}
		any := len(rule.Tools) == 0 || has(rule.Tools, "*")
		if any && len(rule.MCPServers) == 0 && len(rule.Agents) == 0 && len(rule.Match) == 0 && len(rule.Paths) == 0 {
			all = i
		}
	}
}

func ruleNode(r read.Reader, name string) *tree.Node {
	for _, b := range r.Blocks("rule") {
		if b.Node().Name() == name {
			return b.Node()
		}
	}
	return r.Node()
}

func (d *decoder) capabilities(r read.Reader) spec.Capabilities {
	c := r.Block("capabilities")
	out := spec.Capabilities{}
	if c.OK() {
		out = d.said(c)
	}
	defaults := !c.OK() || c.Bool("defaults") || len(c.Node().Blocks) == 0
	if !defaults || !r.Bool("sandboxed") {
		return out
	}
	if out.Shell == nil {
		out.Shell = &spec.ShellCapability{YieldTime: defaultYield, Pos: r.Pos()}
	}
	if out.Filesystem == nil {
		out.Filesystem = &spec.FilesystemCapability{ApplyPatch: true, ViewImage: true, Pos: r.Pos()}
	}
	if out.Compaction == nil {
		out.Compaction = &spec.CompactionCapability{Pos: r.Pos()}
	}
	return out
}

// defaultYield is that of the schema, for agents that have the capability without a block.
const defaultYield = 10 * time.Second

func (d *decoder) said(c read.Reader) spec.Capabilities {
	out := spec.Capabilities{}
	if s := c.Block("shell"); s.OK() {
		out.Shell = d.shell(s)
	}
	if f := c.Block("filesystem"); f.OK() {
		out.Filesystem = &spec.FilesystemCapability{ApplyPatch: f.Bool("apply_patch"), ViewImage: f.Bool("view_image"), Pos: f.Pos()}
	}
	if x := c.Block("compaction"); x.OK() {
		out.Compaction = &spec.CompactionCapability{Pos: x.Pos()}
		if p := x.Block("policy"); p.OK() {
			out.Compaction.Policy, out.Compaction.Threshold = p.Node().Name(), p.Float("threshold")
			out.Compaction.ContextWindow = p.Int("context_window")
		}
	}
	if s := c.Block("skills"); s.OK() {
		out.Skills = d.skills(s)
	}
	if m := c.Block("memory"); m.OK() {
		out.Memory = d.memory(m)
	}
	for _, p := range c.Blocks("plugin") {
		if out.Plugins == nil {
			out.Plugins = map[string]map[string]any{}
		}
		out.Plugins[p.Node().Name()] = p.Nested()
	}
	return out
}

func (d *decoder) shell(r read.Reader) *spec.ShellCapability {
	return &spec.ShellCapability{
		DefaultShell: r.Strings("default_shell"), YieldTime: r.Duration("yield_time"), MaxOutputTokens: r.Int("max_output_tokens"),
		Env: r.StringMap("env"), Pos: r.Pos(),
	}
}

func (d *decoder) skills(r read.Reader) *spec.SkillsCapability {
	s := &spec.SkillsCapability{Path: r.String("path"), Pos: r.Pos()}
	for _, b := range r.Blocks("skill") {
		s.Skills = append(s.Skills, spec.Skill{
			Name: b.Node().Name(), Description: chomp(b.String("description")), Content: b.String("content"),
			Compatibility: b.String("compatibility"), Deferred: b.Bool("deferred"), Entries: d.files.Entries(b.Node()),
		})
	}
	s.From, s.LazyFrom = d.skillSource(r.Block("from")), d.skillSource(r.Block("lazy_from"))
	return s
}

func (d *decoder) skillSource(r read.Reader) *spec.Entry {
	if !r.OK() {
		return nil
	}
	e := &spec.Entry{Kind: spec.EntryKind(r.Node().Name()), Pos: r.Pos()}
	switch e.Kind {
	case spec.EntryLocalDir:
		e.LocalDir = d.files.LocalDir(r)
	case spec.EntryGitRepo:
		e.GitRepo = d.files.GitRepo(r)
	case spec.EntryMount:
		e.Ephemeral = true
		e.Mount = &spec.MountEntry{Kind: r.String("kind"), ReadOnly: true, Fields: r.AnyMap("fields"), Credentials: r.SecretMap("credentials"), Strategy: "auto"}
	default: // skills come from no other entry
	}
	return e
}

func (d *decoder) memory(r read.Reader) *spec.MemoryCapability {
	rd := r.Block("read")
	m := &spec.MemoryCapability{
		MemoriesDir: r.String("memories_dir"), SessionsDir: r.String("sessions_dir"), Read: rd.OK(), LiveUpdate: rd.OK() && rd.Bool("live_update"), Pos: r.Pos(),
	}
	if g := r.Block("generate"); g.OK() {
		m.Generate = &spec.MemoryGenerate{
			MaxRawMemories: g.Int("max_raw_memories_for_consolidation"), PhaseOneModel: d.choice(g, "phase_one_model"), PhaseTwoModel: d.choice(g, "phase_two_model"),
			PhaseOneSettings: d.settings(g.Block("phase_one_settings")), PhaseTwoSettings: d.settings(g.Block("phase_two_settings")),
			ExtraPrompt: g.String("extra_prompt"),
		}
	}
	return m
}

func (d *decoder) run(v *spec.Run, r read.Reader, l string) {
	conv, ses, exec := r.Block("conversation"), r.Block("session"), r.Block("tool_execution")
	*v = spec.Run{
		Label: l, Agent: one[spec.Agent](d, r, "agent"), Sandbox: one[spec.Sandbox](d, r, "sandbox"), Manifest: one[spec.Manifest](d, r, "manifest"),
		Input: r.String("input"), MaxTurns: r.IntPtr("max_turns"), Cwd: r.String("cwd"), Model: d.choice(r, "model"),
		Settings: d.settings(r.Block("model_settings")), InputGuardrails: many[spec.Guardrail](d, r, "input_guardrails"),
		OutputGuardrails: many[spec.Guardrail](d, r, "output_guardrails"), WorkflowName: r.String("workflow_name"),
		ConversationID: conv.String("id"), PreviousResponse: conv.String("previous_response_id"),
		SessionStore: ses.String("store"), SessionLimit: ses.Int("limit"), HandoffHistory: r.String("handoff_history"),
		MaxToolsAtOnce: exec.Int("max_concurrency"), GuardFirst: exec.Bool("guardrails_before_approval"),
		OnUnknownTool: r.String("on_unknown_tool"), OnToolCollision: r.String("on_tool_name_collision"), ReasoningIDs: r.String("reasoning_item_ids"),
		Budget: budget(r.Block("budget")), Approvals: d.approvals(r.Block("approvals")), Vars: r.AnyMap("vars"), Pos: r.Pos(),
	}
	if ses.OK() {
		v.SessionID = ses.Text("id")
	}
	if t := r.Block("trace"); t.OK() {
		v.Trace = &spec.Trace{
			Disabled: t.Bool("disabled"), ID: t.String("id"), GroupID: t.String("group_id"), Metadata: t.AnyMap("metadata"),
			IncludeSensitiveData: t.Bool("include_sensitive_data"), IncludeTurnSpans: t.BoolPtr("include_turn_spans"), APIKey: t.Secret("api_key"),
		}
	}
	d.stages(r, "input_guardrails", "input")
	d.stages(r, "output_guardrails", "output")
	if a := r.Node().Attr("cwd"); a != nil && !a.Bad && v.Cwd != "" {
		clean := path.Clean(v.Cwd)
		if path.IsAbs(v.Cwd) || clean == ".." || strings.HasPrefix(clean, "../") {
			d.add(diag.Errorf(diag.PathNotAllowed, a.Expr.Range(), "cwd %q is not allowed", v.Cwd).Labelf("it is relative to the workspace root and stays inside"))
		}
		v.Cwd = clean
	}
	if a := r.Node().Attr("vars"); a != nil && !a.Bad && v.Vars == nil && !a.Null {
		d.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").Labelf(`"vars" needs a map: { name = value }`))
	}
}
