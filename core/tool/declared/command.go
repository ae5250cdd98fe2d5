// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/stream"
)

// DefaultOutput bounds the output of a command that says nothing about it; half of it is kept of the beginning, half of
// the end.
const DefaultOutput = 64 << 10

// command is a tool that runs a program.
type command struct {
	base
	where Runner
}

// sandboxCommand is one whose program a sandbox still knows when the core has died.
type sandboxCommand struct{ command }

// Recovers: a command that the sandbox still knows is attached to.
func (*sandboxCommand) Recovers() {}

// argv evaluates the command line. Elements that are null are left out.
func (c *command) argv(vars spec.RunVars) ([]string, error) {
	var argv []string
	switch v := c.Body["command"].(type) {
	case []string:
		argv = v
	case spec.Expr:
		got, err := v.Eval(vars)
		if err != nil {
			return nil, err
		}
		items, ok := got.([]any)
		if !ok {
			return nil, c.errorf("command is no list")
		}
		for _, i := range items {
			if i != nil {
				argv = append(argv, fmt.Sprint(i))
			}
		}
	}
	if len(argv) == 0 || argv[0] == "" {
		return nil, c.errorf("its command is empty")
	}
	for _, a := range argv {
		if strings.ContainsRune(a, 0) {
			return nil, errors.New("an argument holds a NUL byte, which no command line can")
		}
	}
	return argv, nil
}

// About gives the command for approval rules, in the form in which a shell would take it.
func (c *command) About(arguments string) (tool.Subject, error) {
	vars, bad := c.vars(arguments)
	if bad != nil {
		return tool.Subject{}, errors.New(bad.Message)
	}
	argv, err := c.argv(vars)
	if err != nil {
		return tool.Subject{}, err
	}
	words := make([]string, len(argv))
	for i, a := range argv {
		if words[i], err = syntax.Quote(a, syntax.LangBash); err != nil {
			return tool.Subject{}, err
		}
	}
	return tool.Subject{Command: &tool.Command{Text: strings.Join(words, " ")}}, nil
}

// Call runs the program.
func (c *command) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	vars, bad := c.vars(call.Arguments)
	if bad != nil {
		return tool.Result{Error: bad}, nil
	}
	argv, err := c.argv(vars)
	if err != nil {
		return invalid("the command cannot be made: %v", err), nil
	}
	var seen secrets
	env, err := c.reveal(ctx, "env", vars, &seen)
	if err != nil {
		return tool.Failed(err), nil
	}
	stdin, given, err := c.text("stdin", vars)
	if err != nil {
		return invalid("the command's input cannot be made: %v", err), nil
	}
	cmd := &driver.Command{ID: call.CommandID(), Argv: argv, SecretEnv: env, KillGrace: driver.DefaultKillGrace, Dir: c.word("cwd", "")}
	if !c.onHost() {
		cmd.Dir, cmd.User = path.Join(c.env.Dir, cmd.Dir), c.env.User
	}
	most := c.most()
	out, errOut := &stream.HeadTail{Head: most / 2, Tail: most / 2}, &stream.HeadTail{Head: most / 2, Tail: most / 2}
	live := progress{call.Progress, &seen}
	streams := driver.Streams{Stdout: io.MultiWriter(out, live), Stderr: io.MultiWriter(errOut, live)}
	if given {
		streams.Stdin = strings.NewReader(stdin)
	}
	exit, err := c.run(ctx, call, cmd, streams)
	switch {
	case errors.Is(err, tool.ErrUnsure), ctx.Err() != nil && err != nil:
		return tool.Result{}, err
	case err != nil:
		return tool.Failed(err), nil
	}
	return c.result(ctx, exit, shown(out, &seen), shown(errOut, &seen), out), nil
}

func (c *command) run(ctx context.Context, call tool.Call, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	if !call.Again || c.onHost() {
		return c.where.Run(ctx, cmd, streams)
	}
	exit, err := c.env.Sandbox.Attach(ctx, cmd.ID, 0, streams)
	if errors.Is(err, errs.ProcessUnknown) {
		return exit, tool.ErrUnsure
	}
	return exit, err
}

// most is how much of each stream is kept.
func (c *command) most() int {
	if n, ok := c.Body["max_output"].(uint64); ok && n > 0 {
		return int(n)
	}
	return DefaultOutput
}

