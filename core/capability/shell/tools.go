// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const execSchema = `{"type":"object","required":["cmd"],"properties":{
"cmd":{"type":"string","minLength":1,"description":"Shell command to run."},
"workdir":{"type":["string","null"],"description":"Directory to run it in, absolute or relative to the working directory."},
"shell":{"type":["string","null"],"description":"Shell to use instead of the default one."},
"login":{"type":"boolean","default":true,"description":"Run the shell as a login shell."},
"tty":{"type":"boolean","default":false,"description":"Give the command a terminal."},
"yield_time_ms":{"type":"integer","minimum":0,"default":10000,"description":"How long to wait for the command before it goes on in the background."},
"timeout_ms":{"type":["integer","null"],"minimum":1,"description":"End the command and everything it started after this time. None by default."},
"max_output_tokens":{"type":["integer","null"],"minimum":1,"description":"Most output to return; the middle is left out."}}}`

const stdinSchema = `{"type":"object","required":["session_id"],"properties":{
"session_id":{"type":"integer","description":"Number of the running command."},
"chars":{"type":"string","default":"","description":"What to type. Empty waits for more output."},
"yield_time_ms":{"type":"integer","minimum":0,"default":250,"description":"How long to wait for output."},
"max_output_tokens":{"type":["integer","null"],"minimum":1,"description":"Most output to return; the middle is left out."}}}`

type execTool struct{ *Shell }

func (execTool) Spec() model.ToolSpec {
	return model.ToolSpec{
		Kind: model.ToolFunction, Name: "exec_command", Parameters: json.RawMessage(execSchema),
		Description: "Runs a command in the sandbox. Returns its output, or a session number when it is still running.",
	}
}

type execArgs struct {
	Cmd             string  `json:"cmd"`
	Workdir         *string `json:"workdir"`
	Shell           *string `json:"shell"`
	Login           *bool   `json:"login"`
	TTY             *bool   `json:"tty"`
	YieldTimeMS     *int64  `json:"yield_time_ms"`
	TimeoutMS       *int64  `json:"timeout_ms"`
	MaxOutputTokens *int64  `json:"max_output_tokens"`
}

// Recovers: a command that the sandbox still knows is attached to.
func (execTool) Recovers() {}

func (t execTool) About(arguments string) (tool.Subject, error) {
	var a execArgs
	if e := tool.DecodeArguments(arguments, &a); e != nil {
		return tool.Subject{}, errors.New(e.Message)
	}
	return tool.Subject{Command: &tool.Command{Text: a.Cmd, Shell: deref(a.Shell)}}, nil
}

func (t execTool) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var a execArgs
	if e := tool.DecodeArguments(call.Arguments, &a); e != nil {
		return tool.Result{Error: e}, nil
	}
	if strings.TrimSpace(a.Cmd) == "" {
		return invalid(`argument "cmd" is empty`), nil
	}
	for _, arg := range []struct{ name, value string }{{"cmd", a.Cmd}, {"workdir", deref(a.Workdir)}, {"shell", deref(a.Shell)}} {
		if strings.ContainsRune(arg.value, 0) {
			return invalid("argument %q holds a NUL byte, which no command line can", arg.name), nil
		}
	}
	yield, tokens, bad := t.bounds(a.YieldTimeMS, a.MaxOutputTokens)
	if bad != nil {
		return *bad, nil
	}
	if yield == 0 {
		yield = t.cfg.Spec.YieldTime
	}
	if yield == 0 {
		yield = DefaultYield
	}
	cmd := &driver.Command{
		ID:        call.CommandID(),
		Argv:      t.argv(ctx, a.Cmd, deref(a.Shell), a.Login == nil || *a.Login),
		Env:       t.cfg.Spec.Env,
		Dir:       join(t.cfg.Dir, deref(a.Workdir)),
		User:      t.cfg.User,
		TTY:       deref(a.TTY),
		Timeout:   t.cfg.Timeout,
		KillGrace: driver.DefaultKillGrace,
		Detached:  true,
	}
	if a.TimeoutMS != nil {
		if *a.TimeoutMS < 1 {
			return invalid(`argument "timeout_ms" is %d, at least 1 is needed`, *a.TimeoutMS), nil
		}
		cmd.Timeout = time.Duration(*a.TimeoutMS) * time.Millisecond
	}
	p, err := t.start(ctx, call, cmd)
	if err != nil {
		return tool.Failed(err), nil
	}
	if err := p.await(ctx, clamp(yield)); err != nil {
		return tool.Result{}, err
	}
	if call.Again && p.ended() && errors.Is(p.err, errs.ProcessUnknown) {
		t.forget(p)
		return tool.Result{}, tool.ErrUnsure
	}
	return t.result(p, call, tokens, p.began), nil
}

type stdinTool struct{ *Shell }

func (stdinTool) Spec() model.ToolSpec {
	return model.ToolSpec{
		Kind: model.ToolFunction, Name: "write_stdin", Parameters: json.RawMessage(stdinSchema),
		Description: "Types into a running command's terminal, interrupts a command, or waits for more of its output.",
	}
}

type stdinArgs struct {
	SessionID       *int64 `json:"session_id"`
	Chars           string `json:"chars"`
	YieldTimeMS     *int64 `json:"yield_time_ms"`
	MaxOutputTokens *int64 `json:"max_output_tokens"`
}

// Recovers: to wait for output does no harm, and what was typed is asked about.
func (stdinTool) Recovers() {}

func (t stdinTool) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var a stdinArgs
	if e := tool.DecodeArguments(call.Arguments, &a); e != nil {
		return tool.Result{Error: e}, nil
	}
	if a.SessionID == nil {
		return invalid(`argument "session_id" is missing`), nil
	}
	yield, tokens, bad := t.bounds(a.YieldTimeMS, a.MaxOutputTokens)
	if bad != nil {
		return *bad, nil
	}
	p := t.find(int(*a.SessionID))
	if p == nil {
		return tool.Result{Error: &tool.Error{
			Code: string(errs.ProcessUnknown), Message: fmt.Sprintf("no command is running as session %d", *a.SessionID),
			Hint: "a session ends when its exit code was returned; start the command again with exec_command",
		}}, nil
	}
	if call.Again && a.Chars != "" {
		return tool.Result{}, tool.ErrUnsure
	}
	began := t.cfg.Now()
	switch {
	case a.Chars == "":
		yield = max(yield, minPollYield)
	case p.ended():
	case p.tty:
		if !p.keys.typeIn(a.Chars) {
			return tool.Result{Error: &tool.Error{
				Code: "input_full", Message: fmt.Sprintf("session %d has not read what was typed before", p.number),
				Hint: "look at what it does with empty chars, or write long input to a file",
			}}, nil
		}
	case a.Chars == "\x03":
		if err := t.sandbox.Signal(ctx, p.id, driver.Signal{Name: "INT"}); err != nil && !p.ended() {
			return tool.Failed(err), nil
		}
	default:
		return tool.Result{Error: &tool.Error{
			Code: "no_terminal", Message: fmt.Sprintf("session %d has no terminal to type into", p.number),
			Hint: `start the command with "tty": true; only "\u0003" works without one`,
		}}, nil
	}
	if yield == 0 {
		yield = writeYield
	}
	if err := p.await(ctx, clamp(yield)); err != nil {
		return tool.Result{}, err
	}
	return t.result(p, call, tokens, began), nil
}

// result writes the text that models know.
func (s *Shell) result(p *process, call tool.Call, tokens int, began time.Time) tool.Result {
	ended := p.ended()
	if ended {
		s.forget(p)
		if p.err != nil {
			return tool.Failed(p.err)
		}
	}
	took := s.cfg.Now().Sub(began)
	c := p.out.take(ended)
	cut := tool.Truncate(c.head, c.tail, c.dropped, c.lines, tokens)
	id := sha256.Sum256([]byte(call.ID))
	var b strings.Builder
	fmt.Fprintf(&b, "Chunk ID: %s\nWall time: %.4f seconds\n", hex.EncodeToString(id[:3]), took.Seconds())
	res := tool.Result{Detail: map[string]any{"wall_ms": took.Milliseconds(), "output_bytes": p.out.written()}}
	if c.dropped > 0 {
		res.Detail["dropped_bytes"] = c.dropped
	}
	if ended {
		res.Summary = fmt.Sprintf("exit %d in %s", p.exit.Code, value.Duration(s.cfg.Now().Sub(p.began)))
		res.Detail["exit_code"] = p.exit.Code
		fmt.Fprintf(&b, "Process exited with code %d\n", p.exit.Code)
		why := ""
		switch {
		case p.exit.TimedOut:
			why = "timed out"
			fmt.Fprintf(&b, "The command timed out after %s and was ended with everything it had started\n", value.Duration(p.exit.Ran))
		case p.exit.OOM:
			why = "out of memory"
			b.WriteString("The command was ended because the sandbox ran out of memory\n")
		case p.exit.Signal != "":
			why = "signal " + p.exit.Signal
			fmt.Fprintf(&b, "The command was ended by signal %s\n", p.exit.Signal)
		}
		if why != "" {
			res.Summary += " (" + why + ")"
			res.Detail["ended_by"] = why
		}
	} else {
		res.Summary = fmt.Sprintf("still running as session %d", p.number)
		res.Detail["session_id"] = p.number
		fmt.Fprintf(&b, "Process running with session ID %d\n", p.number)
	}
	if cut.OriginalTokens > 0 {
		fmt.Fprintf(&b, "Original token count: %d\n", cut.OriginalTokens)
	}
	if c.dropped > 0 {
		fmt.Fprintf(&b, "Dropped bytes: %d\n", c.dropped)
	}
	b.WriteString("Output:\n")
	b.WriteString(cut.Text)
	res.Text = b.String()
	return res
}

func (s *Shell) bounds(yieldMS, maxTokens *int64) (time.Duration, int, *tool.Result) {
	tokens := s.cfg.Spec.MaxOutputTokens
	if tokens == 0 {
		tokens = DefaultOutputTokens
	}
	var yield time.Duration
	switch {
	case yieldMS != nil && *yieldMS < 0:
		r := invalid(`argument "yield_time_ms" is %d, it cannot be negative`, *yieldMS)
		return 0, 0, &r
	case maxTokens != nil && *maxTokens < 1:
		r := invalid(`argument "max_output_tokens" is %d, at least 1 is needed`, *maxTokens)
		return 0, 0, &r
	}
	if yieldMS != nil {
		yield = max(time.Duration(*yieldMS)*time.Millisecond, minYield)
	}
	if maxTokens != nil {
		tokens = int(min(*maxTokens, int64(tokens)))
	}
	return yield, tokens, nil
}

func clamp(d time.Duration) time.Duration { return min(max(d, minYield), maxYield) }

func invalid(format string, args ...any) tool.Result {
	return tool.Result{Error: &tool.Error{Code: tool.CodeArguments, Message: fmt.Sprintf(format, args...), Retryable: true}}
}

func join(base, dir string) string {
	switch {
	case dir == "":
		return base
	case base == "" || strings.HasPrefix(dir, "/"):
		return dir
	default:
		return strings.TrimSuffix(base, "/") + "/" + dir
	}
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
