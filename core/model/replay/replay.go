// SPDX-License-Identifier: Apache-2.0

// Package replay is a model that plays a transcript, written by hand or recorded from a real run, and the recorder that
// makes one. With it a project runs without a key and without a network, and a test always sees the same answers; the
// tools really run.
package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/berth-dev/berth/core/model"
)

// Model plays one transcript for one run. Which turn is next it sees from the request, so that a run that was resumed
// goes on where it was.
type Model struct {
	transcript *Transcript

	mu    sync.Mutex
	items int // guarded by mu; length of the last request
	turn  int // guarded by mu; turns that the last request held
}

// New makes a model that plays a transcript.
func New(t *Transcript) *Model { return &Model{transcript: t} }

// Supports says that everything the harness itself does can be asked for.
func (*Model) Supports() model.Support {
	return model.Support{CustomTools: true, ImageToolOutput: true, ParallelTools: true, Reasoning: true}
}

// Stream plays the next turn.
func (m *Model) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		res, err := m.next(req)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, it := range res.Items {
			if text := messageText(it); text != "" && !yield(model.TextDelta{Text: text}, nil) {
				return
			}
			if !yield(model.ItemDone{Item: it}, nil) {
				return
			}
		}
		yield(model.Done{Response: res}, nil)
	}
}

func (m *Model) next(req *model.Request) (*model.Response, error) {
	var turns []*Turn
	for i := range m.transcript.Turns {
		if t := &m.transcript.Turns[i]; t.InCall == req.Call {
			turns = append(turns, t)
		}
	}
	n := req.Turn - 1
	if req.Call == "" && !req.Cut {
		n = m.position(req.Items)
	}
	if n >= len(turns) {
		return nil, &model.Error{
			Kind: model.ErrReplay, Message: fmt.Sprintf("the transcript ends after %d turns, the run wants another", n),
			Hint: "the run went another way than the transcript; record it again with --record",
		}
	}
	t := turns[n]
	if err := t.check(n, req.Items); err != nil {
		return nil, err
	}
	return t.Response(n, req.Tools)
}

// position counts the answers in the request: a run of items that a model makes is one.
func (m *Model) position(items []model.Item) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(items) < m.items {
		m.items, m.turn = 0, 0
	}
	for i := m.items; i < len(items); i++ {
		if made(items[i]) && (i == 0 || !made(items[i-1])) {
			m.turn++
		}
	}
	m.items = len(items)
	return m.turn
}

// made reports whether a model makes such an item.
func made(it model.Item) bool {
	switch it.Type {
	case model.ItemMessage:
		var head struct {
			Role string `json:"role"`
		}
		return json.Unmarshal(it.Raw, &head) == nil && head.Role == "assistant"
	case model.ItemFunctionCallOutput, model.ItemCustomToolCallOutput, model.ItemPatchCallOutput:
		return false
	case model.ItemReasoning, model.ItemFunctionCall, model.ItemCustomToolCall, model.ItemPatchCall, model.ItemCompaction:
		return true
	default:
		return true
	}
}

// check holds what the tools gave against what the turn expects.
func (t *Turn) check(n int, items []model.Item) error {
	if len(t.Expect) == 0 {
		return nil
	}
	var outputs strings.Builder
	for i := len(items) - 1; i >= 0 && !made(items[i]); i-- {
		var out struct {
			Output json.RawMessage `json:"output"`
		}
		if json.Unmarshal(items[i].Raw, &out) == nil {
			var text string
			if json.Unmarshal(out.Output, &text) != nil {
				text = string(out.Output)
			}
			outputs.WriteString(text + "\n")
		}
	}
	for _, want := range t.Expect {
		if !strings.Contains(outputs.String(), want) {
			return &model.Error{
				Kind:    model.ErrReplay,
				Message: fmt.Sprintf("turn %d (line %d) expects the tools to have answered %q, they answered: %s", n+1, t.line, want, clip(outputs.String())),
				Hint:    "the run went another way than the transcript",
			}
		}
	}
	return nil
}

func clip(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func messageText(it model.Item) string {
	if it.Type != model.ItemMessage {
		return ""
	}
	var m struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(it.Raw, &m) != nil {
		return ""
	}
	var b strings.Builder
	for _, c := range m.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// Recorder passes everything on to a model and writes its answers as a transcript.
type Recorder struct {
	model.Model
	to *tape
}

// tape is where recorders write.
type tape struct {
	mu  sync.Mutex
	w   io.Writer // guarded by mu
	err error     // guarded by mu
}

// NewRecorder starts a transcript on w.
func NewRecorder(m model.Model, name string, w io.Writer) (*Recorder, error) {
	r := &Recorder{Model: m, to: &tape{w: w}}
	return r, r.to.write(header{Version: version, Model: name})
}

// Of writes the answers of another model into the same transcript.
func (r *Recorder) Of(m model.Model) *Recorder { return &Recorder{Model: m, to: r.to} }

// Stream passes the events on. An answer is written when it is complete, before the reader gets it.
func (r *Recorder) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for ev, err := range r.Model.Stream(ctx, req) {
			if done, ok := ev.(model.Done); ok && err == nil {
				t := Turn{InCall: req.Call, ResponseID: done.Response.ID, Usage: &done.Response.Usage, Items: []json.RawMessage{}}
				for _, it := range done.Response.Items {
					t.Items = append(t.Items, it.Raw)
				}
				if werr := r.to.write(t); werr != nil {
					yield(nil, fmt.Errorf("write the transcript: %w", werr))
					return
				}
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

func (r *tape) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		_, r.err = r.w.Write(append(b, '\n'))
	}
	return r.err
}
