// SPDX-License-Identifier: Apache-2.0

// Package trace makes OpenTelemetry spans of a run: of the events that the run's stream has anyway, and of the operations
// that core/ops tells of. They are named and attributed by the semantic conventions for generative AI (gen_ai.*).
//
// They go to a file in the run's directory ([FileName]), and to a collector where one is configured. Neither ever holds a
// run up: spans wait in bounded queues, and what a collector does not take is dropped. No span has a text, an argument,
// an output, a path or a command, unless [Options.Sensitive] says so; what is known as a secret is taken out then too.
package trace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/internal/version"
)

// flushTime bounds how long the end of a run waits for a collector.
const flushTime = 2 * time.Second

// Config is what the host says about traces. The zero Config keeps the file only, unless the environment names a collector.
type Config struct {
	OTLP   *OTLP
	Redact func(string) string         // takes secrets out; nil = nothing is known to be one
	Warn   func(message, hint string)  // is told once when spans cannot be delivered; nil = nobody is
	Getenv func(string) (string, bool) // of the variables that berth reads itself; nil = the process's
}

// Options say what is special about the trace of a run.
type Options struct {
	Dir       string // of the run
	ID        string // of the trace, as the file gives it; empty = a new one
	Parent    string // that the run goes on from, as [Trace.Parent] gave it; empty = it is new
	APIKey    string // for the collector, as a bearer token
	Workflow  string
	GroupID   string
	Metadata  map[string]any
	Sensitive bool
	NoTurns   bool // leave the spans of turns out
	Now       func() time.Time
}

// Trace is the trace of a run with all the runs inside it. It may be used from several goroutines.
type Trace struct {
	o        Options
	redact   func(string) string
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	file     *file
	export   *export // nil = there is no collector
	warn     func(message, hint string)
	root     trace.SpanContext // that the run's span is in: that of the first process, or of whoever started berth
	top      trace.SpanContext // the run's span, in this process or the first one
	resumed  bool
	ids      *ids
}

// Open begins to trace. Its error is one of the configuration, or of the file.
func Open(ctx context.Context, cfg Config, o Options) (*Trace, error) {
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string, string) {}
	}
	if cfg.Getenv == nil {
		cfg.Getenv = os.LookupEnv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Trace{o: o, redact: cfg.Redact, warn: cfg.Warn}
	var err error
	if t.root, err = parent(o.Parent); err != nil {
		return nil, err
	}
	t.ids = newIDs(traceID(o.ID))
	if t.top = t.root; t.top.IsValid() {
		t.resumed = true
	} else {
		if outer, ok := cfg.Getenv("TRACEPARENT"); ok && o.ID == "" {
			// Whoever started berth is traced too. What it says wrongly is its business, and no reason not to run.
			if t.root, _ = parent(outer); t.root.IsValid() {
				t.ids.trace = t.root.TraceID()
			}
		}
		t.top = trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.ids.trace, SpanID: t.ids.NewSpanID(ctx, t.ids.trace), TraceFlags: trace.FlagsSampled})
	}
	if t.export, err = newExport(ctx, cfg, o.APIKey); err != nil {
		return nil, err
	}
	if t.file, err = openFile(o.Dir, cfg.Warn); err != nil {
		return nil, errors.Join(err, t.closeExport(ctx))
	}
	about, err := resource.Merge(resource.NewSchemaless(
		attribute.String("service.name", "berth"), attribute.String("service.version", version.String()),
	), resource.Environment())
	if err != nil {
		about = resource.NewSchemaless(attribute.String("service.name", "berth"))
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(about), sdktrace.WithIDGenerator(t.ids), sdktrace.WithSpanProcessor(t.file),
	}
	if t.export != nil {
		opts = append(opts, sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(t.export)))
	}
	t.provider = sdktrace.NewTracerProvider(opts...)
	t.tracer = t.provider.Tracer("github.com/berth-dev/berth/core/trace", trace.WithInstrumentationVersion(version.String()))
	return t, nil
}

// Parent is what a resume of the run needs to go on in this trace: a W3C traceparent.
func (t *Trace) Parent() string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), t.top), carrier)
	return carrier["traceparent"]
}

// Close delivers what waits, and waits for it, but not long.
func (t *Trace) Close(ctx context.Context) {
	limit := flushTime
	if t.export != nil && t.export.failing() {
		limit /= 10 // it has been told already
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, errSlow)
	defer cancel()
	t.file.close() // it is there whatever the collector does
	err := t.provider.Shutdown(ctx)
	if err != nil && t.export != nil {
		t.export.fail(context.Cause(ctx), err)
	}
	_ = t.closeExport(ctx) // a collector that is not there cannot be told that this is the end
}

var errSlow = fmt.Errorf("it did not take all spans within %s", flushTime)

func (t *Trace) closeExport(ctx context.Context) error {
	if t.export == nil {
		return nil
	}
	return t.export.stop(ctx)
}

// parent reads a traceparent; empty = none.
func parent(text string) (trace.SpanContext, error) {
	if text == "" {
		return trace.SpanContext{}, nil
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return sc, fmt.Errorf("%q is no W3C traceparent", text)
	}
	return sc, nil
}

// traceID makes the id of a trace of what a file calls it: 32 hexadecimal digits are taken as they are, of any other text
// the same id is made each time.
func traceID(text string) trace.TraceID {
	var id trace.TraceID
	if text == "" {
		return id
	}
	digits := strings.TrimPrefix(strings.ToLower(text), "trace_")
	if n, err := hex.Decode(id[:], []byte(digits[:min(len(digits), 2*len(id))])); err == nil && n == len(id) && len(digits) == 2*n && id.IsValid() {
		return id
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

// ids makes the ids of spans.
type ids struct {
	trace trace.TraceID

	mu   sync.Mutex
	next trace.SpanID // guarded by mu; of the next span, when it is valid
}

func newIDs(id trace.TraceID) *ids {
	for !id.IsValid() {
		rand.Read(id[:])
	}
	return &ids{trace: id}
}

// use gives the next span an id.
func (g *ids) use(id trace.SpanID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = id
}

// NewIDs is asked for the first span of a trace.
func (g *ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return g.trace, g.NewSpanID(ctx, g.trace)
}

// NewSpanID is asked for every other.
func (g *ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := g.next
	g.next = trace.SpanID{}
	for !id.IsValid() {
		rand.Read(id[:])
	}
	return id
}
