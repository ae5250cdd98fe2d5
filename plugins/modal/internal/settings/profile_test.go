// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/sdk/errs"
)

func TestProfile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	const file = `
[work]
token_id = "ak-work"
token_secret = "as-canary"
environment = "research"
server_url = "http://127.0.0.1:1"
active = true

[other]
oauth_refresh_token = "rt-canary"

[empty]
`
	if err := os.WriteFile(filepath.Join(home, ".modal.toml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "broken"), []byte("[work]\ntoken_secret = as-canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := func(change func(*settings.Process)) *settings.Process {
		p := &settings.Process{Profile: "work", ConfigFile: "~/.modal.toml", ServerURL: settings.DefaultServer}
		change(p)
		return p
	}
	p := named(func(*settings.Process) {})
	if err := p.ReadProfile(); err != nil || p.TokenID != "ak-work" || p.TokenSecret != "as-canary" || p.Environment != "research" || p.ServerURL != "http://127.0.0.1:1" {
		t.Errorf("%+v, %v", p, err)
	}
	p = named(func(p *settings.Process) { p.Environment, p.ServerURL = "mine", "https://modal.example.com" })
	if err := p.ReadProfile(); err != nil || p.Environment != "mine" || p.ServerURL != "https://modal.example.com" {
		t.Errorf("the block counts for more: %+v, %v", p, err)
	}
	p = named(func(p *settings.Process) { p.Profile, p.ConfigFile = "", "/none" })
	if err := p.ReadProfile(); err != nil || p.TokenID != "" {
		t.Errorf("nobody asked for a profile: %+v, %v", p, err)
	}
	for name, c := range map[string]struct {
		change func(*settings.Process)
		want   errs.Code
	}{
		"no such profile":   {func(p *settings.Process) { p.Profile = "wrok" }, errs.ConfigInvalid},
		"OAuth":             {func(p *settings.Process) { p.Profile = "other" }, errs.Unsupported},
		"no token":          {func(p *settings.Process) { p.Profile = "empty" }, errs.ConfigInvalid},
		"a token beside it": {func(p *settings.Process) { p.TokenID = "ak-1" }, errs.ConfigInvalid},
		"no file":           {func(p *settings.Process) { p.ConfigFile = "~/none" }, errs.ConfigInvalid},
		"a broken file":     {func(p *settings.Process) { p.ConfigFile = "~/broken" }, errs.ConfigInvalid},
	} {
		if err := named(c.change).ReadProfile(); errs.CodeOf(err) != c.want || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