// progress shows output while the command runs.
type progress struct {
	report func(tool.Progress)
	seen   *secrets
}

func (p progress) Write(b []byte) (int, error) {
	p.report(tool.Progress{Output: []byte(p.seen.String(string(b)))})
	return len(b), nil
}

// shown is a stream as text, with the number of bytes that were dropped.
func shown(h *stream.HeadTail, seen *secrets) string {
	return seen.String(strings.ToValidUTF8(h.String(), "\uFFFD"))
}

func (c *command) result(ctx context.Context, exit driver.Exit, out, errOut string, raw *stream.HeadTail) tool.Result {
	_, _, dropped := raw.Result()
	res := tool.Result{
		Summary: fmt.Sprintf("exit %d in %s", exit.Code, value.Duration(exit.Ran)),
		Detail:  map[string]any{"exit_code": exit.Code, "dropped_bytes": dropped},
	}
	fail := func(code, format string, args ...any) tool.Result {
		res.Error = &tool.Error{Code: code, Message: fmt.Sprintf(format, args...)}
		return res
	}
	output := strings.TrimSpace(strings.TrimSpace(out) + "\n" + strings.TrimSpace(errOut))
	switch {
	case exit.OOM:
		return fail("out_of_memory", "the kernel ended the command for lack of memory; it printed:\n%s", output)
	case exit.Signal != "":
		return fail("command_failed", "the command was ended by signal %s; it printed:\n%s", exit.Signal, output)
	case exit.Code != 0:
		return fail("command_failed", "the command failed with exit code %d; it printed:\n%s", exit.Code, output)
	}
	switch c.word("output", "text") {
	case "json":
		if dropped > 0 {
			return fail("output_too_large", "the command printed more than %d bytes, which is what max_output keeps", c.most())
		}
		if out = strings.TrimSpace(out); !json.Valid([]byte(out)) {
			return fail("invalid_output", "the command should print JSON, and printed:\n%s", out)
		}
		res.Text = out
	case "file":
		return c.file(ctx, strings.TrimSpace(out), res)
	default:
		if res.Text = out; strings.TrimSpace(out) == "" {
			res.Text = errOut
		}
	}
	return res
}

// file gives the content of the file whose path the command printed.
func (c *command) file(ctx context.Context, name string, res tool.Result) tool.Result {
	fail := func(code, format string, args ...any) tool.Result {
		res.Error = &tool.Error{Code: code, Message: fmt.Sprintf(format, args...)}
		return res
	}
	switch {
	case name == "" || strings.ContainsAny(name, "\n\x00"):
		return fail("invalid_output", "the command should print the path of one file, and printed:\n%s", name)
	case c.onHost():
		return fail("invalid_output", `output = "file" is for commands in the sandbox`)
	}
	if !path.IsAbs(name) {
		name = path.Join(c.env.Dir, c.word("cwd", ""), name)
	}
	_, r, err := c.env.Sandbox.Open(ctx, name, driver.ReadOptions{User: c.env.User})
	if err != nil {
		res.Error = tool.FromError(err)
		return res
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err = errors.Join(err, r.Close()); err != nil {
		res.Error = tool.FromError(err)
		return res
	}
	if len(b) > maxFile {
		return fail("output_too_large", "the file %s is larger than 10 MiB", name)
	}
	if mime := http.DetectContentType(b); tool.Picture(mime) {
		res.Text, res.Images = name, []tool.Image{{MIME: mime, Data: b}}
		return res
	}
	if !textual(b) {
		return fail("invalid_output", "the file %s is neither text nor a picture", name)
	}
	h := &stream.HeadTail{Head: c.most() / 2, Tail: c.most() / 2}
	_, _ = h.Write(b) // never fails
	res.Text = shown(h, &secrets{})
	return res
}

// textual reports whether bytes are a text that a model can read.
func textual(b []byte) bool { return utf8.Valid(b) && !slices.Contains(b, 0) }

// maxFile is the largest file that a command may give.
const maxFile = 10 << 20

func invalid(format string, args ...any) tool.Result {
	return tool.Result{Error: &tool.Error{Code: tool.CodeArguments, Message: fmt.Sprintf(format, args...), Retryable: true}}
}
