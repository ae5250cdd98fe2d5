// SPDX-License-Identifier: Apache-2.0

// Package client speaks the API of E2B and of what speaks like it: sandboxes, their lives, snapshots and templates over
// JSON ([Client]), and processes and files inside over the daemon of each sandbox ([Sandbox]).
//
// It needs nothing of berth's harness:
//
//	c, err := client.New(client.Options{APIKey: os.Getenv("E2B_API_KEY")})
//	box, err := c.Create(ctx, &client.CreateRequest{TemplateID: "base", Timeout: 300, Secure: true})
//	p, err := box.Start(ctx, client.Command{Cmd: "/bin/bash", Args: []string{"-l", "-c", "make"}})
//
// Errors are *errs.Error. Nothing here has an effect besides its own: no call moves a sandbox's end but those that say so.
// A call that may have made or run something is not repeated, see package vendorhttp.
package client

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// DefaultDomain is where the vendor's own service is.
const DefaultDomain = "e2b.app"

// Options make a Client. Only APIKey is needed.
type Options struct {
	APIKey string
	Domain string // empty = DefaultDomain
	APIURL string // empty = https://api.DOMAIN
	// SandboxURL is one address at which every sandbox is reached, by headers; empty = https://sandbox.DOMAIN on the
	// vendor's own domains, else an address for each sandbox and port.
	SandboxURL string
	UserAgent  string
	Timeout    time.Duration // of one attempt; 0 = 60 s
	Attempts   int           // 0 = 5
	Observe    func(vendorhttp.Attempt)
	Transport  http.RoundTripper // nil = vendorhttp.NewTransport()
}

// Client talks to the control plane. It may be used from several goroutines.
type Client struct {
	opts Options
	api  *vendorhttp.Client
}

var keyForm = regexp.MustCompile(`^[\x21-\x7e]+$`)

// New makes a client.
func New(o Options) (*Client, error) {
	if !keyForm.MatchString(o.APIKey) {
		return nil, errs.New(errs.AuthFailed, "there is no API key, or it holds what no key holds").WithHint("set E2B_API_KEY, or api_key in the driver block")
	}
	if o.Domain == "" {
		o.Domain = DefaultDomain
	}
	if o.APIURL == "" {
		o.APIURL = "https://api." + o.Domain
	}
	if o.Transport == nil {
		o.Transport = vendorhttp.NewTransport()
	}
	if o.UserAgent == "" {
		o.UserAgent = "berth-e2b-client"
	}
	api, err := vendorhttp.New(vendorhttp.Options{
		Base: o.APIURL, Credentials: http.Header{"X-Api-Key": {o.APIKey}}, UserAgent: o.UserAgent, Timeout: o.Timeout, Attempts: o.Attempts,
		Observe: o.Observe, Transport: o.Transport, Classify: classify,
	})
	if err != nil {
		return nil, err
	}
	return &Client{opts: o, api: api}, nil
}

// CloseIdle closes the connections that nobody uses.
func (c *Client) CloseIdle() { c.api.CloseIdle() }

// ownDomains are those at which sandboxes are reached by header.
var ownDomains = []string{"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"}

func segment(id string) string { return url.PathEscape(id) }

// shortID drops the client's part that old ids end with.
func shortID(id string) string {
	short, _, _ := strings.Cut(id, "-")
	return short
}

// get, post and del are calls of the control plane.
func (c *Client) get(ctx context.Context, op, path string, query url.Values, out any) (http.Header, error) {
	return c.api.Do(ctx, &vendorhttp.Request{Op: op, Path: path, Query: query}, out)
}

// post sends a change. Repeatable says that doing it twice is doing it once.
func (c *Client) post(ctx context.Context, op, path string, repeatable bool, body, out any) error {
	_, err := c.api.Do(ctx, &vendorhttp.Request{Op: op, Method: http.MethodPost, Path: path, JSON: body, Repeatable: repeatable}, out)
	return err
}

func (c *Client) del(ctx context.Context, op, path string) error {
	_, err := c.api.Do(ctx, &vendorhttp.Request{Op: op, Method: http.MethodDelete, Path: path}, nil)
	return err
}
