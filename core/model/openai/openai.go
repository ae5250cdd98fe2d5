// SPDX-License-Identifier: Apache-2.0

// Package openai speaks to models over the OpenAI Responses API and over the Chat Completions API, which many servers
// offer. It uses the official client for addresses, credentials and transport; requests are put together from the
// transcript's items as they are, without decoding them again.
package openai

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"time"

	oai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
)

// The APIs.
const (
	APIResponses       = "responses"
	APIChatCompletions = "chat_completions"
)

// DefaultTimeout bounds one attempt when neither provider nor settings say so.
const DefaultTimeout = 10 * time.Minute

// DefaultConcurrent is how many calls a provider gets at once when it does not say so.
const DefaultConcurrent = 16

// keyEnv is where the official clients look for a key too.
const keyEnv = "OPENAI_API_KEY"

// Config configures a provider.
type Config struct {
	Provider *spec.ModelProvider // nil = OpenAI with the key from the environment
	// Random gives a number in [0, 1) for jitter; nil = math/rand.
	Random func() float64
	// Transport is the HTTP transport; nil = the standard one.
	Transport http.RoundTripper
}

// Provider is one provider. It is a [model.Model] for any of its models.
type Provider struct {
	cfg     Config
	api     string
	client  oai.Client
	timeout time.Duration
	slots   chan struct{}
}

// New makes a provider. Nothing is sent. A missing key is an error that says how to give one.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if cfg.Provider == nil {
		cfg.Provider = &spec.ModelProvider{}
	}
	sp := cfg.Provider
	p := &Provider{cfg: cfg, api: sp.API, timeout: sp.Timeout}
	switch p.api {
	case "":
		p.api = APIResponses
	case APIResponses, APIChatCompletions:
	default:
		return nil, fmt.Errorf("model provider %q: unknown api %q, it is %s or %s", sp.Label, sp.API, APIResponses, APIChatCompletions)
	}
	if p.timeout == 0 {
		p.timeout = DefaultTimeout
	}
	n := sp.MaxConcurrent
	if n == 0 {
		n = DefaultConcurrent
	}
	p.slots = make(chan struct{}, n)

	key, err := sp.APIKey.Reveal(ctx)
	if err != nil {
		return nil, fmt.Errorf("model provider %q: api_key: %w", sp.Label, err)
	}
	if key == "" {
		key = os.Getenv(keyEnv)
	}
	if key == "" && sp.BaseURL == "" {
		return nil, &model.Error{
			Kind: model.ErrAuth, Message: "there is no API key",
			Hint: "set " + keyEnv + ", or give api_key in a model_provider block",
		}
	}
	opts := []option.RequestOption{
		// Attempts are ours, so that a cut stream counts as one and each is told.
		option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: cfg.Transport}),
	}
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	if sp.BaseURL != "" {
		if u, err := url.Parse(sp.BaseURL); err != nil || u.Scheme == "" || u.Host == "" {
			return nil, fmt.Errorf("model provider %q: base_url %q is no URL such as https://host/v1", sp.Label, sp.BaseURL)
		}
		opts = append(opts, option.WithBaseURL(sp.BaseURL))
	}
	if sp.Organization != "" {
		opts = append(opts, option.WithOrganization(sp.Organization))
	}
	if sp.Project != "" {
		opts = append(opts, option.WithProject(sp.Project))
	}
	for name, secret := range sp.Headers {
		v, err := secret.Reveal(ctx)
		if err != nil {
			return nil, fmt.Errorf("model provider %q: header %q: %w", sp.Label, name, err)
		}
		opts = append(opts, option.WithHeader(name, v))
	}
	for name, v := range sp.Query {
		opts = append(opts, option.WithQuery(name, v))
	}
	p.client = oai.NewClient(opts...)
	return p, nil
}

// Supports says what the provider can be asked for: what its API has, unless the configuration knows better.
func (p *Provider) Supports() model.Support {
	responses := p.api == APIResponses
	s := model.Support{
		CustomTools: responses, HostedTools: responses, ImageToolOutput: responses, ParallelTools: true,
		Reasoning: responses, Compaction: responses && p.cfg.Provider.BaseURL == "", StoredPrompt: responses,
	}
	for name, field := range map[string]*bool{
		"custom_tools": &s.CustomTools, "builtin_patch": &s.BuiltinPatch, "hosted_tools": &s.HostedTools,
		"image_tool_output": &s.ImageToolOutput, "parallel_tools": &s.ParallelTools, "reasoning": &s.Reasoning,
		"compaction": &s.Compaction, "stored_prompt": &s.StoredPrompt,
	} {
		if v, ok := p.cfg.Provider.Supports[name]; ok {
			*field = v
		}
	}
	return s
}

// Stream sends a request, again after failures that allow it.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		case <-ctx.Done():
			yield(nil, context.Cause(ctx))
			return
		}
		p.attempts(ctx, req, yield)
	}
}
