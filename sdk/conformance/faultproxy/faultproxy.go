// SPDX-License-Identifier: Apache-2.0

// Package faultproxy stands between a driver and its vendor's API and makes go wrong what goes wrong with APIs: no
// answer, too many requests, failures, answers that are lost or replaced after the vendor has done what was asked, bodies
// that are cut off or trickle, streams that break before their last message, and sandboxes that end in the middle.
//
// Give the driver the proxy's address in place of the vendor's, and inject faults while it works. A request meets the
// first fault that fits it; without one it goes through. Streams and WebSockets go through as they come.
//
// It knows no vendor: what a vendor says when it refuses is in the fault, see [Answer].
package faultproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is what goes wrong.
type Kind uint8

// The kinds. The vendor does not see a request that meets one of the first four.
const (
	// NoAnswer holds the request until the client gives up.
	NoAnswer Kind = iota + 1
	// TooMany answers 429, with Retry-After unless Fault.RetryAfter is 0.
	TooMany
	// ServerError answers 500.
	ServerError
	// Answer answers with the fault's Status, Header and Body.
	Answer
	// LateAnswer passes the request on and, when the vendor has done it, answers as Answer does: a gateway's 504, say.
	LateAnswer
	// LostAnswer passes the request on, and breaks the connection when the vendor has answered.
	LostAnswer
	// CutBody passes the request on and breaks the connection in the middle of the answer's body: after Fault.Bytes, or
	// half-way through a body that ends. The bytes of a WebSocket count from its handshake on.
	CutBody
	// CutEnd passes the request on and breaks the connection before the last message of the answer: the end frame of a
	// stream of the Connect protocol or of gRPC-Web, the close frame of a WebSocket, the last byte of any other body.
	CutEnd
	// SlowBody passes the request on and gives the answer's body byte by byte, with a pause after each.
	SlowBody
)

// Fault is something that is to go wrong.
type Fault struct {
	Kind   Kind
	Method string                   // empty = all
	Path   string                   // prefix of the path; empty = all
	Match  func(*http.Request) bool // looks at the rest of the request, but not at its body; nil = all
	Skip   int                      // so many requests that fit go through first
	Times  int                      // how often; 0 = always

	RetryAfter time.Duration // what a TooMany says, in whole seconds; 0 = nothing
	Status     int           // of an Answer or LateAnswer; 0 = 500
	Header     http.Header   // of an Answer or LateAnswer
	Body       string        // of an Answer or LateAnswer
	Bytes      int64         // of a CutBody: so many go through; 0 = half
	Pause      time.Duration // after each byte of a SlowBody
}

// Proxy is an http.Handler. It may be used from several goroutines.
type Proxy struct {
	target    *url.URL
	transport http.RoundTripper

	mu       sync.Mutex
	faults   []*Fault              // guarded by mu
	hits     int                   // guarded by mu
	underWay map[*passage]struct{} // guarded by mu
}

// passage is a request that is being answered.
type passage struct {
	request *http.Request
	sever   context.CancelCauseFunc
}

// errSevered is why an answer breaks that [Proxy.Sever] met.
var errSevered = errors.New("the connection was severed")

// New makes a proxy before the API at target. A nil transport is the usual one.
func New(target *url.URL, transport http.RoundTripper) *Proxy {
	return &Proxy{target: target, transport: transport, underWay: map[*passage]struct{}{}}
}

// Inject adds a fault.
func (p *Proxy) Inject(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, &f)
}

// Clear takes all faults away.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// Hits is how many requests met a fault.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// Sever breaks the connections of the requests that are being answered and fit, streams and WebSockets too, and says how
// many there were. Nil fits all. Together with an [Answer] for what comes after, a sandbox ends in the middle.
func (p *Proxy) Sever(match func(*http.Request) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.underWay {
		if match == nil || match(w.request) {
			w.sever(errSevered)
			n++
		}
	}
	return n
}

// enter notes a request until leave is called. Its context ends when it is severed.
func (p *Proxy) enter(r *http.Request) (in *http.Request, leave func()) {
	ctx, sever := context.WithCancelCause(r.Context())
	w := &passage{request: r, sever: sever}
	p.mu.Lock()
	p.underWay[w] = struct{}{}
	p.mu.Unlock()
	return r.WithContext(ctx), func() {
		p.mu.Lock()
		delete(p.underWay, w)
		p.mu.Unlock()
		sever(nil)
	}
}

// take finds the fault that a request meets; the zero Fault is none.
func (p *Proxy) take(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Times < 0 || !f.fits(r) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				f.Times = -1 // used up
			}
		}
		p.hits++
		return *f
	}
	return Fault{}
}

func (f *Fault) fits(r *http.Request) bool {
	return (f.Method == "" || f.Method == r.Method) && strings.HasPrefix(r.URL.Path, f.Path) && (f.Match == nil || f.Match(r))
}

// ServeHTTP passes a request on, or makes it go wrong.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.take(r)
	r, leave := p.enter(r)
	defer leave()
	switch f.Kind {
	case NoAnswer:
		// Only who reads the request sees the client go.
		_, _ = io.Copy(io.Discard, r.Body) // whatever it holds, there is no answer
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case TooMany:
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
		}
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	case ServerError:
		http.Error(w, "something went wrong", http.StatusInternalServerError)
		return
	case Answer:
		maps.Copy(w.Header(), f.Header)
		w.WriteHeader(f.status())
		_, _ = io.WriteString(w, f.Body) // the client may be gone
		return
	case LateAnswer, LostAnswer:
		// The vendor does it, whatever becomes of the client.
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
		defer cancel(nil)
		r = r.WithContext(ctx)
	case CutBody, CutEnd, SlowBody:
	}
	p.through(w, r, f)
}

func (f *Fault) status() int {
	if f.Status == 0 {
		return http.StatusInternalServerError
	}
	return f.Status
}

// through passes a request on, and its answer back with what the fault does to it.
func (p *Proxy) through(w http.ResponseWriter, r *http.Request, f Fault) {
	// What answers before it has read all is a stream too. Where this is not known, as with HTTP/2, it is so anyway.
	_ = http.NewResponseController(w).EnableFullDuplex()
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(p.target) }, Transport: p.transport,
		FlushInterval:  -1, // at once: what is a stream has to stay one
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error { return f.spoil(r.Context(), resp) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errCut) || errors.Is(context.Cause(r.Context()), errSevered) {
				panic(http.ErrAbortHandler)
			}
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}
