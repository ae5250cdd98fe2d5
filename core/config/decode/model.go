// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"maps"
	"strings"

	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

func (d *decoder) provider(v *spec.ModelProvider, r read.Reader, l string) {
	limit := r.Block("rate_limit")
	*v = spec.ModelProvider{
		Label: l, API: r.String("api"), APIKey: r.Secret("api_key"), Transcript: r.Path("transcript"),
		BaseURL: r.String("base_url"), WebsocketURL: r.String("websocket_url"),
		Organization: r.String("organization"), Project: r.String("project"),
		Headers: r.SecretMap("headers"), Query: r.StringMap("query"), Timeout: r.Duration("timeout"), MaxConcurrent: r.Int("max_concurrent"),
		RequestsPerMinute: limit.Int("requests_per_minute"), TokensPerMinute: limit.Int("tokens_per_minute"), Pos: r.Pos(),
	}
	if s := r.Block("supports"); s.OK() {
		v.Supports = map[string]bool{}
		for name := range s.Node().Attrs {
			if b := s.BoolPtr(name); b != nil {
				v.Supports[name] = *b
			}
		}
	}
	node := r.Node()
	switch a := node.Attr("transcript"); {
	case v.API == "replay" && a == nil:
		d.add(diag.Errorf(diag.MissingArgument, node.Header, "missing required argument").
			Labelf(`"transcript" is required for api = "replay"`))
	case v.API != "replay" && a != nil && !node.Attrs["transcript"].Bad:
		d.add(diag.Errorf(diag.Conflicting, a.NameRange, "%q is for api = \"replay\"", "transcript").Labelf("this provider calls a service"))
	}
}

func (d *decoder) model(v *spec.Model, r read.Reader, l string) {
	*v = spec.Model{
		Label: l, Provider: one[spec.ModelProvider](d, r, "provider"), Name: r.String("name"), ContextWindow: r.Int("context_window"),
		Fallback: many[spec.Model](d, r, "fallback"), Settings: d.settings(r.Block("settings")), Pos: r.Pos(),
	}
}

// choice reads a model that is a reference, a name, or PROVIDER/name.
func (d *decoder) choice(r read.Reader, name string) *spec.ModelChoice {
	a := r.Node().Attr(name)
	if a == nil || a.Bad {
		return nil
	}
	c := &spec.ModelChoice{Pos: posOf(a.Expr)}
	if m := one[spec.Model](d, r, name); m != nil {
		c.Model = m
		return c
	}
	c.Name = r.String(name)
	if c.Name == "" {
		d.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "%q is empty", name).Labelf("name a model, or leave the line out"))
		return nil
	}
	if prefix, rest, ok := strings.Cut(c.Name, "/"); ok && d.p.Providers[prefix] != nil {
		c.Provider, c.Name = d.p.Providers[prefix], rest
	}
	return c
}

