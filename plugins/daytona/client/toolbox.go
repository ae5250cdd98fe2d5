// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// Toolbox works inside one sandbox, which has to be started.
type Toolbox struct {
	c       *Client
	base    string
	headers http.Header
	http    *vendorhttp.Client
}

// Toolbox reaches into a sandbox. Its address comes with the sandbox, and may be another after a start.
func (c *Client) Toolbox(s *Sandbox) (*Toolbox, error) {
	if s.ToolboxProxyURL == "" {
		return nil, errs.New(errs.VendorFailed, "the vendor does not say where the toolbox of sandbox %s is", s.ID)
	}
	t := &Toolbox{c: c, base: strings.TrimSuffix(s.ToolboxProxyURL, "/") + "/" + url.PathEscape(s.ID), headers: maps.Clone(c.headers)}
	if c.opts.Quiet {
		t.headers.Set(headerSkipActivity, "true")
	}
	var err error
	t.http, err = c.at(t.base, t.headers)
	return t, err
}

func (t *Toolbox) do(ctx context.Context, req *vendorhttp.Request, out any) error {
	_, err := t.http.Do(ctx, req, out)
	return err
}

// Version is that of the daemon.
func (t *Toolbox) Version(ctx context.Context) (string, error) {
	var v struct{ Version string }
	err := t.do(ctx, &vendorhttp.Request{Op: "ask for the daemon's version", Path: "version"}, &v)
	return v.Version, err
}

// Home is the directory of the sandbox's user.
func (t *Toolbox) Home(ctx context.Context) (string, error) {
	var v struct{ Dir string }
	err := t.do(ctx, &vendorhttp.Request{Op: "ask for the home directory", Path: "user-home-dir"}, &v)
	return v.Dir, err
}

// Ports are those between 3000 and 9999 that somebody listens on.
func (t *Toolbox) Ports(ctx context.Context) ([]int, error) {
	var v struct{ Ports []int }
	err := t.do(ctx, &vendorhttp.Request{Op: "ask for ports", Path: "port"}, &v)
	return v.Ports, err
}

// Execution is a command for [Toolbox.Execute].
type Execution struct {
	// Command is a text that a shell reads from its standard input: a program that reads standard input reads the lines that
	// follow it, unless it gets </dev/null.
	Command string            `json:"command"`
	Dir     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"envs,omitempty"` // shown to whoever lists
	Timeout int               `json:"timeout,omitempty"`
}

// Executed is how it went.
type Executed struct {
	ExitCode int    `json:"exitCode"` // -1: a signal ended it, or the directory is not there
	Result   string `json:"result"`   // both outputs as they came; what is not UTF-8 is replaced
}

// Execute runs a short command. It is sent once, and goes on when ctx ends.
func (t *Toolbox) Execute(ctx context.Context, cmd Execution) (*Executed, error) {
	limit := vendorhttp.DefaultTimeout
	if cmd.Timeout > 0 {
		limit += time.Duration(cmd.Timeout) * time.Second
	}
	var out Executed
	err := t.do(ctx, &vendorhttp.Request{Op: "run a command", Method: http.MethodPost, Path: "process/execute", JSON: cmd, Timeout: limit}, &out)
	if e, ok := asError(err); ok && e.Vendor != nil && e.Vendor.HTTPStatus == http.StatusRequestTimeout {
		return nil, &errs.Error{Code: errs.ExecTimeout, Op: e.Op, Message: "the command did not end in time", Vendor: e.Vendor, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Session is a shell that lives until it is deleted.
type Session struct {
	t  *Toolbox
	ID string
}

func (s *Session) path(rest string) string { return "process/session/" + url.PathEscape(s.ID) + rest }

// OpenSession starts a shell under an id of its own.
func (t *Toolbox) OpenSession(ctx context.Context, id string) (*Session, error) {
	s := &Session{t: t, ID: id}
	body := map[string]string{"sessionId": id}
	if err := t.do(ctx, &vendorhttp.Request{Op: "open a session", Method: http.MethodPost, Path: "process/session", JSON: body}, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// SessionResult is how a command of a session went.
type SessionResult struct {
	ID       string  `json:"cmdId"`
	Stdout   *string `json:"stdout"`
	Stderr   *string `json:"stderr"`
	Output   *string `json:"output"`
	ExitCode *int    `json:"exitCode"` // nil while it runs
}

// Exec writes a command into the shell. An exit in it ends the shell, and the call never: put it into parentheses. With
// async it returns at once. It is sent once.
func (s *Session) Exec(ctx context.Context, command string, async bool) (*SessionResult, error) {
	req := &vendorhttp.Request{
		Op: "run a command", Method: http.MethodPost, Path: s.path("/exec"), JSON: map[string]any{"command": command, "runAsync": async},
		Header: splitHeader(),
	}
	var r SessionResult
	if err := s.t.do(ctx, req, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// splitHeader asks for the two outputs apart.
func splitHeader() http.Header {
	const version = "0.190.0" // the first that tells them apart is 0.167
	return http.Header{"X-Daytona-Sdk-Version": {version}}
}

// Command tells how a command stands.
func (s *Session) Command(ctx context.Context, id string) (exit *int, err error) {
	var v struct{ ExitCode *int }
	err = s.t.do(ctx, &vendorhttp.Request{Op: "look at a command", Path: s.path("/command/" + url.PathEscape(id))}, &v)
	return v.ExitCode, err
}

// Logs gives the outputs of a command so far, line by line.
func (s *Session) Logs(ctx context.Context, id string) (stdout, stderr string, err error) {
	var v struct{ Stdout, Stderr string }
	req := &vendorhttp.Request{Op: "read a command's output", Path: s.path("/command/" + url.PathEscape(id) + "/logs"), Header: splitHeader()}
	err = s.t.do(ctx, req, &v)
	return v.Stdout, v.Stderr, err
}

// Input writes a line to a command that was started with async. It is sent once.
func (s *Session) Input(ctx context.Context, id, line string) error {
	req := &vendorhttp.Request{
		Op: "write to a command", Method: http.MethodPost, Path: s.path("/command/" + url.PathEscape(id) + "/input"), JSON: map[string]string{"data": line},
	}
	return s.t.do(ctx, req, nil)
}

// Close ends the shell and everything in it; what does not end when told to is ended after five seconds.
func (s *Session) Close(ctx context.Context) error {
	err := s.t.do(ctx, &vendorhttp.Request{Op: "close a session", Method: http.MethodDelete, Path: s.path("")}, nil)
	if NotFound(err) {
		return nil
	}
	return err
}
