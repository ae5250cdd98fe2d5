// SPDX-License-Identifier: Apache-2.0

package vendorhttp

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// requestIDs are the headers in which vendors name a request.
var requestIDs = []string{"X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Amzn-Requestid", "X-Trace-Id", "Cf-Ray"}

func (c *Client) requestID(h http.Header) string {
	if c.opts.RequestID != "" {
		return h.Get(c.opts.RequestID)
	}
	for _, name := range requestIDs {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// broken types the failure of an attempt without an answer, or with half of one.
func (c *Client) broken(ctx context.Context, req *Request, t *trace, err error) error {
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err // of the request's own body
	}
	e := &errs.Error{Code: errs.VendorFailed, Op: req.Op, MaybeApplied: !t.unreached() && !c.harmless(req)}
	if t.unreached() {
		e.Retry = errs.RetrySafe
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errTooSlow):
		e.Message = "the vendor did not answer in time"
	case cause != nil:
		e.Code, e.Retry, e.Err = errs.Canceled, errs.RetryNever, cause
		return e
	case t.unreached():
		e.Message = "the vendor cannot be reached: " + c.text(err)
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			e.Retry, e.Hint = errs.RetryNever, "the certificate does not belong to the address, or its authority is not known here"
		}
	default:
		e.Message = "the connection to the vendor broke: " + c.text(err)
	}
	e.Vendor = &errs.Vendor{HTTPStatus: t.status, RequestID: t.id}
	return e
}

func (c *Client) harmless(req *Request) bool {
	m := req.method()
	return m == http.MethodGet || m == http.MethodHead
}

// text is what an error says, without the address, whose query may hold a credential.
func (c *Client) text(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return c.Redacted(err.Error())
}

// refused types an answer that is not 2xx.
func (c *Client) refused(req *Request, resp *http.Response, body []byte) error {
	byStatus := FromStatus(resp.StatusCode)
	e := byStatus
	if c.opts.Classify != nil {
		if own := c.opts.Classify(Answer{Op: req.Op, Status: resp.StatusCode, Header: resp.Header, Body: body}); own != nil {
			e = own
			if e.Retry == errs.RetryUnknown {
				e.Retry = byStatus.RetryClass()
			}
		}
	}
	said := Message(body)
	if e.Message == "" {
		e.Message = fmt.Sprintf("the vendor answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		if said != "" {
			e.Message += ": " + said
		}
	}
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		if u, err := url.Parse(to); err == nil {
			e.Hint = "it redirects to " + u.Scheme + "://" + u.Host + ", which is not followed: configure the final address"
		}
	}
	if e.Op == "" {
		e.Op = req.Op
	}
	if e.RetryAfter == 0 {
		e.RetryAfter = RetryAfter(resp.Header, time.Now())
	}
	e.MaybeApplied = e.MaybeApplied || e.RetryClass() == errs.RetryUnknown && !c.harmless(req)
	v := &errs.Vendor{HTTPStatus: resp.StatusCode, RequestID: c.requestID(resp.Header), Message: c.Redacted(said)}
	if e.Vendor != nil {
		v.Code = e.Vendor.Code
	}
	e.Vendor, e.Message, e.Hint = v, c.Redacted(e.Message), c.Redacted(e.Hint)
	return e
}

// unreadable types a 2xx answer that makes no sense. What was asked for was done.
func (c *Client) unreadable(req *Request, resp *http.Response, format string, args ...any) error {
	return &errs.Error{
		Code: errs.VendorFailed, Op: req.Op, Message: c.Redacted(fmt.Sprintf(format, args...)), Retry: errs.RetryNever, MaybeApplied: !c.harmless(req),
		Hint:   "something that is not the vendor's API may have answered: look at the address",
		Vendor: &errs.Vendor{HTTPStatus: resp.StatusCode, RequestID: c.requestID(resp.Header)},
	}
}

// FromStatus is what an HTTP status means when nothing else is known. Its class says whether the request may have had an
// effect: errs.RetrySafe where the server refused to begin.
func FromStatus(status int) *errs.Error {
	e := &errs.Error{Code: errs.InvalidArgument}
	switch status {
	case http.StatusUnauthorized:
		e.Code, e.Hint = errs.AuthFailed, "check the credentials in the driver's configuration"
	case http.StatusPaymentRequired:
		e.Code = errs.QuotaExceeded
	case http.StatusForbidden:
		e.Code = errs.PermissionDenied
	case http.StatusTooManyRequests:
		e.Code, e.Retry = errs.RateLimited, errs.RetrySafe
	case http.StatusInsufficientStorage:
		e.Code = errs.NoSpace
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		e.Code = errs.VendorFailed
	default:
		if status/100 == 5 || status/100 == 3 {
			e.Code, e.Retry = errs.VendorFailed, errs.RetryNever
		}
	}
	return e
}

// RetryAfter reads the header of that name: seconds, or a date. 0 = there is none, or it is past.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// Message finds what an error's body says to people: the JSON members message, error, detail or title, else a short
// text. A page of HTML says nothing.
func Message(body []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		for _, name := range []string{"message", "error", "detail", "title"} {
			var text string
			if json.Unmarshal(fields[name], &text) == nil && text != "" {
				return short(text)
			}
			var inner struct{ Message string }
			if json.Unmarshal(fields[name], &inner) == nil && inner.Message != "" {
				return short(inner.Message)
			}
		}
		return short(string(body))
	}
	text := strings.TrimSpace(string(body))
	if strings.HasPrefix(text, "<") {
		return ""
	}
	return short(text)
}

func short(text string) string {
	const most = 500
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
