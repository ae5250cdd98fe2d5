// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-dev/berth/core/config/host"
	"github.com/berth-dev/berth/core/diag"
)

// machine is a host with a system's and a user's file.
type machine struct {
	system, user string // contents; empty = no file
	env, flags   map[string]string
	mode         os.FileMode
}

func (m machine) load(t *testing.T) (*host.Config, string, string) {
	t.Helper()
	dir := t.TempDir()
	o := host.Options{
		Home: filepath.Join(dir, "home"), System: filepath.Join(dir, "system.hcl"), Flags: m.flags, Project: []string{"agent", "secret", "berth"},
		Getenv: func(n string) (string, bool) {
			v, ok := m.env[n]
			return strings.ReplaceAll(v, "$DIR", dir), ok
		},
	}
	put := func(path, content string) {
		if content == "" {
			return
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if m.mode == 0 {
			m.mode = 0o644
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, m.mode); err != nil {
			t.Fatal(err)
		}
	}
	put(o.System, m.system)
	put(filepath.Join(o.Home, ".config", "berth", "config.hcl"), m.user)
	cfg, ds, files := host.Load(o)
	var b bytes.Buffer
	if err := diag.WriteText(&b, ds, files, diag.TextOptions{Width: 1000}); err != nil {
		t.Fatal(err)
	}
	return cfg, strings.ReplaceAll(b.String(), dir, "$DIR"), dir
}

func TestNoFile(t *testing.T) {
	cfg, text, dir := machine{}.load(t)
	if text != "" {
		t.Errorf("a host without files:\n%s", text)
	}
	home := filepath.Join(dir, "home")
	if cfg.Plugins.Verify != "lock" || cfg.Plugins.Dirs[0] != home+"/.local/share/berth/plugins" || !cfg.Policy.RequireLock ||
		cfg.StateStore.Dir != home+"/.local/state/berth/runs" || cfg.StateStore.Kind != "sqlite" || cfg.StateStore.Path != "" || cfg.Telemetry.LogLevel != "warn" || len(cfg.Read) != 0 {
		t.Errorf("defaults: %+v", cfg)
	}
	cfg, _, _ = machine{env: map[string]string{"XDG_DATA_HOME": "/data", "XDG_STATE_HOME": "/state"}}.load(t)
	if cfg.Plugins.Dirs[0] != "/data/berth/plugins" || cfg.StateStore.Dir != "/state/berth/runs" {
		t.Errorf("XDG directories: %+v", cfg)
	}
}

// example is the host configuration of the documents.
const example = `plugins {
  dirs            = ["~/.local/share/berth/plugins", "/usr/local/lib/berth/plugins"]
  verify          = "lock"
  start_timeout   = "30s"
  idle_timeout    = 600
  env_passthrough = ["HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"]

  source "filesystem" {
    path    = "/srv/berth/mirror"
    include = ["berth/*"]
  }

  source "http" {
    url = "https://drivers.example.com"
    key = "ed25519:abc"
  }

  dev_override "berth/docker" {
    path = "."
  }
}

telemetry {
  log_level  = "info"
  log_format = "json"

  otlp {
    endpoint = "http://localhost:4318"
    headers = {
      "x-key"   = secret.otlp
      "x-plain" = "a"
    }
  }
}

secret "otlp" {
  env = "OTLP_KEY"
}

secret_store "vault" {
  command = ["printf", "from-%s", "vault"]
}

state_store "postgres" {
  url = "postgres://me:${secret.otlp}@db/berth"
  dir = "~/.local/state/berth/runs"
}

session_store "sqlite" {
  path = "sessions.db"
}

policy {
  allow_host_files = ["/srv/data/*"]
  allowed_drivers  = ["berth/docker", "unixlocal"]

  max_budget {
    cost_usd  = 2.5
    wall_time = "2h"
  }
}

defaults {
  sandbox_driver = "docker"
  model          = "gpt-5.6"
}
`

func TestExample(t *testing.T) {
	cfg, text, dir := machine{user: example, env: map[string]string{"OTLP_KEY": "hunter2"}}.load(t)
	if text != "" {
		t.Fatal(text)
	}
	conf := filepath.Join(dir, "home/.config/berth")
	want := host.Plugins{
		Dirs:   []string{dir + "/home/.local/share/berth/plugins", "/usr/local/lib/berth/plugins"},
		Verify: "lock", StartTimeout: 30 * time.Second, IdleTimeout: 10 * time.Minute,
		EnvPassthrough: []string{"HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"},
		Sources: []host.Source{
			{Kind: "filesystem", Path: "/srv/berth/mirror", Include: []string{"berth/*"}},
			{Kind: "http", URL: "https://drivers.example.com", Key: "ed25519:abc"},
		},
		DevOverrides: map[string]host.DevOverride{"berth/docker": {Path: conf}},
	}
	ignore := cmp.Options{cmpopts.IgnoreFields(host.Source{}, "Pos"), cmpopts.IgnoreFields(host.DevOverride{}, "Pos")}
	if diff := cmp.Diff(want, cfg.Plugins, ignore); diff != "" {
		t.Errorf("plugins: (-want +got)\n%s", diff)
	}
	if cfg.SessionStore.Kind != "sqlite" || cfg.SessionStore.Path != conf+"/sessions.db" {
		t.Errorf("session store: %+v", cfg.SessionStore)
	}
	for header, want := range map[string]string{"x-key": "hunter2", "x-plain": "a"} {
		if got, err := cfg.Telemetry.OTLP.Headers[header].Reveal(t.Context()); err != nil || got != want {
			t.Errorf("header %s: %q, %v", header, got, err)
		}
	}
	if got, err := cfg.Secret(t.Context(), "vault"); err != nil || got != "from-vault" {
		t.Errorf("secret store: %q, %v", got, err)
	}
	if _, err := cfg.Secret(t.Context(), "none"); err == nil {
		t.Error("a secret store that does not exist gives no error")
	}
	p := cfg.Policy
	if p.MaxBudget.CostUSD != 2.5 || p.MaxBudget.WallTime != 2*time.Hour || !p.DriverAllowed("berth/docker") || !p.DriverAllowed("berth/unixlocal") ||
		p.DriverAllowed("berth/e2b") {
		t.Errorf("policy: %+v", p)
	}
	if cfg.Origins["telemetry.log_level"] != conf+"/config.hcl:24" {
		t.Errorf("origins: %v", cfg.Origins)
	}
}

func TestPrecedence(t *testing.T) {
	m := machine{system: "telemetry {\n  log_level = \"error\"\n  log_format = \"json\"\n}\n"}
	level := func() string {
		cfg, text, _ := m.load(t)
		if text != "" || cfg.Telemetry.LogFormat != "json" {
			t.Errorf("%+v\n%s", cfg.Telemetry, text)
		}
		return cfg.Telemetry.LogLevel
	}
	var got []string
	got = append(got, level())
	m.user = "telemetry {\n  log_level = \"info\"\n}\n"
	got = append(got, level())
	m.env = map[string]string{"BERTH_TELEMETRY_LOG_LEVEL": "debug"}
	got = append(got, level())
	m.flags = map[string]string{"telemetry.log_level": "trace"}
	got = append(got, level())
	if diff := cmp.Diff([]string{"error", "info", "debug", "trace"}, got); diff != "" {
		t.Errorf("system, user, environment, flag: (-want +got)\n%s", diff)
	}
}

func TestEverySettingCanBeSet(t *testing.T) {
	texts := map[string]string{
		"plugins.dirs": "/a:/b", "plugins.verify": "lock", "plugins.start_timeout": "5s", "plugins.idle_timeout": "7",
		"plugins.env_passthrough": "A,B", "telemetry.log_level": "off", "telemetry.log_format": "json", "telemetry.log_file": "/log",
		"state_store.dir": "/state", "state_store.path": "/state.db", "state_store.url": "postgres://x", "defaults.sandbox_driver": "d", "defaults.model": "m",
	}
	env := map[string]string{}
	for _, s := range host.Settings() {
		text, ok := texts[s.Key]
		if !ok || s.Doc == "" {
			t.Errorf("%s: no text or no document", s.Key)
		}
		env[s.Env] = text
	}
	cfg, text, _ := machine{env: env}.load(t)
	if text != "" {
		t.Error(text)
	}
	if len(cfg.Plugins.Dirs) != 2 || cfg.Plugins.StartTimeout != 5*time.Second || cfg.Plugins.IdleTimeout != 7*time.Second ||
		len(cfg.Plugins.EnvPassthrough) != 2 || cfg.Telemetry.LogFile != "/log" || cfg.StateStore.Dir != "/state" || cfg.StateStore.Kind != "postgres" ||
		cfg.Defaults != (host.Defaults{SandboxDriver: "d", Model: "m"}) {
		t.Errorf("%+v", cfg)
	}
}

func TestPolicyCannotBeLoosened(t *testing.T) {
	system := `policy {
  allow_host_commands = false
  allow_host_files    = ["/srv/*"]
  allowed_drivers     = ["berth/docker", "berth/e2b"]
  require_lock        = true
  allow_dev_override  = false
  forbid              = ["nonsensitive"]

  max_budget {
    cost_usd = 2
  }
}
`
	for name, c := range map[string]struct{ user, want string }{
		"commands":  {`allow_host_commands = true`, "policy allow_host_commands is looser"},
		"files":     {`allow_host_files = ["/srv/a", "/etc/*"]`, "more is allowed here: /etc/*"},
		"wild":      {`allow_host_files = ["/*"]`, "more is allowed here: /*"},
		"drivers":   {`allowed_drivers = ["berth/docker", "x/y"]`, "more is allowed here: x/y"},
		"lock":      {`require_lock = false`, "policy require_lock is looser"},
		"overrides": {`allow_dev_override = true`, "policy allow_dev_override is looser"},
		"budget": {`max_budget {
  cost_usd = 3
}`, "policy max_budget.cost_usd is looser"},
	} {
		cfg, text, _ := machine{system: system, user: "policy {\n" + c.user + "\n}\n"}.load(t)
		if !strings.Contains(text, "error[BERTH2002]: ") || !strings.Contains(text, c.want) || !strings.Contains(text, "the system's policy") {
			t.Errorf("%s:\n%s", name, text)
		}
		want := host.Policy{
			AllowHostFiles: []string{"/srv/*"}, AllowedDrivers: []string{"berth/docker", "berth/e2b"}, RequireLock: true,
			Forbid: []string{"nonsensitive"},
		}
		want.MaxBudget.CostUSD = 2
		if diff := cmp.Diff(want, cfg.Policy); diff != "" {
			t.Errorf("%s: the policy is loose: (-want +got)\n%s", name, diff)
		}
	}
	cfg, text, _ := machine{system: system, user: "policy {\nallowed_drivers = [\"berth/docker\"]\nallow_host_files = [\"/srv/a\"]\nmax_budget {\ncost_usd = 1\n}\n}\n"}.load(t)
	if text != "" || cfg.Policy.MaxBudget.CostUSD != 1 || len(cfg.Policy.AllowedDrivers) != 1 {
		t.Errorf("tighter: %+v\n%s", cfg.Policy, text)
	}
	for _, m := range []machine{
		{system: system, env: map[string]string{"BERTH_PLUGINS_VERIFY": "none"}},
		{system: system, flags: map[string]string{"plugins.verify": "none"}},
		{system: system, user: "plugins {\nverify = \"warn\"\n}\n"},
		{user: "plugins {\nverify = \"warn\"\n}\n"},
		{system: system, user: "plugins {\ndev_override \"a/b\" {\npath = \"/\"\n}\n}\n"},
	} {
		cfg, text, _ := m.load(t)
		if !strings.Contains(text, "error[BERTH2002]") || cfg.Plugins.Verify != "lock" || len(cfg.Plugins.DevOverrides) != 0 {
			t.Errorf("%+v: %+v\n%s", m, cfg.Plugins, text)
		}
	}
	cfg, text, _ = machine{user: "plugins {\nverify = \"warn\"\n}\npolicy {\nrequire_lock = false\n}\n"}.load(t)
	if text != "" || cfg.Plugins.Verify != "warn" {
		t.Errorf("without a system's policy: %s", text)
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ user, want string }{
		"project block": {"agent \"a\" {\n}\n", `error[BERTH1110]: block "agent" in the host configuration
 --> $DIR/home/.config/berth/config.hcl:1:1
  |
1 | agent "a" {
  | ^^^^^ this belongs into a project
  = help: move it to a file that ends in .berth.hcl, in the project's directory
`},
		"misspelt": {"plugin {\n}\n", `error[BERTH1102]: unsupported block type "plugin"
 --> $DIR/home/.config/berth/config.hcl:1:1
  |
1 | plugin {
  | ^^^^^^ did you mean "plugins"?
`},
		"enum": {"telemetry {\n  log_level = \"inf\"\n}\n", `error[BERTH1303]: log_level cannot be "inf"
 --> $DIR/home/.config/berth/config.hcl:2:15
  |
2 |   log_level = "inf"
  |               ^^^^^ did you mean "info"?
  = help: it is one of: trace, debug, info, warn, error, off
`},
		"type": {"plugins {\n  dirs = 3\n}\n", `error[BERTH1301]: wrong type
 --> $DIR/home/.config/berth/config.hcl:2:10
  |
2 |   dirs = 3
  |          ^ "dirs" needs a list
`},
		"duration": {"plugins {\n  start_timeout = \"soon\"\n}\n", `error[BERTH1305]: start_timeout is not a duration
 --> $DIR/home/.config/berth/config.hcl:2:19
  |
2 |   start_timeout = "soon"
  |                   ^^^^^^ "soon" is not a duration such as "30s", "10m" or "1h30m"
`},
		"secret in the open": {"secret \"s\" {\n  env = \"S\"\n}\ntelemetry {\n  log_file = secret.s\n}\n", `error[BERTH1603]: secret value in "log_file", which is not a sensitive place
 --> $DIR/home/.config/berth/config.hcl:5:14
  |
5 |   log_file = secret.s
  |              ^^^^^^^^ this value would be shown
`},
		"no such secret": {"telemetry {\n  otlp {\n    endpoint = \"x\"\n    headers  = { a = secret.nope }\n  }\n}\n", `error[BERTH1202]: no secret named "nope"
 --> $DIR/home/.config/berth/config.hcl:4:22
  |
4 |     headers  = { a = secret.nope }
  |                      ^^^^^^^^^^^
`},
		"twice": {"plugins {\n}\nplugins {\n}\n", `error[BERTH1105]: second plugins block
 --> $DIR/home/.config/berth/config.hcl:3:1
  |
3 | plugins {
  | ^^^^^^^ it may stand once
 ::: $DIR/home/.config/berth/config.hcl:1:1
  |
1 | plugins {
  | ------- first declared here
`},
		"kind": {"state_store \"fil\" {\n}\n", `error[BERTH1303]: no kind of state_store named "fil"
 --> $DIR/home/.config/berth/config.hcl:1:13
  |
1 | state_store "fil" {
  |             ^^^^^
  = help: it is one of: sqlite, postgres
`},
		"missing": {"state_store \"postgres\" {\n}\n", `error[BERTH1103]: missing required argument
 --> $DIR/home/.config/berth/config.hcl:1:1
  |
1 | state_store "postgres" {
  | ^^^^^^^^^^^^^^^^^^^^^^ "url" is required here
`},
		"source of a secret": {"secret \"s\" {\n}\n", `error[BERTH1108]: secret "s" needs exactly one source
 --> $DIR/home/.config/berth/config.hcl:1:1
  |
1 | secret "s" {
  | ^^^^^^^^^^ write one of "env", "file" and "command"
`},
		"syntax": {"plugins {\n  verify = \"lock\n}\n", `error[BERTH1003]: string is not closed on its line
 --> $DIR/home/.config/berth/config.hcl:2:12
  |
2 |   verify = "lock
  |            ^^^^^ opened here
  = help: close the quote, or use a heredoc (<<-EOT) for text of several lines
`},
	} {
		_, text, _ := machine{user: c.user}.load(t)
		if diff := cmp.Diff(c.want, text); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for name, m := range map[string]machine{
		"named but missing": {env: map[string]string{"BERTH_CONFIG": "$DIR/none.hcl"}},
		"a directory":       {env: map[string]string{"BERTH_CONFIG": "$DIR"}},
		"a bad variable":    {env: map[string]string{"BERTH_TELEMETRY_LOG_LEVEL": "loud"}},
		"a bad flag":        {flags: map[string]string{"telemetry.nope": "x"}},
	} {
		if _, text, _ := m.load(t); !strings.Contains(text, "error[") {
			t.Errorf("%s: %q", name, text)
		}
	}
	if _, text, _ := (machine{system: "policy {\n}\n", mode: 0o666}).load(t); !strings.Contains(text, "warning[BERTH1604]") {
		t.Errorf("a system file that everybody may write: %q", text)
	}
}
