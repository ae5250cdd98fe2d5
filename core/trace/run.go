// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/sdk/errs"
)

// maxText bounds a text in a span, when texts are wanted at all.
const maxText = 64 << 10

// provider is whose wire format every model of this version speaks, in the words of the conventions.
const provider = "openai"

// Run is one run in a trace: the outermost, or one inside it. It may be used from several goroutines.
type Run struct {
	t     *Trace
	id    string
	in    trace.SpanContext // that the run's span is in; not valid = none
	outer bool

	mu       sync.Mutex
	models   map[string]string // guarded by mu, as all that follows; by label of the agent
	servers  map[string]string // MCP servers, by the name of their tool
	run      trace.Span        // nil = it has not started, or has ended
	agent    trace.Span        // nil = none acts
	turn     trace.Span        // nil = none, or turns are left out
	chat     trace.Span        // nil = the model is not asked
	chatFrom time.Time
	calls    map[string]trace.Span // tool calls, by id
	asks     map[string]trace.Span // approvals, by call
	settled  time.Time             // when the last call ended
	pending  []trace.Span          // operations that have begun
}

// Run makes the outermost run.
func (t *Trace) Run(id string) *Run {
	r := t.newRun(id, t.root)
	r.outer = true
	return r
}

// Inside makes a run that this one began under a context.
func (r *Run) Inside(ctx context.Context, id string) *Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.t.newRun(id, trace.SpanContextFromContext(r.above(ctx)))
}

func (t *Trace) newRun(id string, in trace.SpanContext) *Run {
	return &Run{t: t, id: id, in: in, models: map[string]string{}, servers: map[string]string{}, calls: map[string]trace.Span{}, asks: map[string]trace.Span{}}
}

// Model says which model an agent has.
func (r *Run) Model(agent, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models[agent] = name
}

// Server says that a tool is one of an MCP server.
func (r *Run) Server(tool, server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[tool] = server
}

// start begins a span below another one.
func (r *Run) start(under trace.Span, name string, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	ctx := context.Background()
	if under != nil {
		ctx = trace.ContextWithSpan(ctx, under)
	} else if r.in.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, r.in)
	}
	return r.startIn(ctx, name, at, attrs...)
}

func (r *Run) startIn(ctx context.Context, name string, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	_, s := r.t.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(attrs...))
	return s
}

// stop ends a span, if there is one, and forgets it.
func stop(s *trace.Span, at time.Time) {
	if *s != nil {
		(*s).End(trace.WithTimestamp(at))
		*s = nil
	}
}

// fail marks a span as failed.
func (r *Run) fail(s trace.Span, code, message string) {
	s.SetAttributes(attribute.String("error.type", cmp.Or(code, "_OTHER")))
	if !r.t.o.Sensitive {
		message = code // an error's text can quote what it is about
	}
	s.SetStatus(codes.Error, r.text(message))
}

// text is a text that was asked for, without secrets and not too long.
func (r *Run) text(s string) string {
	s = r.t.redact(s)
	if len(s) > maxText {
		s = s[:maxText] + fmt.Sprintf(" [%d bytes left out]", len(s)-maxText)
	}
	return s
}

// here is the span that new ones belong under.
func (r *Run) here() trace.Span {
	for _, s := range []trace.Span{r.turn, r.agent, r.run} {
		if s != nil {
			return s
		}
	}
	return nil
}

// Event takes an event of the run's stream. Events come in order.
func (r *Run) Event(ev event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := ev.Time
	if d, ok := ev.Data.(event.RunStarted); ok {
		r.begin(ev, d)
		return
	}
	if r.run == nil {
		return // it has ended, or failed before it started
	}
	switch d := ev.Data.(type) {
	case event.TurnStarted:
		r.endTurn(at)
		if !r.t.o.NoTurns {
			r.turn = r.start(r.agent, fmt.Sprintf("turn %d", ev.Turn), at, attribute.Int("berth.turn", ev.Turn))
		}
		name := r.models[ev.Agent]
		attrs := []attribute.KeyValue{
			attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", provider),
			attribute.String("gen_ai.request.model", name), attribute.Int("berth.turn", ev.Turn),
		}
		ctx := trace.ContextWithSpan(context.Background(), r.here())
		_, r.chat = r.t.tracer.Start(ctx, "chat "+name, trace.WithTimestamp(at), trace.WithAttributes(attrs...), trace.WithSpanKind(trace.SpanKindClient))
		r.chatFrom = at
	case event.ModelRetry:
		if r.chat != nil {
			r.chat.AddEvent("retry", trace.WithTimestamp(at), trace.WithAttributes(
				attribute.Int("berth.attempt", d.Attempt), attribute.Int64("berth.after_ms", d.After.Milliseconds())))
		}
	case event.Compacted:
		s := r.start(r.chat, "compaction", r.chatFrom, attribute.Int64("berth.compaction.tokens", d.Tokens), attribute.Int("berth.compaction.items", d.Items))
		stop(&s, at)
	case event.ModelDone:
		r.answered(at, d)
	case event.ToolStarted:
		r.called(at, d)
	case event.ToolFinished:
		r.settle(at, d)
	case event.ApprovalWanted:
		r.asks[d.CallID] = r.start(r.here(), "approval "+d.Tool, at, attribute.String("gen_ai.tool.name", d.Tool), attribute.String("gen_ai.tool.call.id", d.CallID))
	case event.ApprovalDecided:
		if s := r.asks[d.CallID]; s != nil {
			s.SetAttributes(attribute.Bool("berth.approved", d.Allow))
			stop(&s, at)
			delete(r.asks, d.CallID)
		}
	case event.AgentChanged:
		r.endTurn(at)
		from := r.settled
		if from.IsZero() || from.After(at) {
			from = at
		}
		s := r.start(r.run, "handoff "+d.From+" → "+d.To, from, attribute.String("berth.handoff.from", d.From), attribute.String("berth.handoff.to", d.To))
		stop(&s, at)
		stop(&r.agent, at)
		r.act(at, d.To)
	case event.SandboxLost:
		r.run.AddEvent("sandbox lost", trace.WithTimestamp(at), trace.WithAttributes(attribute.String("berth.sandbox.id", d.SandboxID)))
	case event.RunFinished:
		r.finish(at, d)
	}
}

