// SPDX-License-Identifier: Apache-2.0

package vendorhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// errTooSlow ends an attempt whose answer did not come within its time.
var errTooSlow = errors.New("no answer in time")

// maxErrorBody bounds what is read of an answer that is not 2xx.
const maxErrorBody = 64 << 10

// Request is one call of a vendor's API.
type Request struct {
	Op     string // what is being done, for errors: "create"
	Method string // empty = GET
	Path   string // below [Options.Base]; its segments are escaped by the caller
	Query  url.Values
	Header http.Header
	// JSON becomes the body, when it is not nil.
	JSON any
	// Body opens the body, once for every attempt. Length is its size when that is known, else -1 or 0.
	Body   func() (io.ReadCloser, error)
	Length int64
	// Once says that Body can be opened only once: no attempt follows one that has begun to read it.
	Once bool
	// Repeatable says that doing it twice does no harm. GET, HEAD, PUT and DELETE are repeatable unless NotRepeatable.
	Repeatable    bool
	NotRepeatable bool
	Timeout       time.Duration // of one attempt; 0 = that of the client
	Attempts      int           // at most; 0 = those of the client
}

func (r *Request) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

func (r *Request) repeatable() bool {
	switch r.method() {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		return !r.NotRepeatable
	default:
		return r.Repeatable
	}
}

