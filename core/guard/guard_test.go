// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/guard"
	"github.com/berth-dev/berth/core/hostproc"
	"github.com/berth-dev/berth/core/spec"
)

// isTrue is an expression over the output.
type isTrue struct{}

func (isTrue) Eval(v spec.RunVars) (any, error) { return v.Output, nil }
func (isTrue) Pos() spec.Pos                    { return spec.Pos{} }

func TestAsk(t *testing.T) {
	env := guard.Env{
		Host: hostproc.Host{Dir: t.TempDir()},
		Funcs: map[string]guard.Func{"long": func(_ context.Context, text string) (string, error) {
			if len(text) > 5 {
				return "it is too long", nil
			}
			return "", nil
		}},
		Agent: func(_ context.Context, _ *spec.Guardrail, text string) (any, error) {
			if text == "fails" {
				return nil, errors.New("no answer")
			}
			return map[string]any{"bad": true, "secret": false, "odd": "x"}[text], nil
		},
	}
	judge := &spec.Guardrail{Agent: &spec.Agent{Label: "judge"}, Tripwire: isTrue{}}
	for _, c := range []struct {
		g          *spec.Guardrail
		text, want string // want: what tripped; "" = nothing, "!…" = an error
	}{
		{&spec.Guardrail{Regex: `^\d+$`}, "12", ""},
		{&spec.Guardrail{Regex: `^\d+$`}, "x", "does not match"},
		{&spec.Guardrail{Regex: `key`, Require: "no_match", Message: "No keys."}, "a key", "No keys."},
		{&spec.Guardrail{Command: []string{"grep", "-q", "good"}, Target: "host"}, "a good text", ""},
		{&spec.Guardrail{Command: []string{"sh", "-c", "echo seen; cat; exit 3"}, Target: "host"}, "this", "seen\nthis"},
		{&spec.Guardrail{Command: []string{"false"}, Target: "host"}, "this", "exit code 1"},
		{&spec.Guardrail{Command: []string{"true"}}, "this", "!there is none"},
		{&spec.Guardrail{Command: []string{"no-such-program-here"}, Target: "host"}, "this", "!no-such-program-here"},
		{&spec.Guardrail{Go: "long"}, "short", ""},
		{&spec.Guardrail{Go: "long"}, "longer", "too long"},
		{&spec.Guardrail{Go: "other"}, "x", `!no Go function "other"`},
		{judge, "secret", ""},
		{judge, "bad", "agent judge answered true"},
		{judge, "odd", "!true or false"},
		{judge, "fails", "!no answer"},
	} {
		got, ok, err := guard.Ask(t.Context(), c.g, c.text, env)
		want, bad := strings.CutPrefix(c.want, "!")
		switch {
		case bad && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%+v of %q: got %q, %v, want the error %q", c.g, c.text, got, err, want)
		case !bad && (err != nil || ok != (want == "") || !strings.Contains(got, want)):
			t.Errorf("%+v of %q: got %q, %v, %v, want %q", c.g, c.text, got, ok, err, want)
		}
	}
}
