// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/schema"
)

// project writes a project in txtar form; text before the first file is main.berth.hcl.
func project(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	ar := txtar.Parse([]byte(text))
	if len(ar.Comment) > 0 {
		ar.Files = append(ar.Files, txtar.File{Name: "main.berth.hcl", Data: ar.Comment})
	}
	for _, f := range ar.Files {
		p := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func good(t *testing.T, text string, change ...func(*config.Options)) *config.Loaded {
	t.Helper()
	o := config.Options{Path: project(t, text), Env: fixedEnv, Schemas: schemas}
	for _, c := range change {
		c(&o)
	}
	l, err := config.Load(t.Context(), o)
	if err != nil {
		t.Fatal(render(l))
	}
	return l
}

func codes(l *config.Loaded) []diag.Code {
	var out []diag.Code
	for _, d := range l.Diags {
		out = append(out, d.Code)
	}
	return out
}

func TestCodingExample(t *testing.T) {
	p := load(t, "testdata/coding").Project
	m := p.Manifests["repo"]
	var paths []string
	for _, e := range m.Entries {
		paths = append(paths, string(e.Kind)+" "+e.Path)
	}
	if d := cmp.Diff([]string{"file TASK.md", "local_dir notes", "git_repo repo"}, paths); d != "" {
		t.Error(d)
	}
	if got, want := string(m.Entries[0].File.Content), "# Task\nWork in the `repo` directory.\n"; got != want {
		t.Errorf("TASK.md is %q, want %q", got, want)
	}
	if n := m.Entries[1]; *n.Mode != 0o755 || n.Group != "devs" || !filepath.IsAbs(n.LocalDir.Source) || n.LocalDir.Symlinks != "error" || !n.LocalDir.KeepModes {
		t.Errorf("notes: %+v %+v", n, n.LocalDir)
	}
	if g := m.Entries[2].GitRepo; g.Repo != "acme/widgets" || g.Host != "github.com" || g.Depth != 1 || !g.KeepGit {
		t.Errorf("git_repo: %+v", g)
	}
	if e := m.Environment[2]; e.Name != "GITHUB_TOKEN" || e.Secret.IsZero() || !e.Ephemeral {
		t.Errorf("environment: %+v", e)
	}
	a := p.Agents["coder"]
	if a.Instructions.Literal != "You fix bugs." || a.Model.Name != "gpt-5.6" || a.RunAs != "agent" || a.Manifest != m {
		t.Errorf("agent: %+v", a)
	}
	if s := a.Settings; *s.ReasoningEffort != "medium" || *s.Verbosity != "low" || !*s.ParallelToolCalls || s.Temperature != nil {
		t.Errorf("settings: %+v", s)
	}
	c := a.Capabilities
	if c.Shell == nil || c.Shell.YieldTime != 10*time.Second || !c.Filesystem.ApplyPatch || c.Compaction.Policy != "dynamic" ||
		c.Compaction.Threshold != 0.9 || c.Skills.LazyFrom == nil || c.Skills.Path != ".agents" || c.Memory != nil {
		t.Errorf("capabilities: %+v", c)
	}
	if r := a.Approvals.Rules[0]; a.Approvals.Default != "allow" || r.Decision != "ask" || r.Remember != "call" || len(r.Match) != 2 {
		t.Errorf("approvals: %+v", a.Approvals)
	}
	r := p.Runs["default"]
	if r.Agent != a || r.Sandbox != p.Sandboxes["dev"] || *r.MaxTurns != 60 || r.Cwd != "repo" {
		t.Errorf("run: %+v", r)
	}
	box := r.Sandbox
	if box.Driver != "docker" || box.Ports[0].Port != 8000 || box.Snapshot.Kind != "local" || box.Session.Key.Literal != "dev-acme/widgets" ||
		*box.Limits.ManifestEntries != 8 || box.Limits.Processes != nil {
		t.Errorf("sandbox: %+v", box)
	}
}

func TestResearchExample(t *testing.T) {
	p := load(t, "testdata/research").Project
	m := p.Manifests["dataset"]
	var paths []string
	for _, e := range m.Entries {
		paths = append(paths, string(e.Kind)+" "+e.Path)
	}
	want := []string{"mount data/eu-west-1", "mount data/us-east-1", "dir out", "file out/README.md"}
	if d := cmp.Diff(want, paths); d != "" {
		t.Error(d)
	}
	e := m.Entries[0].Mount
	if e.Fields["bucket"] != "acme-globex-eu-west-1" || e.Fields["provider"] != "AWS" || e.Strategy != "in_container" || e.Pattern != "rclone" ||
		e.Options["mode"] != "fuse" || len(e.Credentials) != 3 || !e.ReadOnly || !m.Entries[0].Ephemeral {
		t.Errorf("mount: %+v", e)
	}
	lead, analyst := p.Agents["lead"], p.Agents["analyst"]
	if h := lead.Handoffs[0]; h.Agent != analyst || h.ToolName != "to_analyst" || h.History != "nested" {
		t.Errorf("handoff: %+v", h)
	}
	if h := analyst.Handoffs[0]; h.Agent != lead || h.ToolName != "transfer_to_lead" {
		t.Errorf("handoff: %+v", h)
	}
	if got, want := analyst.Instructions.Literal, "Bucket acme-globex\n- us-east-1\n- eu-west-1"; got != want {
		t.Errorf("instructions are %q, want %q", got, want)
	}
	if c := analyst.Capabilities; c.Shell == nil || c.Memory == nil || c.Memory.LiveUpdate || c.Memory.Generate.PhaseTwoModel.Model != p.Models["deep"] {
		t.Errorf("capabilities: %+v", c)
	}
	if c := p.Agents["classifier"].Capabilities; c.Shell != nil || c.Filesystem != nil {
		t.Errorf("an agent without a sandbox has %+v", c)
	}
	if r := p.Models["deep"].Settings.Retry; *r.MaxRetries != 4 || r.Initial != 500*time.Millisecond || r.Max != 30*time.Second {
		t.Errorf("retry: %+v", r)
	}
	got, err := p.Tools["command.plot"].Body["command"].(spec.Expr).Eval(spec.RunVars{Params: map[string]any{"csv": "a b.csv", "png": "$(x)"}})
	if err != nil || !cmp.Equal(got, []any{"python", "/opt/plot.py", "--in", "a b.csv", "--out", "$(x)"}) {
		t.Errorf("command: %v, %v", got, err)
	}
	trip, err := p.Guardrails["input.no_pii"].Tripwire.Eval(spec.RunVars{Output: map[string]any{"contains_pii": true}})
	if err != nil || trip != true {
		t.Errorf("tripwire: %v, %v", trip, err)
	}
	wantSchema := `{"type":"object","properties":{"title":{"type":"string"},"findings":{"type":"array","items":{"type":"object","properties":` +
		`{"text":{"type":"string"},"sources":{"type":"array","items":{"type":"string"}}},"required":["text","sources"],"additionalProperties":false}},` +
		`"score":{"type":"number"}},"required":["title","findings"],"additionalProperties":false}`
	if got := string(p.OutputSchemas["report"].Schema); got != wantSchema {
		t.Errorf("schema:\n%s\nwant\n%s", got, wantSchema)
	}
	if b := p.Runs["report"].Budget; b.TotalTokens != 2_000_000 || b.WallTime != 2*time.Hour {
		t.Errorf("budget: %+v", b)
	}
}

// The JSON form of the language reference loads; its second rule stands behind one that matches everything.
func TestJSONTwin(t *testing.T) {
	l, err := config.Load(t.Context(), config.Options{Path: "testdata/twin", Env: noEnv, Schemas: schemas})
	if err != nil || !slices.Equal(codes(l), []diag.Code{diag.RuleNeverMatches}) {
		t.Fatal(render(l))
	}
	p := l.Project
	if a := p.Agents["coder"]; a.Manifest != p.Manifests["repo"] || a.Handoffs[0].Agent != p.Agents["lead"] || a.Model.Name != "gpt-5.6" ||
		a.Approvals.Rules[0].Name != "a" || a.Approvals.Rules[1].Name != "b" {
		t.Errorf("agent: %+v", a)
	}
	if e := p.Manifests["repo"].Entries[1]; e.Mount == nil || e.Mount.Pattern != "rclone" || e.Path != "data/eu" {
		t.Errorf("entry: %+v", e)
	}
}

// A parent is merged as the language says: maps by key, single and labelled blocks in depth, the rest replaced.
func TestFeatures(t *testing.T) {
	l, err := config.Load(t.Context(), config.Options{Path: "testdata/features", Env: fixedEnv, Schemas: schemas})
	if err != nil {
		t.Fatal(render(l))
	}
	got := dump(l.Project, spec.RunVars{RunID: "r1", Vars: map[string]any{"user": "ada"}, Params: map[string]any{"csv": "a.csv"}})
	for _, want := range []string{
		`.Providers[local].Headers[Authorization] = "Bearer var-canary-22true"`,
		`.Providers[local].Headers[X-Token] = "t-token-canary-1true"`,
		`.Models[child].Settings.Metadata[a] = "1"`,
		`.Models[child].Settings.Metadata[c] = "3"`,
		`.Models[child].Settings.ReasoningEffort = "low"`,
		`.Models[child].Settings.ReasoningSummary = "auto"`,
		`.Manifests[child].Entries[0].File.Content = "kept ${literal} %{literal}"`,
		`.Manifests[child].Entries[0].File.Executable = true`,
		`.Manifests[child].Entries[1].Path = "people/ada.md"`,
		`.Manifests[child].Environment[1].Name = "C"`,
		`.Manifests[child].Environment[3].Value.Expr = "ada,bob in r1"`,
		`.Manifests[child].Environment[4].Secret = "token-canary-1true"`,
		`.Sandboxes[child].Session.Key.Expr = "k-ada-ada"`,
		`.Tools[command.plot].ApprovalExpr = false`, // the default of n is 2
		`.Tools[command.plot].Body[env][KEY] = "token-canary-1true"`,
		`.Agents[coder].Handoffs[0].Agent = "Agent team.helper"`,
		`.Agents[coder].Handoffs[0].ToolName = "transfer_to_team_helper"`,
		`.Agents[coder].Approvals.Rules[0].Name = "second"`,
		`.Agents[coder].Approvals.Rules[1].Name = "first"`,
		`.Agents[team.helper].Handoffs[0].Agent = "Agent team.other"`,
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	for _, not := range []string{".Models[child].Settings.Metadata[b]", `.Manifests[child].Entries[3]`, "TASK.md\"\n.Manifests[child]"} {
		if strings.Contains(got, not) {
			t.Errorf("there is: %s", not)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestDriverConfig(t *testing.T) {
	l, err := config.Load(t.Context(), config.Options{Path: "testdata/features", Env: fixedEnv, Schemas: schemas})
	if err != nil {
		t.Fatal(render(l))
	}
	v, err := l.Project.Sandboxes["child"].Config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	desc, _ := schemas("docker")
	var got struct {
		Image   string            `berth:"image"`
		Network *string           `berth:"network_mode"`
		Labels  map[string]string `berth:"labels"`
		Memory  int64             `berth:"memory"`
		Token   string            `berth:"token"`
		Volumes []struct {
			Name string `berth:"name"`
			Path string `berth:"path"`
		} `berth:"volume"`
	}
	if err := (schema.Value{MsgPack: v.MsgPack}).Decode(desc.SandboxConfig, &got); err != nil {
		t.Fatal(err)
	}
	if got.Image != "debian:12" || got.Memory != 512<<20 || got.Token != "token-canary-1" || !cmp.Equal(got.Labels, map[string]string{"a": "1", "c": "3"}) ||
		len(got.Volumes) != 2 || got.Volumes[0].Path != "/c" || got.Volumes[1].Path != "/other" {
		t.Errorf("the driver gets %+v", got)
	}
	if s := l.Redact.String("x token-canary-1 y"); strings.Contains(s, "canary") {
		t.Errorf("a fetched secret is not redacted: %s", s)
	}
}

// A driver that is named without a config block gets its defaults, also from the environment.
func TestDriverDefaults(t *testing.T) {
	l := good(t, `
driver "e2b" {}
sandbox "s" {
  driver = "e2b"
}
`, func(o *config.Options) {
		o.Env = func(n string) (string, bool) { return "key-123456", n == "E2B_API_KEY" }
	})
	desc, _ := schemas("e2b")
	var process struct {
		Key string `berth:"api_key"`
	}
	v, err := l.Project.Drivers["e2b"].Config.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := (schema.Value{MsgPack: v.MsgPack}).Decode(desc.ProcessConfig, &process); err != nil || process.Key != "key-123456" {
		t.Errorf("process: %+v, %v", process, err)
	}
	var box struct {
		Template string            `berth:"template"`
		Timeout  *float64          `berth:"timeout"`
		Metadata map[string]string `berth:"metadata"`
	}
	if v, err = l.Project.Sandboxes["s"].Config.Encode(); err != nil {
		t.Fatal(err)
	}
	if err := (schema.Value{MsgPack: v.MsgPack}).Decode(desc.SandboxConfig, &box); err != nil || box.Template != "base" || box.Timeout != nil {
		t.Errorf("sandbox: %+v, %v", box, err)
	}
}

// An optional secret that is missing leaves out what it is for; another one is an error that names all that are missing.
func TestSecrets(t *testing.T) {
	l := good(t, `
secret "gone" {
  env      = "GONE"
  optional = true
}
secret "needed" {
  env = "NEEDED"
}
secret "file" {
  file   = "token.json"
  format = "json"
}
model_provider "p" {
  api_key = secret.needed
  headers = { A = secret.gone, B = "plain", C = "x ${secret.file.inner.key}" }
}
-- token.json --
{"inner": {"key": "json-key-1"}}
`)
	h := l.Project.Providers["p"].Headers
	if _, found, err := h["A"].Lookup(t.Context()); found || err != nil {
		t.Errorf("A: %v, %v", found, err)
	}
	if v, err := h["B"].Reveal(t.Context()); v != "plain" || err != nil {
		t.Errorf("B: %q, %v", v, err)
	}
	if v, err := h["C"].Reveal(t.Context()); v != "x json-key-1" || err != nil {
		t.Errorf("C: %q, %v", v, err)
	}
	_, err := l.Project.Providers["p"].APIKey.Reveal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "BERTH1601") || !strings.Contains(err.Error(), "NEEDED") {
		t.Errorf("api_key: %v", err)
	}
	var bad []string
	for _, s := range l.CheckSecrets(t.Context()) {
		if s.Err != nil {
			bad = append(bad, s.Key)
		}
	}
	if !cmp.Equal(bad, []string{"secret.needed"}) {
		t.Errorf("missing: %v", bad)
	}
}

func TestSecretFileMode(t *testing.T) {
	dir := project(t, "secret \"s\" {\n  file = \"token\"\n}\nmodel_provider \"p\" {\n  api_key = secret.s\n}\n-- token --\nabcdefgh\n")
	if err := os.Chmod(filepath.Join(dir, "token"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := config.Load(t.Context(), config.Options{Path: dir, Env: noEnv})
	if err != nil {
		t.Fatal(render(l))
	}
	_, err = l.Project.Providers["p"].APIKey.Reveal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "BERTH1604") {
		t.Errorf("a file that others read: %v", err)
	}
}
