// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/stream"
)

// maxRedirects is how often a request is sent on.
const maxRedirects = 5

// requester is a tool that makes an HTTP request from the host.
type requester struct {
	base
	hosts []string // that may be reached, with a port where it counts
}

// safeRequester is one whose request changes nothing.
type safeRequester struct{ *requester }

// Recovers: the request may be made again.
func (*safeRequester) Recovers() {}

func newRequester(b base) (*requester, error) {
	r := &requester{base: b}
	r.hosts, _ = b.Body["allow_hosts"].([]string)
	if len(r.hosts) > 0 {
		return r, nil
	}
	text, fixed := b.Body["url"].(string)
	if !fixed {
		return nil, b.errorf("its url depends on what the model says, and nothing says which hosts may be reached").
			WithHint(`name them: allow_hosts = ["api.example.com"]`)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, b.errorf("its url %q is none", text)
	}
	r.hosts = []string{u.Host}
	return r, nil
}

func (r *requester) method() string { return r.word("method", http.MethodGet) }

// safe says that the request changes nothing.
func (r *requester) safe() bool { return r.method() == http.MethodGet || r.method() == http.MethodHead }

// allowed says why a URL may not be reached; nil = it may.
func (r *requester) allowed(u *url.URL) error {
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("the scheme %q is not allowed, only http and https are", u.Scheme)
	case u.User != nil:
		return errors.New("a url with a user name is not allowed")
	case !slices.Contains(r.hosts, u.Host) && !slices.Contains(r.hosts, u.Hostname()):
		return fmt.Errorf("the host %q is not one that may be reached: %s", u.Host, strings.Join(r.hosts, ", "))
	}
	return nil
}

// Call makes the request.
func (r *requester) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	vars, bad := r.vars(call.Arguments)
	if bad != nil {
		return tool.Result{Error: bad}, nil
	}
	var seen secrets
	req, err := r.request(ctx, vars, &seen)
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, err
		}
		return invalid("the request cannot be made: %s", seen.String(err.Error())), nil
	}
	began := time.Now()
	client := &http.Client{CheckRedirect: func(next *http.Request, via []*http.Request) error { return r.redirect(next, via) }}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, context.Cause(ctx)
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the address, which may hold a secret
		}
		return tool.Result{Error: &tool.Error{
			Code: "request_failed", Message: seen.String(fmt.Sprintf("%s %s: %v", req.Method, req.URL.Host, err)), Retryable: r.safe(),
		}}, nil
	}
	defer func() { _ = resp.Body.Close() }() // it was read as far as it was wanted
	res, err := r.response(resp, &seen)
	if err != nil && ctx.Err() != nil {
		return tool.Result{}, context.Cause(ctx)
	}
	res.Summary = fmt.Sprintf("%s in %s", resp.Status, value.Duration(time.Since(began)))
	res.Detail = map[string]any{"status": resp.StatusCode}
	return res, nil
}

func (r *requester) request(ctx context.Context, vars spec.RunVars, seen *secrets) (*http.Request, error) {
	headers, err := r.reveal(ctx, "headers", vars, seen)
	if err != nil {
		return nil, err
	}
	address, _, err := r.text("url", vars)
	if err != nil {
		return nil, err
	}
	body, given, err := r.text("body", vars)
	if err != nil {
		return nil, err
	}
	var in io.Reader
	if given {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method(), address, in)
	if err != nil {
		return nil, err
	}
	if err := r.allowed(req.URL); err != nil {
		return nil, err
	}
	for name, text := range headers {
		req.Header.Set(name, text)
	}
	if given && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// redirect follows to hosts that may be reached. Headers of the project go to no other host than they were meant for.
func (r *requester) redirect(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it was sent on more than %d times", maxRedirects)
	}
	if err := r.allowed(next.URL); err != nil {
		return fmt.Errorf("it was sent on: %w", err)
	}
	if first := via[0].URL; next.URL.Host != first.Host || next.URL.Scheme != first.Scheme {
		next.Header = http.Header{}
	}
	return nil
}

// response makes the result of an answer. An error says that it could not be read.
func (r *requester) response(resp *http.Response, seen *secrets) (tool.Result, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	failed := resp.StatusCode >= http.StatusBadRequest
	if tool.Picture(kind) && !failed {
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
		switch {
		case err != nil:
			return unread(err), err
		case len(b) > maxFile:
			return tool.Result{Error: &tool.Error{Code: "output_too_large", Message: "the picture is larger than 10 MiB"}}, nil
		}
		return tool.Result{Text: resp.Status, Images: []tool.Image{{MIME: kind, Data: b}}}, nil
	}
	h := &stream.HeadTail{Head: DefaultOutput / 2, Tail: DefaultOutput / 2}
	if _, err := io.Copy(h, io.LimitReader(resp.Body, maxResponse)); err != nil {
		return unread(err), err
	}
	head, tail, _ := h.Result()
	text := shown(h, seen)
	if !textual(append(head, tail...)) && h.Total() <= DefaultOutput {
		text = fmt.Sprintf("[%d bytes of %s, which is no text]", h.Total(), kind)
	}
	if failed {
		return tool.Result{Error: &tool.Error{
			Code: fmt.Sprintf("http_%d", resp.StatusCode), Message: strings.TrimSpace(resp.Status + "\n" + text),
			Retryable: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 && r.safe(),
		}}, nil
	}
	if text == "" {
		text = resp.Status
	}
	return tool.Result{Text: text}, nil
}

// maxResponse is how much of an answer is read at most.
const maxResponse = 64 << 20

func unread(err error) tool.Result {
	return tool.Result{Error: &tool.Error{Code: "request_failed", Message: "the answer could not be read: " + err.Error(), Retryable: true}}
}
