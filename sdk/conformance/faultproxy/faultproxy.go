// SPDX-License-Identifier: Apache-2.0

// Package faultproxy stands between a driver and its vendor's API and makes go wrong what goes wrong with APIs: no
// answer, too many requests, failures, bodies that are cut off or trickle, and answers that are lost after the vendor has
// done what was asked.
//
// Give the driver the proxy's address in place of the vendor's, and inject faults while it works. A request meets the
// first fault that fits it; without one it goes through.
package faultproxy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is what goes wrong.
type Kind uint8

// The kinds.
const (
	// NoAnswer holds the request until the client gives up. The vendor does not see it.
	NoAnswer Kind = iota + 1
	// TooMany answers 429 with Retry-After. The vendor does not see the request.
	TooMany
	// ServerError answers 500. The vendor does not see the request.
	ServerError
	// CutBody passes the request on and breaks the connection in the middle of the answer's body.
	CutBody
	// SlowBody passes the request on and gives the answer's body byte by byte, with a pause after each.
	SlowBody
	// LostAnswer passes the request on, and breaks the connection when the vendor has answered.
	LostAnswer
)

// Fault is something that is to go wrong.
type Fault struct {
	Kind   Kind
	Method string // empty = all
	Path   string // prefix of the path; empty = all
	Skip   int    // so many requests that fit go through first
	Times  int    // how often; 0 = always
	// RetryAfter is what a TooMany says, in whole seconds.
	RetryAfter time.Duration
	// Pause is after each byte of a SlowBody.
	Pause time.Duration
}

// Proxy is an http.Handler. It may be used from several goroutines.
type Proxy struct {
	target    *url.URL
	transport http.RoundTripper

	mu     sync.Mutex
	faults []*Fault // guarded by mu
	hits   int      // guarded by mu
}

// New makes a proxy before the API at target. A nil transport is the usual one.
func New(target *url.URL, transport http.RoundTripper) *Proxy {
	if transport == nil {
		transport = http.DefaultTransport
	}
	return &Proxy{target: target, transport: transport}
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

// take finds the fault that a request meets; the zero Fault is none.
func (p *Proxy) take(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Method != "" && f.Method != r.Method || !strings.HasPrefix(r.URL.Path, f.Path) || f.Times < 0 {
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

// ServeHTTP passes a request on, or makes it go wrong.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.take(r)
	switch f.Kind { //nolint:exhaustive // the others let the request through first
	case NoAnswer:
		// Only who reads the request sees the client go.
		_, _ = io.Copy(io.Discard, r.Body) // whatever it holds, there is no answer
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case TooMany:
		w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	case ServerError:
		http.Error(w, "something went wrong", http.StatusInternalServerError)
		return
	}
	ctx := r.Context()
	if f.Kind == LostAnswer {
		// The vendor does it, whatever becomes of the client.
		ctx = context.WithoutCancel(ctx)
	}
	resp, err := p.transport.RoundTrip(p.outgoing(ctx, r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close() // it was read
	p.answer(w, resp, f)
}

func (p *Proxy) outgoing(ctx context.Context, r *http.Request) *http.Request {
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.URL.Path = strings.TrimSuffix(p.target.Path, "/") + r.URL.Path
	out.Host = p.target.Host
	out.Header.Del("Connection")
	return out
}

func (p *Proxy) answer(w http.ResponseWriter, resp *http.Response, f Fault) {
	if f.Kind == LostAnswer {
		_, _ = io.Copy(io.Discard, resp.Body) // nobody gets it
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), resp.Header)
	if f.Kind == CutBody {
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			// The length of the whole is announced, so that the client can tell.
			w.Header().Set("Content-Length", strconv.Itoa(max(len(body), 1)))
			w.WriteHeader(resp.StatusCode)
			_, _ = w.Write(body[:len(body)/2]) // the client may be gone
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(resp.StatusCode)
	if f.Kind != SlowBody {
		_, _ = io.Copy(w, resp.Body) // the client may be gone
		return
	}
	flush := http.NewResponseController(w)
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			return
		}
		if _, err := w.Write(b); err != nil {
			return
		}
		_ = flush.Flush() // Write tells
		t := time.NewTimer(f.Pause)
		select {
		case <-t.C:
		case <-resp.Request.Context().Done():
			t.Stop()
			return
		}
	}
}
