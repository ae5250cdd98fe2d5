// SPDX-License-Identifier: Apache-2.0

package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
)

// The retry rules when the settings say nothing.
const (
	defaultRetries    = 3
	defaultInitial    = 250 * time.Millisecond
	defaultMax        = 2 * time.Second
	defaultRateMax    = 30 * time.Second
	defaultMultiplier = 2.0
	longestRetryAfter = 2 * time.Minute
)

var defaultRetryOn = []string{"network", "408", "409", "429", "5xx", "retry_after"}

// attempts performs the call until it succeeds, fails for good, or the reader has enough.
func (p *Provider) attempts(ctx context.Context, req *model.Request, yield func(model.Event, error) bool) {
	body, path, err := p.body(req)
	if err != nil {
		yield(nil, err)
		return
	}
	retry := &spec.RetrySettings{}
	timeout := p.timeout
	var opts []option.RequestOption
	if s := req.Settings; s != nil {
		if s.Retry != nil {
			retry = s.Retry
		}
		if s.Timeout != nil {
			timeout = *s.Timeout
		}
		for name, secret := range s.ExtraHeaders {
			v, err := secret.Reveal(ctx)
			if err != nil {
				yield(nil, fmt.Errorf("extra header %q: %w", name, err))
				return
			}
			opts = append(opts, option.WithHeader(name, v))
		}
		for name, v := range s.ExtraQuery {
			opts = append(opts, option.WithQuery(name, fmt.Sprint(v)))
		}
	}
	if req.IdempotencyKey != "" {
		opts = append(opts, option.WithHeader("Idempotency-Key", req.IdempotencyKey))
	}
	most := defaultRetries
	if retry.MaxRetries != nil {
		most = *retry.MaxRetries
	}
	for attempt := 1; ; attempt++ {
		stopped, err := p.attempt(ctx, timeout, path, body, opts, yield)
		if stopped || err == nil {
			return
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		var me *model.Error
		if !errors.As(err, &me) || attempt > most || !mayRetry(me, retry.On) {
			yield(nil, err)
			return
		}
		wait, ok := p.wait(retry, me, attempt)
		if !ok {
			yield(nil, err)
			return
		}
		if !yield(model.Retrying{Attempt: attempt, After: wait, Err: err}, nil) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			yield(nil, context.Cause(ctx))
			return
		}
	}
}

// body encodes the request.
func (p *Provider) body(req *model.Request) (body []byte, path string, err error) {
	if p.api == APIChatCompletions {
		body, err = chatBody(req)
		return body, "chat/completions", err
	}
	body, err = responsesBody(req)
	return body, "responses", err
}

// attempt sends the request once. Stopped means that the reader wants no more.
func (p *Provider) attempt(ctx context.Context, timeout time.Duration, path string, body []byte, opts []option.RequestOption,
	yield func(model.Event, error) bool,
) (stopped bool, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, &model.Error{
			Kind:    model.ErrTimeout,
			Message: fmt.Sprintf("no complete answer within %s", timeout), Hint: "raise timeout in the model's settings",
		})
		defer cancel()
	}
	var res *http.Response
	opts = append(slices.Clone(opts), option.WithRequestBody("application/json", bytes.NewReader(body)),
		option.WithHeader("Accept", "text/event-stream"))
	if err := p.client.Post(ctx, path, nil, &res, opts...); err != nil {
		return false, classify(ctx, err)
	}
	defer res.Body.Close()
	requestID := res.Header.Get("X-Request-Id")
	decoder := ssestream.NewDecoder(res)
	var reader streamReader = &responsesReader{requestID: requestID}
	if p.api == APIChatCompletions {
		reader = &chatReader{requestID: requestID}
	}
	for decoder.Next() {
		events, err := reader.read(decoder.Event())
		for _, ev := range events {
			if !yield(ev, nil) {
				return true, nil
			}
		}
		if err != nil {
			return false, err
		}
		if reader.done() {
			return false, nil
		}
	}
	if err := decoder.Err(); err != nil {
		return false, classify(ctx, err)
	}
	events, err := reader.eof()
	for _, ev := range events {
		if !yield(ev, nil) {
			return true, nil
		}
	}
	return false, err
}

func brokeOff(requestID string) error {
	return &model.Error{Kind: model.ErrNetwork, RequestID: requestID, Message: "the answer broke off before its end", Err: io.ErrUnexpectedEOF}
}

// streamReader turns a server's events into ours.
type streamReader interface {
	read(ev ssestream.Event) ([]model.Event, error)
	// eof is called when the stream ends without having been done.
	eof() ([]model.Event, error)
	done() bool
}

func mayRetry(e *model.Error, on []string) bool {
	if on == nil {
		on = defaultRetryOn
	}
	for _, o := range on {
		switch o {
		case "network":
			if e.Kind == model.ErrNetwork || e.Kind == model.ErrTimeout {
				return true
			}
		case "5xx":
			if e.HTTPStatus >= 500 || (e.HTTPStatus == 0 && e.Kind == model.ErrServer) {
				return true
			}
		case "retry_after":
			if e.RetryAfter > 0 {
				return true
			}
		case "429":
			if e.Kind == model.ErrRateLimit {
				return true // a used-up quota is a 429 too, and waiting does not help
			}
		default:
			if o == strconv.Itoa(e.HTTPStatus) {
				return true
			}
		}
	}
	return false
}

// wait is how long to wait before the next attempt; false when the server asks for too long.
func (p *Provider) wait(r *spec.RetrySettings, e *model.Error, attempt int) (time.Duration, bool) {
	if e.RetryAfter > longestRetryAfter {
		return 0, false
	}
	first, most, factor := r.Initial, r.Max, r.Multiplier
	if first == 0 {
		first = defaultInitial
	}
	if most == 0 {
		most = defaultMax
		if e.Kind == model.ErrRateLimit {
			most = defaultRateMax
		}
	}
	if factor == 0 {
		factor = defaultMultiplier
	}
	d := float64(first)
	for range attempt - 1 {
		d = min(d*factor, float64(most))
	}
	if r.Jitter == nil || *r.Jitter {
		random := p.cfg.Random
		if random == nil {
			random = rand.Float64
		}
		d *= random()
	}
	return max(time.Duration(d), e.RetryAfter), true
}
