// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// DefaultURL is the API of Daytona's own cloud.
const DefaultURL = "https://app.daytona.io/api"

// The headers of the vendor.
const (
	headerOrganization = "X-Daytona-Organization-ID"
	headerSource       = "X-Daytona-Source"
	headerSkipActivity = "X-Daytona-Skip-Last-Activity-Update"
	// HeaderPreviewToken carries the token of a [Preview].
	HeaderPreviewToken = "X-Daytona-Preview-Token" //nolint:gosec // a header's name
	// HeaderSkipWarning keeps the proxy from answering with a page of warning, where the client looks like a browser.
	HeaderSkipWarning = "X-Daytona-Skip-Preview-Warning"
)

// Options make a client.
type Options struct {
	URL   string // of the API, with /api; empty = DefaultURL
	Token string // an API key, or a JSON web token
	// Organization is needed with a JSON web token, which may belong to several.
	Organization string
	Source       string // names the program to the vendor; empty = "berth"
	// Quiet says that calls of toolboxes do not count as activity: then only Touch keeps a sandbox from being stopped.
	Quiet     bool
	Timeout   time.Duration // of one attempt at a call; 0 = vendorhttp.DefaultTimeout
	Attempts  int           // 0 = vendorhttp.DefaultAttempts
	Transport http.RoundTripper
	Observe   func(vendorhttp.Attempt) // nil = nobody
}

// Client speaks with one installation, for one organization. It may be used from several goroutines.
type Client struct {
	opts    Options
	headers http.Header
	http    *vendorhttp.Client
	sockets *http.Client
}

// New makes a client. It does not speak with the vendor.
func New(o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	if o.Source == "" {
		o.Source = "berth"
	}
	if o.Token == "" {
		return nil, errs.New(errs.AuthFailed, "no API key is given").WithHint("make one at the Daytona dashboard, and set DAYTONA_API_KEY")
	}
	c := &Client{opts: o, headers: http.Header{}}
	c.headers.Set("Authorization", "Bearer "+o.Token)
	c.headers.Set(headerSource, o.Source)
	if o.Organization != "" {
		c.headers.Set(headerOrganization, o.Organization)
	}
	var err error
	if c.http, err = c.at(o.URL, c.headers); err != nil {
		return nil, err
	}
	// A connection that becomes a socket must not be one of HTTP/2.
	t := vendorhttp.NewTransport()
	t.ForceAttemptHTTP2, t.HTTP2 = false, nil
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t.Protocols = protocols
	c.sockets = &http.Client{Transport: t}
	return c, nil
}

// at makes the client of one address.
func (c *Client) at(url string, headers http.Header) (*vendorhttp.Client, error) {
	if c.opts.Transport == nil {
		c.opts.Transport = vendorhttp.NewTransport()
	}
	return vendorhttp.New(vendorhttp.Options{
		Base: url, Credentials: headers, UserAgent: "berth", Timeout: c.opts.Timeout, Attempts: c.opts.Attempts, Classify: classify,
		Observe: c.opts.Observe, Transport: c.opts.Transport,
	})
}

// Close closes the connections that nobody uses.
func (c *Client) Close() {
	c.http.CloseIdle()
	c.sockets.CloseIdleConnections()
}

// Redacted replaces credentials in a text.
func (c *Client) Redacted(text string) string { return c.http.Redacted(text) }

// StateChanging says whether an error is the vendor's answer to a call that met a change of the sandbox's state. Nothing
// was done; it can be repeated in a while.
func StateChanging(err error) bool { return saidCode(err) == codeChanging }

// Conflict says whether an error is about a name that is taken.
func Conflict(err error) bool { return saidCode(err) == codeConflict }

// NotFound says whether an error is about something that is not there.
func NotFound(err error) bool { return saidCode(err) == codeNotFound }

// NotStarted says whether an error is a toolbox's that cannot be reached because its sandbox does not run.
func NotStarted(err error) bool { return saidCode(err) == codeNotStarted }

// The codes that [errs.Vendor] has; the vendor itself tells them by text only.
const (
	codeChanging   = "state_change_in_progress"
	codeConflict   = "conflict"
	codeNotFound   = "not_found"
	codeNotStarted = "not_started"
	codeErrored    = "errored_state"
	codeWrongState = "wrong_state"
)

func saidCode(err error) string {
	if e, ok := asError(err); ok && e.Vendor != nil {
		return e.Vendor.Code
	}
	return ""
}

// classify types an answer that is not 2xx. There is no code in it: the status and the words are all.
func classify(a vendorhttp.Answer) *errs.Error {
	said := strings.ToLower(vendorhttp.Message(a.Body))
	has := func(texts ...string) bool {
		for _, t := range texts {
			if strings.Contains(said, t) {
				return true
			}
		}
		return false
	}
	typed := func(code errs.Code, vendor string) *errs.Error {
		return &errs.Error{Code: code, Retry: errs.RetryNever, Vendor: &errs.Vendor{Code: vendor}}
	}
	switch a.Status {
	case http.StatusBadRequest:
		switch {
		case has("is the sandbox started", "no ip address found"):
			return typed(errs.SandboxNotReady, codeNotStarted)
		case has("errored state"):
			return typed(errs.StartFailed, codeErrored)
		case has("not in valid state", "not in a stoppable state", "not stopped", "must be started"):
			return typed(errs.SandboxNotReady, codeWrongState)
		case has("quota", "limit exceeded", "total cpu", "total memory", "total disk"):
			return typed(errs.QuotaExceeded, "")
		}
	case http.StatusUnauthorized:
		e := typed(errs.AuthFailed, "")
		e.Hint = "the API key is wrong, has expired or was revoked: set DAYTONA_API_KEY to one that holds"
		return e
	case http.StatusForbidden:
		if has("quota", "limit", "suspended") {
			return typed(errs.QuotaExceeded, "")
		}
	case http.StatusNotFound:
		if has("container not found") {
			return typed(errs.SandboxGone, codeNotFound)
		}
		return typed(errs.FileNotFound, codeNotFound)
	case http.StatusConflict:
		if has("state change in progress") {
			return typed(errs.SandboxNotReady, codeChanging)
		}
		return typed(errs.FileExists, codeConflict)
	case http.StatusGone:
		return typed(errs.ProcessUnknown, codeNotFound)
	case http.StatusUnprocessableEntity:
		return typed(errs.Unsupported, "")
	case http.StatusInternalServerError:
		if has("not found: session not found") {
			return typed(errs.ProcessUnknown, codeNotFound)
		}
	}
	return nil
}

// do calls the control API.
func (c *Client) do(ctx context.Context, req *vendorhttp.Request, out any) error {
	_, err := c.http.Do(ctx, req, out)
	return err
}

// Check asks whether the address is that of the API and the token holds.
func (c *Client) Check(ctx context.Context) error {
	var page struct {
		Items *[]Sandbox `json:"items"`
	}
	err := c.do(ctx, &vendorhttp.Request{Op: "look at the API", Path: "sandbox", Query: query("limit", "1")}, &page)
	if err == nil && page.Items == nil {
		err = errs.New(errs.VendorFailed, "what answers at %s is not Daytona's API", c.opts.URL)
	}
	if e, ok := asError(err); ok && e.Code == errs.VendorFailed {
		return e.WithHint("the address of the API ends in /api: https://app.daytona.io/api, or that of your own installation")
	}
	return err
}
