// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"time"

	"github.com/berth-dev/berth/core/value"
)

// ModelProvider is a `model_provider` block.
type ModelProvider struct {
	Label                              string
	API                                string // responses, chat_completions, replay; empty = responses
	APIKey                             value.Secret
	Transcript                         string // absolute path; for API "replay"
	BaseURL                            string
	WebsocketURL                       string
	Organization                       string
	Project                            string
	Headers                            map[string]value.Secret
	Query                              map[string]string
	Timeout                            time.Duration // 0 = 10 minutes
	MaxConcurrent                      int           // 0 = 16
	RequestsPerMinute, TokensPerMinute int
	Supports                           map[string]bool // hosted_tools, custom_tools, …; what is missing is known per provider
	Pos                                Pos
}

// Model is a `model` block.
type Model struct {
	Label         string
	Provider      *ModelProvider
	Name          string
	ContextWindow int
	Fallback      []*Model
	Settings      *ModelSettings
	Pos           Pos
}

// ModelChoice is an agent's model: a block, or a name with an optional provider.
type ModelChoice struct {
	Model    *Model
	Name     string // when Model is nil
	Provider *ModelProvider
	Pos      Pos
}

// ModelSettings tune a model call; nil = not said. See [ModelSettings.Over] for merging.
type ModelSettings struct {
	Temperature, TopP, FrequencyPenalty, PresencePenalty *float64
	ToolChoice                                           *string // auto, required, none, or a tool's name
	ParallelToolCalls                                    *bool
	Truncation                                           *string
	MaxTokens                                            *int64
	Verbosity                                            *string
	Store                                                *bool
	Metadata                                             map[string]string
	PromptCacheRetention                                 *string
	PromptCache                                          map[string]any
	IncludeUsage                                         *bool
	PreserveRawUsage                                     *bool
	ResponseInclude                                      []string
	TopLogprobs                                          *int64
	Timeout                                              *time.Duration // of one attempt
	ExtraQuery                                           map[string]any
	ExtraBody                                            map[string]any
	ExtraArgs                                            map[string]any
	ExtraHeaders                                         map[string]value.Secret
	ReasoningEffort                                      *string
	ReasoningSummary                                     *string
	Retry                                                *RetrySettings
	ContextManagement                                    []map[string]any
}

// RetrySettings say when a model call is repeated.
type RetrySettings struct {
	MaxRetries *int
	On         []string
	Initial    time.Duration
	Max        time.Duration
	Multiplier float64
	Jitter     *bool
}

// Over lays s over base: what s says wins, field by field; maps are merged by key. Neither is changed.
func (s *ModelSettings) Over(base *ModelSettings) *ModelSettings {
	switch {
	case s == nil:
		return base
	case base == nil:
		return s
	}
	out := *base
	set(&out.Temperature, s.Temperature)
	set(&out.TopP, s.TopP)
	set(&out.FrequencyPenalty, s.FrequencyPenalty)
	set(&out.PresencePenalty, s.PresencePenalty)
	set(&out.ToolChoice, s.ToolChoice)
	set(&out.ParallelToolCalls, s.ParallelToolCalls)
	set(&out.Truncation, s.Truncation)
	set(&out.MaxTokens, s.MaxTokens)
	set(&out.Verbosity, s.Verbosity)
	set(&out.Store, s.Store)
	set(&out.PromptCacheRetention, s.PromptCacheRetention)
	set(&out.IncludeUsage, s.IncludeUsage)
	set(&out.PreserveRawUsage, s.PreserveRawUsage)
	set(&out.TopLogprobs, s.TopLogprobs)
	set(&out.Timeout, s.Timeout)
	set(&out.ReasoningEffort, s.ReasoningEffort)
	set(&out.ReasoningSummary, s.ReasoningSummary)
	set(&out.Retry, s.Retry)
	out.Metadata = merge(base.Metadata, s.Metadata)
	out.PromptCache = merge(base.PromptCache, s.PromptCache)
	out.ExtraQuery = merge(base.ExtraQuery, s.ExtraQuery)
	out.ExtraBody = merge(base.ExtraBody, s.ExtraBody)
	out.ExtraArgs = merge(base.ExtraArgs, s.ExtraArgs)
	out.ExtraHeaders = merge(base.ExtraHeaders, s.ExtraHeaders)
	if s.ResponseInclude != nil {
		out.ResponseInclude = s.ResponseInclude
	}
	if s.ContextManagement != nil {
		out.ContextManagement = s.ContextManagement
	}
	return &out
}

func set[T any](dst **T, v *T) {
	if v != nil {
		*dst = v
	}
}

func merge[V any](base, over map[string]V) map[string]V {
	if len(over) == 0 {
		return base
	}
	out := make(map[string]V, len(base)+len(over))
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}
