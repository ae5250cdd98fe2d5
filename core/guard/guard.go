// SPDX-License-Identifier: Apache-2.0

// Package guard asks one guardrail about one text: a regular expression, a command, an agent or a Go function. It decides
// nothing about the run.
package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// timeLimit bounds a command.
const timeLimit = time.Minute

// outputLimit bounds what is kept of a command's output.
const outputLimit = 4 << 10

// Runner runs commands.
type Runner interface {
	Run(ctx context.Context, c *driver.Command, s driver.Streams) (driver.Exit, error)
}

// Func is a guardrail in Go. It gives what tripped, empty = nothing.
type Func func(ctx context.Context, text string) (trip string, err error)

// Env is what guardrails work with.
type Env struct {
	Sandbox Runner // nil = there is none
	Host    Runner
	User    string // of commands in the sandbox; empty = its default
	Funcs   map[string]Func
	// Agent gives an agent's answer to a text: the value of its JSON where it has an output schema, else the text.
	Agent func(ctx context.Context, g *spec.Guardrail, text string) (any, error)
	Vars  spec.RunVars
}

// Ask asks a guardrail. It gives the message of what tripped; ok is true when nothing did.
func Ask(ctx context.Context, g *spec.Guardrail, text string, env Env) (message string, ok bool, err error) {
	var found string
	switch {
	case g.Regex != "":
		found, err = byPattern(g, text)
	case len(g.Command) > 0:
		found, err = byCommand(ctx, g, text, env)
	case g.Agent != nil:
		found, err = byAgent(ctx, g, text, env)
	case g.Go != "":
		f := env.Funcs[g.Go]
		if f == nil {
			return "", false, errs.New(errs.ConfigInvalid, "there is no Go function %q", g.Go).
				WithHint("the program that embeds berth registers it; the berth command has none")
		}
		found, err = f(ctx, text)
	default:
		return "", false, errs.New(errs.ConfigInvalid, "it has no check")
	}
	if err != nil || found == "" {
		return "", err == nil, err
	}
	if g.Message != "" {
		found = g.Message
	}
	return found, false, nil
}

func byPattern(g *spec.Guardrail, text string) (string, error) {
	re, err := regexp.Compile(g.Regex)
	if err != nil {
		return "", err
	}
	matches := re.MatchString(text)
	switch {
	case g.Require == "no_match" && matches:
		return fmt.Sprintf("the text matches %q", g.Regex), nil
	case g.Require != "no_match" && !matches:
		return fmt.Sprintf("the text does not match %q", g.Regex), nil
	}
	return "", nil
}

// clipped keeps the beginning of what is written to it.
type clipped struct{ bytes.Buffer }

func (c *clipped) Write(p []byte) (int, error) {
	if room := outputLimit - c.Len(); room > 0 {
		c.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// byCommand gives the text to a command on its standard input. Exit code 0 lets it through; any other trips, and what the
// command printed is the message.
func byCommand(ctx context.Context, g *spec.Guardrail, text string, env Env) (string, error) {
	where, user := env.Sandbox, env.User
	if g.Target == "host" {
		where, user = env.Host, ""
	}
	if where == nil {
		return "", errs.New(errs.ConfigInvalid, "its command works in a sandbox, and there is none").
			WithHint(`set target = "host", or let an agent with a sandbox begin`)
	}
	var out clipped
	exit, err := where.Run(ctx, &driver.Command{Argv: g.Command, User: user, Timeout: timeLimit},
		driver.Streams{Stdin: strings.NewReader(text), Stdout: &out, Stderr: &out})
	if err != nil {
		return "", fmt.Errorf("its command %q: %w", g.Command[0], err)
	}
	if exit.Code == 0 && exit.Signal == "" {
		return "", nil
	}
	said := strings.TrimSpace(strings.ToValidUTF8(out.String(), ""))
	if said == "" {
		said = fmt.Sprintf("%s ended with exit code %d", g.Command[0], exit.Code)
	}
	return said, nil
}

func byAgent(ctx context.Context, g *spec.Guardrail, text string, env Env) (string, error) {
	answer, err := env.Agent(ctx, g, text)
	if err != nil {
		return "", err
	}
	vars := env.Vars
	vars.Output = answer
	v, err := g.Tripwire.Eval(vars)
	if err != nil {
		return "", fmt.Errorf("tripwire: %w", err)
	}
	trips, ok := v.(bool)
	if !ok {
		return "", errs.New(errs.ConfigInvalid, "its tripwire is %v, it has to be true or false", v)
	}
	if !trips {
		return "", nil
	}
	raw, err := json.Marshal(answer)
	return fmt.Sprintf("agent %s answered %s", g.Agent.Label, raw), err
}
