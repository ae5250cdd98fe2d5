// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// FileName is the file of a run's spans in its directory: one JSON object a line. A span has a line when it begins, and a
// whole one when it has ended, so that a run that goes on, or was killed, can be looked at.
const FileName = "trace.jsonl"

// maxWaiting bounds the lines that wait for the disk.
const maxWaiting = 65536

// Span is a line of the file.
type Span struct {
	TraceID  string         `json:"trace_id"`
	SpanID   string         `json:"span_id"`
	ParentID string         `json:"parent_id,omitempty"`
	Name     string         `json:"name"`
	Kind     string         `json:"kind,omitempty"`
	Start    time.Time      `json:"start"`
	End      *time.Time     `json:"end,omitempty"`    // nil = it has only begun
	Status   string         `json:"status,omitempty"` // error, ok; empty = nothing is said
	Message  string         `json:"message,omitempty"`
	Attrs    map[string]any `json:"attributes,omitempty"`
	Events   []SpanEvent    `json:"events,omitempty"`
	// Lost is how many lines before this one could not be kept.
	Lost int `json:"lost,omitempty"`
}

// SpanEvent is something that happened during a span.
type SpanEvent struct {
	Name  string         `json:"name"`
	Time  time.Time      `json:"time"`
	Attrs map[string]any `json:"attributes,omitempty"`
}

// file is a span processor that writes, in a goroutine of its own.
type file struct {
	f    *os.File
	warn func(message, hint string)
	done chan struct{}

	mu    sync.Mutex
	queue []sdktrace.ReadOnlySpan // guarded by mu; what has not ended yet is a begun
	lost  int                     // guarded by mu
	over  bool                    // guarded by mu
	wake  chan struct{}           // holds one
}

// begun is a span as it was when it began.
type begun struct {
	sdktrace.ReadOnlySpan
	attrs []attribute.KeyValue
}

func (b begun) Attributes() []attribute.KeyValue { return b.attrs }
func (begun) EndTime() time.Time                 { return time.Time{} }

func openFile(dir string, warn func(message, hint string)) (*file, error) {
	f, err := os.OpenFile(filepath.Join(dir, FileName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the trace of the run: %w", err)
	}
	if err := endLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("the trace of the run: %w", err), f.Close())
	}
	w := &file{f: f, warn: warn, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go w.work()
	return w, nil
}

// endLine ends a line that a process which was killed left without an end.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

// OnStart takes a span that begins.
func (w *file) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { w.add(begun{s, s.Attributes()}) }

// OnEnd takes a span that has ended.
func (w *file) OnEnd(s sdktrace.ReadOnlySpan) { w.add(s) }

// ForceFlush and Shutdown have nothing to do: close waits.
func (*file) ForceFlush(context.Context) error { return nil }

// Shutdown is part of the interface.
func (*file) Shutdown(context.Context) error { return nil }

func (w *file) add(s sdktrace.ReadOnlySpan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || len(w.queue) >= maxWaiting {
		w.lost++
		return
	}
	w.queue = append(w.queue, s)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// work writes what comes until the file is closed.
func (w *file) work() {
	defer close(w.done)
	var spare []sdktrace.ReadOnlySpan
	var buf bytes.Buffer
	failed := false
	for range w.wake {
		w.mu.Lock()
		batch, lost, over := w.queue, w.lost, w.over
		w.queue, w.lost = spare[:0], 0
		w.mu.Unlock()
		buf.Reset()
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		for _, s := range batch {
			line := lineOf(s)
			line.Lost, lost = lost, 0
			if err := enc.Encode(&line); err != nil {
				lost++ // an attribute that JSON does not have, such as NaN
			}
		}
		clear(batch)
		spare = batch
		if _, err := w.f.Write(buf.Bytes()); err != nil && !failed {
			failed = true
			w.warn("the trace of the run cannot be written: "+err.Error(), "the run goes on without it")
		}
		if over {
			return
		}
	}
}

// close writes what waits, and closes the file.
func (w *file) close() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	<-w.done
	_ = w.f.Close() // what could not be written was told
}

func lineOf(s sdktrace.ReadOnlySpan) Span {
	sc, p := s.SpanContext(), s.Parent()
	line := Span{
		TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), Name: s.Name(), Start: s.StartTime().UTC(), Attrs: values(s.Attributes()),
	}
	if p.SpanID().IsValid() {
		line.ParentID = p.SpanID().String()
	}
	if s.SpanKind() == trace.SpanKindClient {
		line.Kind = "client"
	}
	if end := s.EndTime(); !end.IsZero() {
		end = end.UTC()
		line.End = &end
		for _, ev := range s.Events() {
			line.Events = append(line.Events, SpanEvent{Name: ev.Name, Time: ev.Time.UTC(), Attrs: values(ev.Attributes)})
		}
		switch st := s.Status(); st.Code {
		case codes.Error:
			line.Status, line.Message = "error", st.Description
		case codes.Ok:
			line.Status = "ok"
		case codes.Unset:
		}
	}
	return line
}

func values(attrs []attribute.KeyValue) map[string]any {
	if len(attrs) == 0 {
		return nil
	}
	out := make(map[string]any, len(attrs))
	for _, kv := range attrs {
		out[string(kv.Key)] = kv.Value.AsInterface()
	}
	return out
}

// ReadFile reads the spans of a run's directory, each once, in the order in which they began. It also says how many lines
// were not kept or cannot be read. A run without a trace is fs.ErrNotExist.
func ReadFile(dir string) (spans []Span, lost int, err error) {
	f, err := os.Open(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("the run in %s has no trace: %w", dir, err)
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() // it was only read
	return readSpans(f)
}

func readSpans(r io.Reader) (spans []Span, lost int, err error) {
	at := map[string]int{} // of a span, in spans
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return spans, lost, nil // what has no end yet is being written
		}
		if err != nil {
			return spans, lost, err
		}
		var s Span
		if json.Unmarshal(line, &s) != nil || s.SpanID == "" {
			if len(bytes.TrimSpace(line)) > 0 {
				lost++
			}
			continue
		}
		lost += s.Lost
		if i, ok := at[s.SpanID]; ok {
			if s.End != nil {
				spans[i] = s
			}
			continue
		}
		at[s.SpanID] = len(spans)
		spans = append(spans, s)
	}
}