// Do sends a request and decodes the JSON of its answer into out; a nil out drops it, a *[]byte takes
// it as it is. The answer is read whole, within the attempt's time. It gives the answer's header.
func (c *Client) Do(ctx context.Context, req *Request, out any) (http.Header, error) {
	var header http.Header
	err := c.attempts(ctx, req, func(ctx context.Context, t *trace) error {
		resp, err := c.send(ctx, req, t)
		if err != nil {
			return err
		}
		header = resp.Header
		defer resp.Body.Close() // it was read
		body, err := io.ReadAll(io.LimitReader(resp.Body, c.opts.MaxBody+1))
		if err != nil {
			return c.broken(ctx, req, t, err)
		}
		if int64(len(body)) > c.opts.MaxBody {
			return c.unreadable(req, resp, "the answer is larger than %d bytes", c.opts.MaxBody)
		}
		if raw, ok := out.(*[]byte); ok {
			*raw = body
			return nil
		}
		if out == nil || len(bytes.TrimSpace(body)) == 0 && resp.StatusCode == http.StatusNoContent {
			return nil
		}
		if err := json.Unmarshal(body, out); err != nil {
			kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
			return c.unreadable(req, resp, "the answer (%s, %d bytes) is not the JSON that was expected: %v", kind, len(body), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return header, nil
}

// Stream sends a request and gives the answer as soon as its head is there. The time of an attempt ends with the head; the
// body ends with ctx. The caller closes it.
func (c *Client) Stream(ctx context.Context, req *Request) (*http.Response, error) {
	var resp *http.Response
	err := c.attempts(ctx, req, func(limited context.Context, t *trace) error {
		// The body must outlive the attempt's time and its context.
		whole, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(limited, func() { cancel(context.Cause(limited)) })
		var err error
		if resp, err = c.send(whole, req, t); err != nil {
			cancel(err)
			return err
		}
		if !stop() {
			_ = resp.Body.Close() // the time was over as the head came
			return c.broken(whole, req, t, context.Cause(limited))
		}
		resp.Body = &streamBody{ReadCloser: resp.Body, done: func() { cancel(context.Canceled) }}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// streamBody frees what the request holds when it is closed.
type streamBody struct {
	io.ReadCloser
	done func()
}

func (b *streamBody) Close() error {
	err := b.ReadCloser.Close()
	b.done()
	return err
}

// trace is what is known of an attempt.
type trace struct {
	asked     atomic.Bool // the transport asked for a connection, and tells when it has one
	connected atomic.Bool // it had one: the request may have been sent
	opened    atomic.Bool // the body was opened
	status    int
	id        string
}

// unreached says that the vendor cannot have seen the request.
func (t *trace) unreached() bool { return t.asked.Load() && !t.connected.Load() }

// attempts repeats one attempt as the package comment says.
func (c *Client) attempts(ctx context.Context, req *Request, one func(context.Context, *trace) error) error {
	most, limit := orDefault(req.Attempts, c.opts.Attempts), orDefault(req.Timeout, c.opts.Timeout)
	for n := 1; ; n++ {
		t := &trace{}
		began := time.Now()
		limited, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
		err := one(limited, t)
		cancel()
		seen := Attempt{
			Op: req.Op, Method: req.method(), Path: req.Path, Number: n, Status: t.status, Took: time.Since(began), RequestID: t.id, Err: err,
		}
		if err == nil || n >= most || ctx.Err() != nil || !c.again(req, t, err, n, &seen) {
			c.observe(seen)
			return err
		}
		c.observe(seen)
		if c.pause(ctx, seen.Wait) != nil {
			return err // the answer says more than that the caller lost patience
		}
	}
}

func (c *Client) observe(a Attempt) {
	if c.opts.Observe != nil {
		c.opts.Observe(a)
	}
}

// again says whether another attempt may follow, and when.
func (c *Client) again(req *Request, t *trace, err error, n int, seen *Attempt) bool {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || req.Once && t.opened.Load() {
		return false
	}
	switch e.RetryClass() {
	case errs.RetrySafe:
	case errs.RetryUnknown:
		if !req.repeatable() {
			return false
		}
	default:
		return false
	}
	if e.RetryAfter > c.opts.MaxWait {
		return false
	}
	most := min(firstWait<<min(n-1, 10), longestWait)
	seen.Wait = e.RetryAfter + rand.N(most) //nolint:gosec // chance, not secrecy
	return true
}

// send makes one attempt and gives an answer that is 2xx.
func (c *Client) send(ctx context.Context, req *Request, t *trace) (*http.Response, error) {
	hr, err := c.build(ctx, req, t)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(hr)
	if err != nil {
		return nil, c.broken(ctx, req, t, err)
	}
	t.status, t.id = resp.StatusCode, c.requestID(resp.Header)
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()                                             // it is an error already
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))      // what there is of it helps
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody)) // so that the connection can be used again
	return nil, c.refused(req, resp, body)
}

func (c *Client) build(ctx context.Context, req *Request, t *trace) (*http.Request, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.connected.Store(true) },
	})
	hr, err := http.NewRequestWithContext(ctx, req.method(), c.URL(req.Path, req.Query).String(), nil)
	if err != nil {
		return nil, &errs.Error{Code: errs.InvalidArgument, Op: req.Op, Message: c.Redacted(err.Error())}
	}
	for _, h := range []http.Header{c.opts.Credentials, req.Header} {
		for k, v := range h {
			hr.Header[http.CanonicalHeaderKey(k)] = v
		}
	}
	if c.opts.UserAgent != "" {
		hr.Header.Set("User-Agent", c.opts.UserAgent)
	}
	if req.JSON != nil {
		b, err := json.Marshal(req.JSON)
		if err != nil {
			return nil, &errs.Error{Code: errs.InvalidArgument, Op: req.Op, Err: err}
		}
		hr.Header.Set("Content-Type", "application/json")
		hr.Body, hr.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		// With GetBody the transport may send it again where it knows that nothing was written.
		hr.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	if req.Body != nil {
		t.opened.Store(true)
		body, err := req.Body()
		if err != nil {
			return nil, errs.Wrap(errs.Internal, req.Op, err)
		}
		hr.Body, hr.ContentLength = body, req.Length
		if req.Length <= 0 {
			hr.ContentLength = -1
		}
		if !req.Once {
			hr.GetBody = req.Body
		}
	}
	return hr, nil
}
