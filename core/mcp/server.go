// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/internal/version"
	"github.com/berth-dev/berth/sdk/errs"
)

// maxTools bounds the tools of a server.
const maxTools = 1000

// server is one server, reached when it is needed.
type server struct {
	*spec.MCPServer
	cfg  *Config
	opts options
	seen redact.Set // secrets that were given to it

	calls    atomic.Uint64
	progress sync.Map // of calls that run: token -> func(*sdk.ProgressNotificationParams)

	mu     sync.Mutex
	conn   *connection // guarded by mu; nil = not reached
	closed bool        // guarded by mu
}

// connection is a session with a server.
type connection struct {
	*sdk.ClientSession
	end func() error // ends what is behind the session
}

// remoteTool is a tool as a server describes it.
type remoteTool struct {
	name, description string
	schema            json.RawMessage
}

func newServer(sp *spec.MCPServer, cfg *Config) *server {
	return &server{MCPServer: sp, cfg: cfg, opts: readOptions(sp)}
}

// failed describes a failure, without secrets.
func (s *server) failed(what string, err error) *errs.Error {
	code := errs.VendorFailed
	if !broken(err) {
		code = errs.InvalidArgument // the server answered, and did not like it
	}
	e := errs.New(code, "%s: %s: %s", full(s.MCPServer), what, s.seen.String(err.Error()))
	if own, ok := errors.AsType[*errs.Error](err); ok {
		e.Hint = own.Hint
	}
	return e
}

// reach gives the session, and makes it when there is none.
func (s *server) reach(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, s.failed("reach it", errors.New("the run is over"))
	case s.conn != nil:
		return s.conn, nil
	}
	// What is reached lives longer than the call that wanted it: only until then does the call's end count.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	late := time.AfterFunc(s.opts.connect, func() { cancel(fmt.Errorf("it took longer than %s (connect_timeout)", s.opts.connect)) })
	defer late.Stop()
	release := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer release()
	client := sdk.NewClient(&sdk.Implementation{Name: "berth", Version: version.String()}, &sdk.ClientOptions{
		Capabilities:                &sdk.ClientCapabilities{}, // no roots, no sampling, no questions to a person
		ProgressNotificationHandler: s.notified,
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			s.cfg.Warn(full(s.MCPServer)+" has changed its tools", "the run goes on with those that it had at its start")
		},
	})
	transport, end, err := s.transport(life)
	if err != nil {
		cancel(nil)
		return nil, s.failed("reach it", err)
	}
	session, err := client.Connect(life, transport, nil)
	if err != nil {
		if cause := context.Cause(life); cause != nil {
			err = cause
		}
		err = errors.Join(err, end())
		cancel(nil)
		return nil, s.failed("reach it", err)
	}
	s.conn = &connection{session, func() error {
		defer cancel(nil)
		return end()
	}}
	return s.conn, nil
}

// lose forgets a session that is of no use any more.
func (s *server) lose(c *connection) {
	s.mu.Lock()
	if s.conn == c {
		s.conn = nil
	}
	s.mu.Unlock()
	_ = c.Close() // it is broken
	_ = c.end()   // likewise
}

func (s *server) close(ctx context.Context) error {
	s.mu.Lock()
	c := s.conn
	s.conn, s.closed = nil, true
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		_ = c.Close() // a server that is gone already is as good
		done <- c.end()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// list gives the tools that the filter lets through.
func (s *server) list(ctx context.Context) ([]remoteTool, error) {
	all := s.cfg.Cache.get(s.MCPServer)
	if !s.opts.cache || all == nil {
		var err error
		if all, err = s.ask(ctx); err != nil {
			return nil, err
		}
		if s.opts.cache {
			s.cfg.Cache.put(s.MCPServer, all)
		}
	}
	if s.opts.pin != "" && s.opts.pin != pin(all) {
		return nil, errs.New(errs.ConfigInvalid, "%s: its tools are not those that were approved: pin is %s, they have %s", full(s.MCPServer), s.opts.pin, pin(all)).
			WithHint("look at the tools; if they are right, write the new value")
	}
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.name
	}
	if globs := s.opts.useless(names); len(globs) > 0 {
		s.cfg.Warn(fmt.Sprintf("%s: no tool is named like %s", full(s.MCPServer), strings.Join(globs, ", ")), "its tools are "+strings.Join(names, ", "))
	}
	return slices.DeleteFunc(slices.Clone(all), func(t remoteTool) bool { return !s.opts.offered(t.name) }), nil
}

