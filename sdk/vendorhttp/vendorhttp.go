// SPDX-License-Identifier: Apache-2.0

// Package vendorhttp is the HTTP client that drivers of hosted sandboxes share: deadlines, bounded retries, and errors
// that say what the vendor said and hold no credential.
//
// # What is repeated
//
// A request is repeated in two cases only. Either nothing was done: no connection came about, or the vendor refused it
// and the error's class is errs.RetrySafe (429 by default; [Options.Classify] knows the vendor's own words). Or it does
// no harm to do it twice, [Request.Repeatable], and the failure may pass: a connection that broke, an answer that did
// not come in time, 408, 500, 502, 503 and 504. What is not repeatable and may have begun comes back at once with
// MaybeApplied set, and the caller has to look. Between attempts lies a random time that doubles at most; Retry-After,
// in seconds or as a date, is the least of it. A wish that is longer than [Options.MaxWait] ends the attempts, and the
// error carries it.
//
// # Connections
//
// Idle connections are closed well before a vendor or a balancer between would: a request on a connection that the other
// side is closing would be lost, and nobody could tell whether it was begun. Redirects are not followed: they would carry
// credentials elsewhere.
//
// The package knows no vendor.
package vendorhttp

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/internal/redact"
)

// The defaults of [Options].
const (
	DefaultTimeout  = 60 * time.Second
	DefaultAttempts = 5
	DefaultMaxWait  = 60 * time.Second
	DefaultMaxBody  = 16 << 20
)

// The waits between attempts, before chance: the first, and the longest.
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 8 * time.Second
)

// Options are for [New]. Only Base is needed.
type Options struct {
	Base string // address that the paths of requests are below: https://api.example.com/v1
	// Credentials are headers of every request. Their values never appear in an error.
	Credentials http.Header
	UserAgent   string
	Timeout     time.Duration // of one attempt, for a stream until its head; 0 = DefaultTimeout
	Attempts    int           // at most; 0 = DefaultAttempts
	MaxWait     time.Duration // before an attempt; a longer Retry-After ends them; 0 = DefaultMaxWait
	MaxBody     int64         // of an answer that is read whole; 0 = DefaultMaxBody
	// RequestID is the header in which the vendor names a request; empty = the usual ones are tried.
	RequestID string
	// Classify says what an answer that is not 2xx means: an error with a code, or nil for what the status alone says.
	// Where its Retry is zero, that of the status holds. Status, request id and words of the vendor are filled in afterwards.
	Classify func(Answer) *errs.Error
	// Observe is told of every attempt, for logs; nil = nobody.
	Observe   func(Attempt)
	Transport http.RoundTripper // nil = NewTransport()
}

// Answer is a vendor's answer that is not 2xx.
type Answer struct {
	Op     string
	Status int
	Header http.Header
	Body   []byte // at most 64 KiB of it
}

// Attempt is one attempt at a request.
type Attempt struct {
	Op, Method, Path string
	Number           int           // from 1
	Status           int           // 0 = no answer
	Took             time.Duration // for a stream until its head
	RequestID        string
	Err              error         // nil when it succeeded
	Wait             time.Duration // until the next attempt; 0 = there is none
}

// Client talks to one vendor. It may be used from several goroutines.
type Client struct {
	base   *url.URL
	opts   Options
	http   *http.Client
	secret redact.Set
	pause  func(ctx context.Context, d time.Duration) error // a test shortens it
}

// New makes a client.
func New(opts Options) (*Client, error) {
	base, err := url.Parse(opts.Base)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errs.New(errs.ConfigInvalid, "%q is not the address of an API", opts.Base).
			WithHint("write it with its scheme: https://api.example.com")
	}
	opts.Timeout = orDefault(opts.Timeout, DefaultTimeout)
	opts.Attempts = orDefault(opts.Attempts, DefaultAttempts)
	opts.MaxWait = orDefault(opts.MaxWait, DefaultMaxWait)
	opts.MaxBody = orDefault(opts.MaxBody, DefaultMaxBody)
	opts.Credentials = opts.Credentials.Clone()
	if opts.Transport == nil {
		opts.Transport = NewTransport()
	}
	c := &Client{base: base, opts: opts, pause: pause, http: &http.Client{
		Transport:     opts.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if p, ok := base.User.Password(); ok {
		c.Hide(p)
	}
	for _, values := range opts.Credentials {
		for _, v := range values {
			c.Hide(v)
			if _, token, ok := strings.Cut(v, " "); ok { // Bearer TOKEN
				c.Hide(token)
			}
		}
	}
	return c, nil
}

// NewTransport is a transport for vendors: connections that are idle for 20 s are closed, those of HTTP/2 are probed.
func NewTransport() *http.Transport {
	dial := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          64,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       20 * time.Second,
		TLSHandshakeTimeout:   15 * time.Second,
		ExpectContinueTimeout: time.Second,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// Hide keeps a secret out of every error from now on, until forget is called.
func (c *Client) Hide(secret string) (forget func()) { return c.secret.Add(secret) }

// Redacted replaces credentials in a text.
func (c *Client) Redacted(text string) string { return c.secret.String(text) }

// CloseIdle closes the connections that nobody uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// URL is the address of a path below the base.
func (c *Client) URL(path string, query url.Values) *url.URL {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	return u
}

func orDefault[T int | int64 | time.Duration](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
