// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
)

// pair is a vendor that gives back what it gets, behind a proxy.
func pair(t *testing.T) (p *faultproxy.Proxy, address string, seen *atomic.Int32) {
	t.Helper()
	seen = new(atomic.Int32)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		w.Header().Set("X-Path", r.URL.RequestURI())
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(vendor.Close)
	u, err := url.Parse(vendor.URL + "/base")
	if err != nil {
		t.Fatal(err)
	}
	p = faultproxy.New(u, nil)
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	return p, front.URL, seen
}

func post(ctx context.Context, t *testing.T, address, body string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func TestThrough(t *testing.T) {
	_, at, _ := pair(t)
	resp, body, err := post(t.Context(), t, at+"/v1/boxes?a=b", "hello") //nolint:bodyclose // post closes it
	if err != nil || body != "hello" || resp.Header.Get("X-Path") != "/base/v1/boxes?a=b" {
		t.Errorf("%v, %q, %v", err, body, resp)
	}
}

func TestFaults(t *testing.T) {
	for name, x := range map[string]struct {
		fault  faultproxy.Fault
		status int  // 0 = no whole answer
		seen   bool // by the vendor
	}{
		"too many":     {faultproxy.Fault{Kind: faultproxy.TooMany, RetryAfter: 7 * time.Second}, 429, false},
		"answer":       {faultproxy.Fault{Kind: faultproxy.Answer, Status: 401, Body: "second body"}, 401, false},
		"late answer":  {faultproxy.Fault{Kind: faultproxy.LateAnswer, Status: 504, Body: "second body"}, 504, true},
		"cut end":      {faultproxy.Fault{Kind: faultproxy.CutEnd}, 0, true},
		"server error": {faultproxy.Fault{Kind: faultproxy.ServerError}, 500, false},
		"cut body":     {faultproxy.Fault{Kind: faultproxy.CutBody}, 0, true},
		"lost answer":  {faultproxy.Fault{Kind: faultproxy.LostAnswer}, 0, true},
		"slow body":    {faultproxy.Fault{Kind: faultproxy.SlowBody, Pause: time.Millisecond}, 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, at, seen := pair(t)
			x.fault.Method, x.fault.Path, x.fault.Skip, x.fault.Times = http.MethodPost, "/v1", 1, 1
			p.Inject(x.fault)
			if _, body, err := post(t.Context(), t, at+"/v1/a", "first"); err != nil || body != "first" { //nolint:bodyclose // post closes it
				t.Fatalf("the request before: %v, %q", err, body)
			}
			resp, body, err := post(t.Context(), t, at+"/v1/a", "second body") //nolint:bodyclose // post closes it
			if (err == nil) != (x.status != 0) || err == nil && resp.StatusCode != x.status {
				t.Errorf("%v, %v, %q", err, resp, body)
			}
			if x.status == 429 && resp.Header.Get("Retry-After") != "7" {
				t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
			}
			if x.status != 0 && x.status != 429 && x.status != 500 && body != "second body" {
				t.Errorf("the body is %q", body)
			}
			if (seen.Load() == 2) != x.seen || p.Hits() != 1 {
				t.Errorf("the vendor saw %d requests, %d met a fault", seen.Load(), p.Hits())
			}
			if _, body, err := post(t.Context(), t, at+"/v1/a", "third"); err != nil || body != "third" { //nolint:bodyclose // post closes it
				t.Errorf("the request after: %v, %q", err, body)
			}
		})
	}
}

func TestNoAnswer(t *testing.T) {
	p, at, seen := pair(t)
	p.Inject(faultproxy.Fault{Kind: faultproxy.NoAnswer})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, body, err := post(ctx, t, at, "x"); err == nil { //nolint:bodyclose // post closes it
		t.Errorf("there was an answer: %q", body)
	}
	p.Clear()
	if _, body, err := post(t.Context(), t, at, "y"); err != nil || body != "y" || seen.Load() != 1 { //nolint:bodyclose // post closes it
		t.Errorf("after the fault: %v, %q, %d", err, body, seen.Load())
	}
}