func (r *Run) begin(ev event.Event, d event.RunStarted) {
	o := &r.t.o
	name := ev.Agent
	if r.outer {
		name = cmp.Or(o.Workflow, name)
	}
	attrs := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "invoke_workflow"), attribute.String("gen_ai.workflow.name", name),
		attribute.String("berth.run.id", r.id), attribute.Bool("berth.run.resumed", d.Resumed),
	}
	if d.Driver != "" {
		attrs = append(attrs, attribute.String("berth.sandbox.driver", d.Driver))
	}
	if r.outer {
		if o.GroupID != "" {
			attrs = append(attrs, attribute.String("gen_ai.conversation.id", o.GroupID))
		}
		for _, k := range slices.Sorted(maps.Keys(o.Metadata)) {
			attrs = append(attrs, attribute.String("berth.metadata."+k, r.t.redact(plain(o.Metadata[k]))))
		}
	}
	if r.outer && !r.t.resumed {
		r.t.ids.use(r.t.top.SpanID())
	}
	r.run = r.start(nil, "run "+name, ev.Time, attrs...)
	r.act(ev.Time, ev.Agent)
	if o.Sensitive {
		r.agent.SetAttributes(attribute.String("gen_ai.input.messages", r.message("user", d.Input)))
	}
}

// plain is a value of a file as a text.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// act begins the span of an agent.
func (r *Run) act(at time.Time, label string) {
	r.agent = r.start(r.run, "invoke_agent "+label, at, attribute.String("gen_ai.operation.name", "invoke_agent"),
		attribute.String("gen_ai.provider.name", provider), attribute.String("gen_ai.agent.name", label), attribute.String("gen_ai.request.model", r.models[label]))
}

// message is a text in the shape that the conventions give to messages.
func (r *Run) message(role, text string) string {
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	raw, err := json.Marshal([]struct {
		Role  string `json:"role"`
		Parts []part `json:"parts"`
	}{{role, []part{{"text", r.text(text)}}}})
	if err != nil {
		return ""
	}
	return string(raw)
}

func usage(u model.Usage) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.Int64("gen_ai.usage.input_tokens", u.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", u.OutputTokens),
	}
	if u.CachedTokens > 0 {
		attrs = append(attrs, attribute.Int64("gen_ai.usage.cache_read.input_tokens", u.CachedTokens))
	}
	if u.ReasoningTokens > 0 {
		attrs = append(attrs, attribute.Int64("gen_ai.usage.reasoning.output_tokens", u.ReasoningTokens))
	}
	return attrs
}

func (r *Run) answered(at time.Time, d event.ModelDone) {
	used := usage(d.Usage)
	if r.turn != nil {
		r.turn.SetAttributes(used...)
	}
	if r.chat == nil {
		return
	}
	r.chat.SetAttributes(used...)
	if d.ResponseID != "" {
		r.chat.SetAttributes(attribute.String("gen_ai.response.id", d.ResponseID))
	}
	if r.t.o.Sensitive && d.Text != "" {
		r.chat.SetAttributes(attribute.String("gen_ai.output.messages", r.message("assistant", d.Text)))
	}
	stop(&r.chat, at)
}

