// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	oai "github.com/openai/openai-go/v3"

	"github.com/berth-dev/berth/core/model"
)

// classify turns what the client gave into an error of ours.
func classify(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if me, ok := errors.AsType[*model.Error](cause); ok {
			return me
		}
		return cause
	}
	var api *oai.Error
	if !errors.As(err, &api) {
		return &model.Error{
			Kind: model.ErrNetwork, Message: "the connection to the model failed", Err: err,
			Hint: "check the network and base_url",
		}
	}
	e := &model.Error{HTTPStatus: api.StatusCode, Code: api.Code, Message: api.Message, Err: err}
	if e.Message == "" {
		e.Message = http.StatusText(api.StatusCode)
	}
	if api.Response != nil {
		e.RequestID = api.Response.Header.Get("X-Request-Id")
		e.RetryAfter = retryAfter(api.Response.Header)
	}
	e.Kind, e.Hint = kindOf(api.StatusCode, api.Code, api.Type, e.Message)
	return e
}

// streamError is an error that came as an event.
func streamError(code, message, requestID string) *model.Error {
	e := &model.Error{Code: code, Message: message, RequestID: requestID}
	e.Kind, e.Hint = kindOf(0, code, "", message)
	return e
}

func kindOf(status int, code, typ, message string) (model.ErrorKind, string) {
	switch {
	case code == "context_length_exceeded" || strings.Contains(message, "context length") || strings.Contains(message, "context window"):
		return model.ErrContext, "shorten the task or the tool output, or choose a model with a larger context window"
	case code == "insufficient_quota" || typ == "insufficient_quota":
		return model.ErrQuota, "the account has no credit left; waiting does not help"
	case status == http.StatusUnauthorized || code == "invalid_api_key":
		return model.ErrAuth, "the key is wrong or expired: check OPENAI_API_KEY or the provider's api_key"
	case status == http.StatusForbidden:
		return model.ErrAuth, "the key may not use this model or project"
	case status == http.StatusTooManyRequests || code == "rate_limit_exceeded":
		return model.ErrRateLimit, "too many requests or tokens: lower max_concurrent, or wait"
	case code == "content_filter":
		return model.ErrRefused, ""
	case status == http.StatusNotFound:
		return model.ErrBadRequest, "check the model's name and base_url"
	case status >= 500, code == "server_error", code == "server_is_overloaded":
		return model.ErrServer, ""
	case status == http.StatusRequestTimeout, status == http.StatusConflict:
		return model.ErrServer, ""
	default:
		return model.ErrBadRequest, ""
	}
}

// retryAfter reads the headers that say when to come back; RFC 9110 10.2.3, and the client libraries' own in ms.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// nonsense is an event that cannot be read.
func nonsense(what string, data []byte, err error) *model.Error {
	const most = 200
	text := string(data)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		what += ", not valid JSON"
	}
	return &model.Error{
		Kind: model.ErrProtocol, Message: "the server sent " + what + ": " + text, Err: err,
		Hint: "check that base_url speaks the API that the provider block names",
	}
}
