// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/value"
)

// The words that are allowed.
var (
	verifies   = []string{"lock", "warn", "none"}
	logLevels  = []string{"trace", "debug", "info", "warn", "error", "off"}
	logFormats = []string{"text", "json"}
	protocols  = []string{"http/protobuf", "grpc"}
	forbidden  = []string{"nonsensitive"}
)

func (l *loader) top() body {
	return body{blocks: map[string]block{
		"plugins":       {read: l.plugins},
		"telemetry":     {read: l.telemetry},
		"state_store":   {labels: []string{"kind"}, read: l.stateStore},
		"session_store": {labels: []string{"kind"}, read: func(b *hcl.Block) { l.cfg.SessionStore = l.store(b, "file", "sqlite", "redis") }},
		"secret_store":  {labels: []string{"name"}, read: l.secretStore},
		"secret":        {labels: []string{"name"}, read: func(*hcl.Block) {}}, // declared before anything is read
		"policy":        {read: l.policy},
		"defaults":      {read: l.defaults},
	}}
}

func (l *loader) plugins(b *hcl.Block) {
	p := &l.cfg.Plugins
	var sources []Source
	l.read(b.Body, b.DefRange, body{
		attrs: map[string]func(*hcl.Attribute){
			"dirs":            l.paths("plugins.dirs", &p.Dirs),
			"verify":          l.text("plugins.verify", &p.Verify, verifies...),
			"start_timeout":   l.duration("plugins.start_timeout", &p.StartTimeout),
			"idle_timeout":    l.duration("plugins.idle_timeout", &p.IdleTimeout),
			"env_passthrough": l.list("plugins.env_passthrough", &p.EnvPassthrough),
		},
		blocks: map[string]block{
			"source": {labels: []string{"kind"}, many: true, read: func(b *hcl.Block) {
				if s, ok := l.source(b); ok {
					sources = append(sources, s)
				}
			}},
			"dev_override": {labels: []string{"ns/name"}, read: l.override},
		},
	})
	if sources != nil {
		p.Sources = sources
	}
}

func (l *loader) source(b *hcl.Block) (Source, bool) {
	s := Source{Kind: b.Labels[0], Pos: pos(b.DefRange)}
	attrs := map[string]func(*hcl.Attribute){
		"include": l.list("", &s.Include),
		"exclude": l.list("", &s.Exclude),
	}
	need := "path"
	switch s.Kind {
	case "filesystem":
		attrs["path"] = l.path("", &s.Path)
	case "http":
		need = "url"
		attrs["url"] = l.text("", &s.URL)
		attrs["key"] = l.text("", &s.Key)
	default:
		l.badLabel(b, "kind of source", []string{"filesystem", "http"})
		return s, false
	}
	l.read(b.Body, b.DefRange, body{attrs: attrs})
	return s, l.require(b, need)
}

func (l *loader) override(b *hcl.Block) {
	ns, name, ok := strings.Cut(b.Labels[0], "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		l.add(diag.Errorf(diag.PatternMismatch, b.LabelRanges[0], "%q is not the source of a driver", diag.Printable(b.Labels[0])).
			Labelf(`write it as "namespace/name"`))
		return
	}
	d := DevOverride{Pos: pos(b.DefRange)}
	l.read(b.Body, b.DefRange, body{attrs: map[string]func(*hcl.Attribute){"path": l.path("", &d.Path)}})
	if !l.require(b, "path") || d.Path == "" {
		return
	}
	if !exists(d.Path) {
		l.add(diag.Warnf(diag.DriverMissing, b.DefRange, "nothing is at the path of the override of %q", b.Labels[0]).
			Labelf("%s does not exist", d.Path))
	}
	l.cfg.Plugins.DevOverrides[b.Labels[0]] = d
	l.overrides = append(l.overrides, b.DefRange)
}

func (l *loader) badLabel(b *hcl.Block, what string, allowed []string) {
	d := diag.Errorf(diag.NotOneOf, b.LabelRanges[0], "no %s named %q", what, diag.Printable(b.Labels[0])).
		Helpf("it is one of: %s", strings.Join(allowed, ", "))
	if near := diag.Suggest(b.Labels[0], allowed); near != "" {
		d.Labelf("did you mean %q?", near)
	}
	l.add(d)
}

func has(b *hcl.Block, name string) bool {
	content, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: name}}})
	return content.Attributes[name] != nil
}

// require tells that an argument is missing.
func (l *loader) require(b *hcl.Block, name string) bool {
	if has(b, name) {
		return true
	}
	l.add(diag.Errorf(diag.MissingArgument, b.DefRange, "missing required argument").Labelf("%q is required here", name))
	return false
}

func (l *loader) telemetry(b *hcl.Block) {
	t := &l.cfg.Telemetry
	l.read(b.Body, b.DefRange, body{
		attrs: map[string]func(*hcl.Attribute){
			"log_level":  l.text("telemetry.log_level", &t.LogLevel, logLevels...),
			"log_format": l.text("telemetry.log_format", &t.LogFormat, logFormats...),
			"log_file":   l.path("telemetry.log_file", &t.LogFile),
		},
		blocks: map[string]block{"otlp": {read: l.otlp}},
	})
}