func (r *Run) called(at time.Time, d event.ToolStarted) {
	kind := "function"
	attrs := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", d.Tool),
		attribute.String("gen_ai.tool.call.id", d.CallID),
	}
	if server := r.servers[d.Tool]; server != "" {
		kind = "extension"
		attrs = append(attrs, attribute.String("mcp.method.name", "tools/call"), attribute.String("berth.mcp.server", server))
	}
	attrs = append(attrs, attribute.String("gen_ai.tool.type", kind))
	if r.t.o.Sensitive {
		attrs = append(attrs, attribute.String("gen_ai.tool.call.arguments", r.text(d.Arguments)))
	}
	r.calls[d.CallID] = r.start(r.here(), "execute_tool "+d.Tool, at, attrs...)
}

func (r *Run) settle(at time.Time, d event.ToolFinished) {
	r.settled = at
	s := r.calls[d.CallID]
	if s == nil {
		return
	}
	delete(r.calls, d.CallID)
	if r.t.o.Sensitive && d.Text != "" {
		s.SetAttributes(attribute.String("gen_ai.tool.call.result", r.text(d.Text)))
	}
	switch {
	case d.Code == "suspended":
		s.SetAttributes(attribute.Bool("berth.suspended", true))
	case !d.OK:
		r.fail(s, d.Code, d.Summary)
	}
	stop(&s, at)
}

func (r *Run) endTurn(at time.Time) {
	stop(&r.chat, at)
	stop(&r.turn, at)
}

func (r *Run) finish(at time.Time, d event.RunFinished) {
	bad := d.Status == "failed" || d.Status == "max_turns" || d.Status == "budget"
	code := cmp.Or(d.Code, d.Status)
	if bad && r.chat != nil {
		r.fail(r.chat, code, d.Error)
	}
	for _, open := range []map[string]trace.Span{r.calls, r.asks} {
		for id, s := range open {
			s.SetAttributes(attribute.Bool("berth.unfinished", true))
			stop(&s, at)
			delete(open, id)
		}
	}
	r.endTurn(at)
	used := append(usage(d.Usage), attribute.String("berth.run.status", d.Status), attribute.Int("berth.run.turns", d.Turns))
	for _, s := range []trace.Span{r.agent, r.run} {
		if s == nil {
			continue
		}
		if bad {
			r.fail(s, code, d.Error)
		}
	}
	r.run.SetAttributes(used...)
	if r.t.o.Sensitive && d.Output != "" {
		r.agent.SetAttributes(attribute.String("gen_ai.output.messages", r.message("assistant", d.Output)))
	}
	for i := range r.pending {
		stop(&r.pending[i], at)
	}
	r.pending = nil
	stop(&r.agent, at)
	stop(&r.run, at)
}

// inKey is the key of the operation that a context is in.
type inKey struct{}

type within struct {
	run  *Run
	span trace.Span
}

var _ ops.Observer = (*Run)(nil)

// above gives a context with the span that something done under a context belongs to.
func (r *Run) above(ctx context.Context) context.Context {
	var s trace.Span
	if in, ok := ctx.Value(inKey{}).(within); ok && in.run == r {
		s = in.span
	}
	if w := ops.Of(ctx); s == nil && w.Run == r.id && w.Call != "" {
		s = r.calls[w.Call]
	}
	if s == nil {
		s = r.here()
	}
	if s == nil {
		return trace.ContextWithRemoteSpanContext(context.Background(), r.in)
	}
	return trace.ContextWithSpan(context.Background(), s)
}

// Begin makes the span of an operation.
func (r *Run) Begin(ctx context.Context, op ops.Op) (context.Context, func(ops.End), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := string(op.Kind)
	attrs := []attribute.KeyValue{attribute.String("berth.operation", name)}
	if op.Sandbox != "" {
		attrs = append(attrs, attribute.String("berth.sandbox.id", op.Sandbox), attribute.String("berth.sandbox.driver", op.Driver))
	}
	if op.Name != "" {
		name += " " + op.Name
		attrs = append(attrs, attribute.String("berth.target", op.Name))
	}
	s := r.startIn(r.above(ctx), name, r.t.o.Now(), attrs...)
	r.pending = append(r.pending, s)
	var once sync.Once
	return context.WithValue(ctx, inKey{}, within{r, s}), func(end ops.End) { once.Do(func() { r.ended(s, end) }) }, nil
}

func (r *Run) ended(s trace.Span, end ops.End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end.Code != nil {
		s.SetAttributes(attribute.Int("process.exit.code", *end.Code))
	}
	if end.Tripped {
		s.SetAttributes(attribute.Bool("berth.guardrail.tripped", true))
	}
	if end.Err != nil {
		code := "_OTHER"
		switch e, ok := errors.AsType[*errs.Error](end.Err); {
		case ok:
			code = string(e.Code)
		case errors.Is(end.Err, context.Canceled):
			code = string(errs.Canceled)
		}
		r.fail(s, code, end.Err.Error())
	}
	r.pending = slices.DeleteFunc(r.pending, func(p trace.Span) bool { return p == s })
	stop(&s, r.t.o.Now())
}
