// SPDX-License-Identifier: Apache-2.0

// Package model is the harness's view of a language model: requests, responses, items, usage, and the [Model]
// interface that providers implement (core/model/openai, core/model/replay).
//
// A transcript is a list of [Item], each one an item of the OpenAI Responses API as JSON. It is encoded once, when it
// is made, and then only passed on: a request is a concatenation. Providers with another wire format convert.
package model

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/berth-dev/berth/core/spec"
)

// Model answers requests. It may be used from several goroutines.
type Model interface {
	// Stream sends one request and yields what comes, in order. The last event of a good stream is [Done]; any failure
	// is the last pair's error, an [*Error]. Retries inside are the provider's and show as [Retrying].
	Stream(ctx context.Context, req *Request) iter.Seq2[Event, error]
	// Supports says what the provider can be asked for.
	Supports() Support
}

// Support is what a provider can be asked for.
type Support struct {
	CustomTools     bool // free-form tools with a grammar
	BuiltinPatch    bool // the provider's own apply_patch tool
	HostedTools     bool
	ImageToolOutput bool // images in tool results
	ParallelTools   bool
	Reasoning       bool
	Compaction      bool
	StoredPrompt    bool
}

// Request is one model call.
type Request struct {
	Model        string
	Instructions string
	Items        []Item
	Tools        []ToolSpec
	Settings     *spec.ModelSettings // may be nil
	OutputSchema *OutputSchema       // nil = text
	// Turn is which call of the run it is, from 1. Cut says that the items do not begin with the run's first, Call that the
	// run is a call of another run's tool.
	Turn int
	Cut  bool
	Call string
	// IdempotencyKey is the same for all attempts of one call.
	IdempotencyKey string
}

// OutputSchema asks for JSON.
type OutputSchema struct {
	Name   string
	Schema json.RawMessage
	Strict bool
}

// ToolKind is how a tool is offered.
type ToolKind string

// The kinds.
const (
	ToolFunction ToolKind = "function"
	ToolCustom   ToolKind = "custom"      // free-form input with a grammar
	ToolPatch    ToolKind = "apply_patch" // the provider's own
	ToolHosted   ToolKind = "hosted"      // runs at the provider; Raw is sent as it is
)

// ToolSpec tells the model about a tool.
type ToolSpec struct {
	Kind        ToolKind
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of a function
	Strict      bool
	Grammar     *Grammar        // of a custom tool
	Raw         json.RawMessage // of a hosted tool
}

// Grammar restricts a custom tool's input.
type Grammar struct {
	Syntax     string // lark or regex
	Definition string
}

// Response is a finished answer.
type Response struct {
	ID         string
	RequestID  string
	Model      string
	Items      []Item
	Usage      Usage
	Refusal    string
	Incomplete string // why the answer ended early: max_output_tokens, content_filter
}

// Usage counts tokens.
type Usage struct {
	Requests        int64 `json:"requests"`
	InputTokens     int64 `json:"input_tokens"`
	CachedTokens    int64 `json:"cached_tokens,omitempty"`
	OutputTokens    int64 `json:"output_tokens"`
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
	TotalTokens     int64 `json:"total_tokens"`
}

// Add gives the sum.
func (u Usage) Add(v Usage) Usage {
	u.Requests += v.Requests
	u.InputTokens += v.InputTokens
	u.CachedTokens += v.CachedTokens
	u.OutputTokens += v.OutputTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.TotalTokens += v.TotalTokens
	return u
}

// Event is what a stream yields: [TextDelta], [ReasoningDelta], [ItemDone], [Retrying] or [Done].
type Event interface{ modelEvent() }

// TextDelta is more of the answer's text.
type TextDelta struct{ Text string }

// ReasoningDelta is more of a reasoning summary.
type ReasoningDelta struct{ Text string }

// ItemDone is an item that is complete. It will be in the response too.
type ItemDone struct{ Item Item }

// Retrying says that an attempt failed and another follows. Deltas of the failed attempt are void.
type Retrying struct {
	Attempt int // the one that failed, from 1
	After   time.Duration
	Err     error
}

// Done is the end of a good stream.
type Done struct{ Response *Response }

func (TextDelta) modelEvent()      {}
func (ReasoningDelta) modelEvent() {}
func (ItemDone) modelEvent()       {}
func (Retrying) modelEvent()       {}
func (Done) modelEvent()           {}

// Error is a failed call.
type Error struct {
	Kind       ErrorKind
	HTTPStatus int
	Code       string // the provider's
	RequestID  string
	RetryAfter time.Duration
	Message    string
	Hint       string
	Err        error
}

// ErrorKind classifies a failed call.
type ErrorKind string

// The kinds.
const (
	ErrAuth       ErrorKind = "auth"
	ErrRateLimit  ErrorKind = "rate_limit"
	ErrQuota      ErrorKind = "quota"
	ErrBadRequest ErrorKind = "bad_request"
	ErrContext    ErrorKind = "context_length"
	ErrNetwork    ErrorKind = "network"
	ErrServer     ErrorKind = "server"
	ErrTimeout    ErrorKind = "timeout"
	ErrRefused    ErrorKind = "content_filter"
	ErrProtocol   ErrorKind = "protocol" // the answer makes no sense
	ErrReplay     ErrorKind = "replay"   // the transcript does not fit the run
)

// Error says what happened.
func (e *Error) Error() string {
	s := "model: " + e.Message
	if e.Message == "" && e.Err != nil {
		s = "model: " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
