// SPDX-License-Identifier: Apache-2.0

// Package modeltest is a local server that speaks the wire formats of the Responses and Chat Completions APIs as the
// vendor documents them: streaming, errors, limits, streams that break off. It answers from a transcript and refuses
// what the vendor refuses. See https://platform.openai.com/docs/api-reference (checked against the documents, not
// against the vendor's servers).
package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/model/replay"
)

// Key is the only API key that the server takes.
const Key = "sk-test-0123456789"

// Fault is what a request gets instead of, or on top of, its answer.
type Fault struct {
	Status     int    // an error answer with this status
	Code       string // its error code
	Message    string
	RetryAfter string // header
	CutAfter   int    // close the connection after so many bytes of the stream
	Event      string // code of an error event in the middle of the stream
}

// Request is a request as it was seen.
type Request struct {
	Path   string
	Header http.Header
	Body   map[string]any
}

// Server is the server. Faults are used up by the first requests, a nil one lets its request pass.
type Server struct {
	URL string // base URL, with /v1

	transcript *replay.Transcript

	mu       sync.Mutex
	faults   []*Fault  // guarded by mu
	requests []Request // guarded by mu
}

// New starts a server that ends with the test.
func New(tb testing.TB, transcript string, faults ...*Fault) *Server {
	tb.Helper()
	t, err := replay.Parse(strings.NewReader(transcript))
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{transcript: t, faults: faults}
	hs := httptest.NewServer(s)
	tb.Cleanup(hs.Close)
	s.URL = hs.URL + "/v1"
	return s
}

// Requests gives what was sent so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", "req_test")
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		refuse(w, &refusal{http.StatusBadRequest, "", "We could not parse the JSON body of your request."})
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{Path: r.URL.Path, Header: r.Header.Clone(), Body: body})
	var fault *Fault
	if len(s.faults) > 0 {
		fault, s.faults = s.faults[0], s.faults[1:]
	}
	s.mu.Unlock()
	if fault == nil {
		fault = &Fault{}
	}
	if r.Header.Get("Authorization") != "Bearer "+Key {
		refuse(w, &refusal{http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided."})
		return
	}
	if fault.RetryAfter != "" {
		w.Header().Set("Retry-After", fault.RetryAfter)
	}
	if fault.Status != 0 {
		refuse(w, &refusal{fault.Status, fault.Code, fault.Message})
		return
	}
	var events []string
	var bad *refusal
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/responses":
		events, bad = s.responses(body)
	case "POST /v1/chat/completions":
		events, bad = s.chat(body)
	default:
		bad = &refusal{http.StatusNotFound, "", fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path)}
	}
	if bad != nil {
		refuse(w, bad)
		return
	}
	stream(w, events, fault)
}

type refusal struct {
	status  int
	code    string
	message string
}

func refuse(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	var code any
	if r.code != "" {
		code = r.code
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"message": r.message, "type": "invalid_request_error", "param": nil, "code": code,
	}})
}

// stream writes the events, and breaks off where the fault says.
func stream(w http.ResponseWriter, events []string, f *Fault) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flusher, _ := w.(http.Flusher)
	left := f.CutAfter
	for i, ev := range events {
		if f.Event != "" && i == len(events)/2 {
			ev = fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"code\":%q,\"message\":\"The server had an error.\",\"error\":{\"code\":%q,\"message\":\"The server had an error.\"}}\n\n", f.Event, f.Event)
		}
		if f.CutAfter > 0 && len(ev) > left {
			_, _ = io.WriteString(w, ev[:left])
			flusher.Flush()
			panic(http.ErrAbortHandler) // the way to cut a connection
		}
		left -= len(ev)
		if _, err := io.WriteString(w, ev); err != nil {
			return
		}
		flusher.Flush()
	}
}

// known refuses members that the API does not have.
func known(body map[string]any, names ...string) *refusal {
	for k := range body {
		if !slices.Contains(names, k) {
			return &refusal{http.StatusBadRequest, "unknown_parameter", fmt.Sprintf("Unknown parameter: '%s'.", k)}
		}
	}
	for _, k := range names[:2] {
		if body[k] == nil {
			return &refusal{http.StatusBadRequest, "missing_required_parameter", fmt.Sprintf("Missing required parameter: '%s'.", k)}
		}
	}
	if body["stream"] != true {
		return &refusal{http.StatusBadRequest, "", "this server only streams"}
	}
	return nil
}

func (s *Server) turn(n int, tools []model.ToolSpec) (*model.Response, *refusal) {
	if n >= len(s.transcript.Turns) {
		return nil, &refusal{http.StatusInternalServerError, "server_error", "the transcript has ended"}
	}
	res, err := s.transcript.Turns[n].Response(n, tools)
	if err != nil {
		return nil, &refusal{http.StatusInternalServerError, "server_error", err.Error()}
	}
	return res, nil
}

func members(v any) []map[string]any {
	list, _ := v.([]any)
	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// chunks cuts a text as a model's tokens would be.
func chunks(s string) []string {
	var out []string
	for len(s) > 0 {
		n := min(7, len(s))
		for n < len(s) && s[n]&0xC0 == 0x80 {
			n++
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}
