// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/errs"
)

// OTLP says where spans go. The OTEL_* variables of the environment win over it.
type OTLP struct {
	Endpoint string // http or https address
	Protocol string // http/protobuf or grpc; empty = the first
	Headers  map[string]value.Secret
}

// The protocols.
const (
	protoHTTP = "http/protobuf"
	protoGRPC = "grpc"
)

const envPrefix = "OTEL_EXPORTER_OTLP_"

// setting is a variable of the exporters: the one for traces, else the one for all signals.
func (c *Config) setting(name string) string {
	for _, key := range []string{envPrefix + "TRACES_" + name, envPrefix + name} {
		if v, ok := c.Getenv(key); ok && strings.TrimSpace(v) != "" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// newExport makes what brings spans to a collector; nil = there is none.
func newExport(ctx context.Context, cfg Config, apiKey string) (*export, error) {
	get := func(name string) string { v, _ := cfg.Getenv(name); return strings.ToLower(strings.TrimSpace(v)) }
	endpoint := cfg.setting("ENDPOINT")
	wanted := endpoint != "" || cfg.OTLP != nil && cfg.OTLP.Endpoint != ""
	switch v := get("OTEL_TRACES_EXPORTER"); v {
	case "":
	case "none":
		wanted = false
	case "otlp":
		wanted = true
	default:
		return nil, errs.New(errs.ConfigInvalid, "OTEL_TRACES_EXPORTER is %q, which berth does not have", v).WithHint("it is otlp or none")
	}
	if !wanted || get("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	var own OTLP
	if cfg.OTLP != nil && endpoint == "" {
		own = *cfg.OTLP
	}
	protocol := cmp.Or(cfg.setting("PROTOCOL"), own.Protocol, protoHTTP)
	headers := map[string]string{}
	for name, secret := range own.Headers {
		text, found, err := secret.Lookup(ctx)
		if err != nil {
			return nil, fmt.Errorf("header %s of the trace collector: %w", name, err)
		}
		if found {
			headers[strings.ToLower(name)] = text
		}
	}
	if apiKey != "" {
		// an option takes their place, so they are part of it
		maps.Copy(headers, envHeaders(cfg.setting("HEADERS")))
		headers["authorization"] = "Bearer " + apiKey
	}
	e := &export{where: cmp.Or(endpoint, own.Endpoint, "its usual address"), warn: cfg.Warn, redact: cfg.Redact}
	var err error
	switch protocol {
	case protoHTTP:
		var opts []otlptracehttp.Option
		if own.Endpoint != "" {
			opts = append(opts, otlptracehttp.WithEndpointURL(tracesPath(own.Endpoint)))
		}
		if len(headers) > 0 {
			opts = append(opts, otlptracehttp.WithHeaders(headers))
		}
		e.inner, err = otlptracehttp.New(ctx, opts...)
	case protoGRPC:
		var opts []otlptracegrpc.Option
		if own.Endpoint != "" {
			opts = append(opts, otlptracegrpc.WithEndpointURL(own.Endpoint))
		}
		if len(headers) > 0 {
			opts = append(opts, otlptracegrpc.WithHeaders(headers))
		}
		e.inner, err = otlptracegrpc.New(ctx, opts...)
	default:
		return nil, errs.New(errs.ConfigInvalid, "the protocol of the trace collector is %q, which berth does not have", protocol).
			WithHint("it is %s or %s", protoHTTP, protoGRPC)
	}
	if err != nil {
		return nil, fmt.Errorf("the trace collector at %s: %w", e.where, err)
	}
	return e, nil
}

// tracesPath is where a collector at an address takes traces.
func tracesPath(endpoint string) string {
	const path = "/v1/traces"
	endpoint = strings.TrimRight(endpoint, "/")
	if strings.HasSuffix(endpoint, path) {
		return endpoint
	}
	return endpoint + path
}

func envHeaders(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if v, err := url.PathUnescape(strings.TrimSpace(v)); ok && err == nil {
			out[strings.ToLower(strings.TrimSpace(k))] = v
		}
	}
	return out
}

// export hands spans to a collector, and says once that it does not take them.
type export struct {
	inner  sdktrace.SpanExporter
	where  string
	warn   func(message, hint string)
	redact func(string) string

	mu   sync.Mutex
	bad  bool // guarded by mu; the last attempt failed
	told bool // guarded by mu
}

// ExportSpans never fails: whoever calls could only write about it to standard error, again and again.
func (e *export) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.inner.ExportSpans(ctx, spans)
	if err != nil {
		e.fail(err, nil)
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bad = false
	return nil
}

// Shutdown does nothing: see stop.
func (*export) Shutdown(context.Context) error { return nil }

// stop ends what is under way.
func (e *export) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Second, errSlow)
	defer cancel()
	return e.inner.Shutdown(ctx)
}

func (e *export) failing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bad
}

// fail says why spans are not delivered; the first that is known counts.
func (e *export) fail(why, or error) {
	if why == nil {
		why = or
	}
	e.mu.Lock()
	told := e.told
	e.bad, e.told = true, true
	e.mu.Unlock()
	if !told {
		e.warn(e.redact(fmt.Sprintf("spans are not delivered to %s: %v", e.where, why)),
			"the run goes on, and its own file has them: berth trace show")
	}
}