func (s *server) ask(ctx context.Context) ([]remoteTool, error) {
	c, err := s.reach(ctx)
	if err != nil {
		return nil, err
	}
	work, cancel := context.WithTimeoutCause(ctx, s.opts.session, fmt.Errorf("it took longer than %s (session_timeout)", s.opts.session))
	defer cancel()
	var all []remoteTool
	for t, err := range c.Tools(work, nil) {
		if err != nil {
			if cause := context.Cause(work); cause != nil {
				err = cause
			}
			return nil, s.failed("list its tools", err)
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, s.failed("list its tools", err)
		}
		if all = append(all, remoteTool{t.Name, s.seen.String(t.Description), schema}); len(all) > maxTools {
			return nil, s.failed("list its tools", fmt.Errorf("there are more than %d", maxTools))
		}
	}
	return all, nil
}

// pin is the hash of a list of tools, whatever its order.
func pin(list []remoteTool) string {
	lines := make([]string, len(list))
	for i, t := range list {
		line, _ := json.Marshal([]any{t.name, t.description, t.schema}) // texts and valid JSON
		lines[i] = string(line)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:])
}

// errLost says that a session broke under a call.
var errLost = errors.New("the connection to the server was lost; the call may have been made")

// call calls a tool. A session that breaks is made anew; the call is repeated as often as the block says.
func (s *server) call(ctx context.Context, name string, arguments json.RawMessage, report func(tool.Progress)) (*sdk.CallToolResult, error) {
	wait := s.opts.base
	for attempt := 0; ; attempt++ {
		res, err := s.once(ctx, name, arguments, report)
		if err == nil || ctx.Err() != nil || attempt >= s.opts.attempts || !retryable(err) {
			return res, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
		if wait *= 2; s.opts.most > 0 {
			wait = min(wait, s.opts.most)
		}
	}
}

func retryable(err error) bool { return errors.Is(err, errLost) || errors.Is(err, errs.VendorFailed) }

func (s *server) once(ctx context.Context, name string, arguments json.RawMessage, report func(tool.Progress)) (*sdk.CallToolResult, error) {
	c, err := s.reach(ctx)
	if err != nil {
		return nil, err
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(s.opts.session, func() {
		cancel(errs.New(errs.ExecTimeout, "%s: %s took longer than %s without news (session_timeout)", full(s.MCPServer), name, s.opts.session))
	})
	defer late.Stop()
	token := fmt.Sprintf("%d", s.calls.Add(1))
	s.progress.Store(token, func(p *sdk.ProgressNotificationParams) {
		late.Reset(s.opts.session)
		report(tool.Progress{Note: s.seen.String(note(p))})
	})
	defer s.progress.Delete(token)
	params := &sdk.CallToolParams{Name: name, Arguments: arguments, Meta: sdk.Meta{}}
	params.SetProgressToken(token)
	res, err := c.CallTool(work, params)
	if err == nil {
		return res, nil
	}
	if cause := context.Cause(work); cause != nil {
		return nil, cause
	}
	if broken(err) {
		s.lose(c)
		return nil, fmt.Errorf("%s: %w (%s)", full(s.MCPServer), errLost, s.seen.String(err.Error()))
	}
	return nil, s.failed(name, err)
}

// notified passes news of a call on.
func (s *server) notified(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
	token, _ := req.Params.ProgressToken.(string)
	if f, ok := s.progress.Load(token); ok {
		f.(func(*sdk.ProgressNotificationParams))(req.Params) //nolint:errcheck // only such functions are stored
	}
}

func note(p *sdk.ProgressNotificationParams) string {
	text := fmt.Sprintf("%g", p.Progress)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %g", p.Total)
	}
	if p.Message != "" {
		text += ": " + p.Message
	}
	return text
}