func (l *loader) otlp(b *hcl.Block) {
	o := &OTLP{Protocol: protocols[0], Headers: map[string]value.Secret{}}
	l.read(b.Body, b.DefRange, body{attrs: map[string]func(*hcl.Attribute){
		"endpoint": l.text("telemetry.otlp.endpoint", &o.Endpoint),
		"protocol": l.text("telemetry.otlp.protocol", &o.Protocol, protocols...),
		"headers":  func(a *hcl.Attribute) { l.headers(a, o.Headers) },
	}})
	if l.require(b, "endpoint") {
		l.cfg.Telemetry.OTLP = o
	}
}

func (l *loader) headers(a *hcl.Attribute, into map[string]value.Secret) {
	pairs, found := hcl.ExprMap(a.Expr)
	if found.HasErrors() {
		l.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").Labelf("%q needs a map such as { NAME = \"value\" }", a.Name))
		return
	}
	if _, ok := l.value(a, cty.Map(cty.String), true); !ok {
		return
	}
	for _, p := range pairs {
		key, found := p.Key.Value(nil)
		if found.HasErrors() || key.Type() != cty.String || key.IsNull() || !key.IsKnown() {
			l.add(diag.Errorf(diag.WrongType, p.Key.Range(), "a header needs a plain name"))
			continue
		}
		into[key.AsString()] = l.hidden("header "+key.AsString(), p.Value, asText)
	}
}

func (l *loader) stateStore(b *hcl.Block) {
	s := l.cfg.StateStore // a file that says nothing about the run logs leaves them where they are
	s.Kind, s.Path, s.URL, s.Pos = b.Labels[0], "", value.Secret{}, pos(b.DefRange)
	attrs := map[string]func(*hcl.Attribute){"dir": l.path("state_store.dir", &s.Dir)}
	switch s.Kind {
	case "sqlite":
		attrs["path"] = l.path("state_store.path", &s.Path)
	case "postgres":
		attrs["url"] = func(a *hcl.Attribute) {
			if _, ok := l.value(a, cty.String, true); ok {
				s.URL = l.hidden("state_store url", a.Expr, asText)
			}
		}
	default:
		l.badLabel(b, "kind of state_store", []string{"sqlite", "postgres"})
		return
	}
	l.read(b.Body, b.DefRange, body{attrs: attrs})
	if s.Kind == "postgres" && !l.require(b, "url") {
		return
	}
	l.cfg.StateStore = s
}

func (l *loader) store(b *hcl.Block, kinds ...string) Store {
	s := Store{Kind: b.Labels[0], Pos: pos(b.DefRange)}
	attrs := map[string]func(*hcl.Attribute){}
	var need string
	switch {
	case !slices.Contains(kinds, s.Kind):
		l.badLabel(b, "kind of "+b.Type, kinds)
		return Store{}
	case s.Kind == "file":
		need = "dir"
		attrs[need] = l.path(b.Type+".dir", &s.Path)
	case s.Kind == "sqlite":
		need = "path"
		attrs[need] = l.path(b.Type+".path", &s.Path)
	default:
		need = "url"
		attrs[need] = func(a *hcl.Attribute) {
			if _, ok := l.value(a, cty.String, true); ok {
				s.URL = l.hidden(b.Type+" url", a.Expr, asText)
			}
		}
	}
	l.read(b.Body, b.DefRange, body{attrs: attrs})
	l.require(b, need)
	return s
}

func (l *loader) secretStore(b *hcl.Block) {
	s := SecretStore{Pos: pos(b.DefRange)}
	l.read(b.Body, b.DefRange, body{attrs: map[string]func(*hcl.Attribute){
		"command": l.list("", &s.Command),
		"file":    l.path("", &s.File),
	}})
	if (len(s.Command) > 0) == (s.File != "") {
		l.add(diag.Errorf(diag.ExactlyOneOf, b.DefRange, "secret_store %q needs exactly one source", b.Labels[0]).
			Labelf(`write "command" or "file"`))
		return
	}
	from := &secret.Secret{
		Key: "secret_store." + b.Labels[0], Header: b.DefRange, Source: b.DefRange, Command: s.Command, File: s.File,
		Format: "text", Trim: true,
	}
	s.text = value.NewSecret(from.Key, l.resolve(from))
	l.cfg.SecretStores[b.Labels[0]] = s
}

func (l *loader) defaults(b *hcl.Block) {
	d := &l.cfg.Defaults
	l.read(b.Body, b.DefRange, body{attrs: map[string]func(*hcl.Attribute){
		"sandbox_driver": l.text("defaults.sandbox_driver", &d.SandboxDriver),
		"model":          l.text("defaults.model", &d.Model),
	}})
}