// settings reads settings or model_settings; nil when there is no block.
func (d *decoder) settings(r read.Reader) *spec.ModelSettings {
	if !r.OK() {
		return nil
	}
	s := &spec.ModelSettings{
		Temperature: r.FloatPtr("temperature"), TopP: r.FloatPtr("top_p"),
		FrequencyPenalty: r.FloatPtr("frequency_penalty"), PresencePenalty: r.FloatPtr("presence_penalty"),
		ToolChoice: r.StringPtr("tool_choice"), ParallelToolCalls: r.BoolPtr("parallel_tool_calls"),
		Truncation: r.StringPtr("truncation"), MaxTokens: r.Int64Ptr("max_tokens"), Verbosity: r.StringPtr("verbosity"),
		Store: r.BoolPtr("store"), Metadata: r.StringMap("metadata"), PromptCacheRetention: r.StringPtr("prompt_cache_retention"),
		IncludeUsage: r.BoolPtr("include_usage"), PreserveRawUsage: r.BoolPtr("preserve_raw_usage"),
		ResponseInclude: r.Strings("response_include"), TopLogprobs: r.Int64Ptr("top_logprobs"), Timeout: r.DurationPtr("timeout"),
		ExtraQuery: r.AnyMap("extra_query"), ExtraBody: r.AnyMap("extra_body"), ExtraArgs: r.AnyMap("extra_args"),
		ExtraHeaders: r.SecretMap("extra_headers"),
	}
	if c := r.Block("prompt_cache"); c.OK() {
		s.PromptCache = map[string]any{}
		if m := c.StringPtr("mode"); m != nil {
			s.PromptCache["mode"] = *m
		}
		if t := c.DurationPtr("ttl"); t != nil {
			s.PromptCache["ttl"] = t.String()
		}
	}
	if re := r.Block("reasoning"); re.OK() {
		s.ReasoningEffort, s.ReasoningSummary = re.StringPtr("effort"), re.StringPtr("summary")
	}
	if re := r.Block("retry"); re.OK() {
		b := re.Block("backoff")
		s.Retry = &spec.RetrySettings{
			MaxRetries: re.IntPtr("max_retries"), On: re.Strings("on"), Initial: b.Duration("initial"), Max: b.Duration("max"),
			Multiplier: b.Float("multiplier"), Jitter: b.BoolPtr("jitter"),
		}
		d.retryWords(re)
	}
	for _, c := range r.Blocks("context_management") {
		m := map[string]any{"type": c.String("type")}
		if t := c.IntPtr("compact_threshold"); t != nil {
			m["compact_threshold"] = *t
		}
		s.ContextManagement = append(s.ContextManagement, m)
	}
	d.twice(r)
	return s
}

// retryWords checks what may be repeated: words, statuses, classes of statuses.
func (d *decoder) retryWords(r read.Reader) {
	words := []string{"network", "retry_after", "timeout", "4xx", "5xx"}
	for i, w := range r.Strings("on") {
		status := len(w) == 3 && w[0] >= '4' && w[0] <= '5' && strings.Trim(w, "0123456789") == ""
		if status || has(words, w) {
			continue
		}
		x := diag.Errorf(diag.NotOneOf, read.Item(r.Node().Attr("on").Expr, i), "%q cannot be repeated", w)
		if near := diag.Suggest(w, words); near != "" {
			x.Labelf("did you mean %q?", near)
		} else {
			x.Labelf("one of network, retry_after, timeout, 4xx, 5xx, or a status such as 429")
		}
		d.add(x)
	}
}

// twice reports what an attribute and extra_args both set.
func (d *decoder) twice(r read.Reader) {
	extra := r.Node().Attr("extra_args")
	for name := range r.AnyMap("extra_args") {
		if a := r.Node().Attr(name); a != nil && name != "extra_args" {
			d.add(diag.Errorf(diag.Conflicting, extra.NameRange, "extra_args sets %q, which is set already", name).
				Labelf("set it once").Relate(a.NameRange, "%q is set here", name))
		}
	}
}

func (d *decoder) driver(v *spec.DriverProcess, r read.Reader, l string) {
	uses := r.String("uses")
	name := uses
	if name == "" {
		name = r.Node().Name()
	}
	*v = spec.DriverProcess{
		Label: l, Uses: uses, Config: d.driverConfig(r, name, true), LogLevel: r.String("log_level"), Env: r.SecretMap("env"),
		IdleTimeout: r.DurationPtr("idle_timeout"), MaxSandboxes: r.Int("max_sandboxes"), Pos: r.Pos(),
	}
}

func (d *decoder) store(v *spec.SnapshotStore, r read.Reader, l string) {
	keep := r.Block("retention")
	kind := r.Node().Labels[0]
	*v = spec.SnapshotStore{
		Kind: kind, Label: l, Prefix: r.String("prefix"), Compression: r.String("compression"),
		Key: r.Block("encryption").Secret("key"), Keep: keep.Int("keep"), MaxAge: keep.Duration("max_age"), Pos: r.Pos(),
		Fields: r.Fields("prefix", "compression"), Credentials: r.Block("credentials").Credentials(),
		Ambient: r.Block("credentials").Bool("ambient"),
	}
	fields := maps.Clone(v.Fields)
	fields["prefix"] = v.Prefix
	d.files.Storage(r, kind, fields, v.Credentials, v.Ambient)
	if kind == "local" && r.Has("dir") {
		v.Fields["dir"] = r.Path("dir")
	}
}
