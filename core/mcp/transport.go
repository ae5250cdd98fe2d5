// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/stream"
)

// maxMessage bounds one message of a server.
const maxMessage = 16 << 20

// endTime is how long a program may take to end once its input is over.
const endTime = 3 * time.Second

// broken reports whether an error means that the session is of no use any more: any but an answer of the server.
func broken(err error) bool {
	_, answered := errors.AsType[*jsonrpc.Error](err)
	return !answered
}

// transport makes the way to a server, and what ends it.
func (s *server) transport(ctx context.Context) (sdk.Transport, func() error, error) {
	nothing := func() error { return nil }
	switch s.Kind {
	case "stdio":
		return s.program(ctx)
	case "streamable_http":
		client, err := s.client()
		return &sdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: client, MaxEventSize: maxMessage}, nothing, err
	case "sse":
		client, err := s.client()
		return &sdk.SSEClientTransport{Endpoint: s.URL, HTTPClient: client, MaxEventSize: maxMessage}, nothing, err
	}
	return nil, nil, errs.New(errs.Unsupported, "servers of the kind %q are reached by the provider", s.Kind)
}

// program starts a server that speaks over its standard input and output.
func (s *server) program(ctx context.Context) (sdk.Transport, func() error, error) {
	where, dir, user := s.cfg.Sandbox, path.Join(s.cfg.Dir, s.Cwd), s.cfg.User
	if s.RunIn == "host" {
		where, dir, user = s.cfg.Host, s.Cwd, ""
	}
	if where == nil {
		return nil, nil, errs.New(errs.ConfigInvalid, "it runs in the sandbox, and its agent has none").
			WithHint(`set sandboxed = true in the agent, or run_in = "host" in the server`)
	}
	env, err := s.reveal(ctx, s.Env)
	if err != nil {
		return nil, nil, err
	}
	in, toProgram := io.Pipe()
	fromProgram, out := io.Pipe()
	said := &errorOutput{}
	life, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		exit, err := where.Run(life, &driver.Command{
			Argv: s.Command, SecretEnv: env, Dir: dir, User: user, KillGrace: endTime,
		}, driver.Streams{Stdin: in, Stdout: out, Stderr: said})
		if err == nil {
			err = fmt.Errorf("the program ended with exit code %d%s", exit.Code, said.text())
		}
		_ = out.CloseWithError(err) // never fails
		_ = in.CloseWithError(err)  // likewise
	}()
	end := func() error {
		_ = toProgram.Close()   // never fails
		_ = fromProgram.Close() // likewise
		late := time.AfterFunc(endTime, func() { kill(errors.New("the program did not end by itself")) })
		defer late.Stop()
		<-done
		kill(nil)
		return nil
	}
	return &sdk.IOTransport{Reader: fromProgram, Writer: toProgram, MaxLineLength: maxMessage}, end, nil
}

// reveal gives texts with their secrets, and remembers those.
func (s *server) reveal(ctx context.Context, texts map[string]value.Secret) (map[string]string, error) {
	out := map[string]string{}
	for name, secret := range texts {
		text, found, err := secret.Lookup(ctx)
		if err != nil {
			return nil, err
		}
		if found {
			out[name] = text
		}
		if secret.Name() != "" {
			s.seen.Add(text)
		}
	}
	return out, nil
}

// errorOutput keeps the end of what a program says on its standard error.
type errorOutput struct {
	mu  sync.Mutex
	buf stream.HeadTail // guarded by mu
}

func (e *errorOutput) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.buf.Tail == 0 {
		e.buf.Tail = 2 << 10
	}
	return e.buf.Write(p)
}

func (e *errorOutput) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, tail, _ := e.buf.Result()
	if text := strings.TrimSpace(strings.ToValidUTF8(string(tail), "\uFFFD")); text != "" {
		return ": " + text
	}
	return ""
}

// client makes the HTTP client of a server.
func (s *server) client() (*http.Client, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errs.New(errs.ConfigInvalid, "%q is no address of a server", s.URL)
	}
	s.seen.Add(u.RawQuery)
	if p, ok := u.User.Password(); ok {
		s.seen.Add(p)
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	base = base.Clone()
	base.ResponseHeaderTimeout = s.opts.request
	return &http.Client{Transport: &way{server: s, base: base, origin: u}}, nil
}

// way is how requests go to a server: with its headers, which no other host gets, and with a bound on silence.
type way struct {
	*server
	base   *http.Transport
	origin *url.URL
}

// RoundTrip makes a request.
func (w *way) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodDelete && !w.opts.terminate {
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: req}, nil
	}
	if req.URL.Host == w.origin.Host && req.URL.Scheme == w.origin.Scheme {
		headers, err := w.reveal(req.Context(), w.Headers)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		for name, text := range headers {
			req.Header.Set(name, text)
		}
	}
	resp, err := w.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = newQuiet(resp.Body, w.opts.silence)
	return resp, nil
}

// CloseIdleConnections is what http.Client asks for.
func (w *way) CloseIdleConnections() { w.base.CloseIdleConnections() }

// quiet is a body that ends when nothing comes for too long.
type quiet struct {
	io.ReadCloser
	limit time.Duration
	timer *time.Timer
}

func newQuiet(body io.ReadCloser, limit time.Duration) io.ReadCloser {
	if limit <= 0 {
		return body
	}
	return &quiet{body, limit, time.AfterFunc(limit, func() { _ = body.Close() })} // the reader sees it
}

func (q *quiet) Read(p []byte) (int, error) {
	n, err := q.ReadCloser.Read(p)
	q.timer.Reset(q.limit)
	if err != nil {
		q.timer.Stop()
	}
	return n, err
}

func (q *quiet) Close() error {
	q.timer.Stop()
	return q.ReadCloser.Close()
}
