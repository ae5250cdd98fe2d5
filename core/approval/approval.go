// SPDX-License-Identifier: Apache-2.0

// Package approval decides by a project's rules whether a tool call may run, must be asked about, or is denied. It looks
// at what the call says, and at nothing else: it reads no file, and starts nothing.
//
// # What a rule is held against
//
// A rule that allows is strict: everything that a call does must be what the rule says. A shell command must be one plain
// command ([Plain]): no operators, expansions, redirections, substitutions or variables, and every path that a call
// touches must match. Anything else, such as `ls; rm -rf x`, is simply not matched by the rule.
//
// A rule that asks or denies is lax the other way: it matches when any part of the call does. Each command in a
// pipeline, a list, a substitution or a nested `sh -c` counts, with and without its directory and its wrappers, and any
// of the paths. It is a net and no wall: a program that is run can do what the command line does not show. What holds is
// the sandbox.
package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// Verdict is whether a call may run.
type Verdict uint8

// The verdicts.
const (
	Allow Verdict = iota
	Ask
	Deny
)

// Call is a call that is to be judged.
type Call struct {
	Agent     string // label
	Tool      string // name
	Server    string // label of its MCP server; empty = none
	Arguments string
	// Subject is what the tool says about the call.
	Subject tool.Subject
	// NeedsApproval is the tool's own wish, for the default "auto".
	NeedsApproval bool
}

// Ruling is what the rules say.
type Ruling struct {
	Verdict Verdict
	Rule    string // that decided; empty = the default, or an answer that was given before
	Reason  string // for the person who is asked, or for the model that is denied
	// Remember says that an answer counts for the rest of the run, for this kind of call.
	Remember bool
}

// Rules are what a run and its agents say. The zero value lets every call run that does not ask for an approval itself.
type Rules struct {
	root   string
	agents map[string]set
}

type set struct {
	rules []rule
	other string // default
}

type rule struct {
	spec.ApprovalRule
	match []*regexp.Regexp
}

// Compile prepares the rules of a run's agents. Those of the run come before an agent's own. Root is the workspace's root
// inside the sandbox.
func Compile(ofRun *spec.Approvals, root string, agents ...*spec.Agent) (*Rules, error) {
	r := &Rules{root: path.Clean("/" + root), agents: map[string]set{}}
	for _, a := range agents {
		s := set{other: "auto"}
		for _, from := range []*spec.Approvals{ofRun, a.Approvals} {
			if from == nil {
				continue
			}
			if s.other == "auto" && from.Default != "" {
				s.other = from.Default
			}
			for _, sr := range from.Rules {
				compiled, err := compile(sr)
				if err != nil {
					return nil, fmt.Errorf("%s:%d: approval rule %q: %w", sr.Pos.File, sr.Pos.Line, sr.Name, err)
				}
				s.rules = append(s.rules, compiled)
			}
		}
		r.agents[a.Label] = s
	}
	return r, nil
}

func compile(sr spec.ApprovalRule) (rule, error) {
	out := rule{ApprovalRule: sr}
	for _, m := range sr.Match {
		re, err := regexp.Compile(m)
		if err != nil {
			return out, err
		}
		out.match = append(out.match, re)
	}
	for _, g := range sr.Paths {
		if !doublestar.ValidatePattern(g) {
			return out, fmt.Errorf("%q is no glob", g)
		}
	}
	return out, nil
}

// Judge decides about a call. Answers that count for later calls are looked at where the rules ask.
func (r *Rules) Judge(c *Call, answers []run.Answer) Ruling {
	s := r.agents[c.Agent]
	f := r.look(c)
	for i := range s.rules {
		ru := &s.rules[i]
		if !ru.matches(c, f) {
			continue
		}
		out := Ruling{Rule: ru.Name, Reason: ru.Reason, Remember: ru.Remember == "run"}
		switch ru.Decision {
		case "allow":
			return out
		case "deny":
			out.Verdict = Deny
			if out.Reason == "" {
				out.Reason = fmt.Sprintf("rule %q does not allow the call", ru.Name)
			}
			return out
		default:
			out.Verdict = Ask
			return r.answered(c, f, answers, out)
		}
	}
	switch out := (Ruling{}); {
	case s.other == "ask", s.other != "allow" && s.other != "deny" && c.NeedsApproval:
		out.Verdict = Ask
		return r.answered(c, f, answers, out)
	case s.other == "deny":
		return Ruling{Verdict: Deny, Reason: "no rule allows the call, and what no rule allows is denied"}
	default:
		return out
	}
}

// answered replaces a question by the answer to an earlier one.
func (r *Rules) answered(c *Call, f *facts, answers []run.Answer, ask Ruling) Ruling {
	for i := range slices.Backward(answers) {
		a := &answers[i]
		if !covers(&a.Covers, c, f) {
			continue
		}
		if a.Allow {
			return Ruling{Rule: ask.Rule}
		}
		reason := "a call of this kind was rejected before"
		if a.Message != "" {
			reason += ": " + a.Message
		}
		return Ruling{Verdict: Deny, Rule: ask.Rule, Reason: reason}
	}
	return ask
}

// facts are what is found out about a call once.
type facts struct {
	paths   []string // cleaned: relative to the root, or absolute outside of it
	plain   []string // the words of one plain command; nil = it is none
	strict  []string // texts that an allowing rule may match
	lax     []string // texts that any other rule may match
	command bool
}

func (r *Rules) look(c *Call) *facts {
	f := &facts{}
	for _, p := range c.Subject.Paths {
		f.paths = append(f.paths, r.clean(p))
	}
	if cmd := c.Subject.Command; cmd != nil {
		f.command = true
		if usualShell(cmd.Shell) {
			f.plain = Plain(cmd.Text)
		}
		if f.plain != nil {
			f.strict = []string{join(f.plain)}
		}
		f.lax = parts(cmd.Text)
		return f
	}
	f.strict = []string{canonical(c.Arguments)}
	f.lax = append(texts(c.Arguments), c.Arguments, f.strict[0])
	return f
}

func (r *Rules) clean(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(r.root, p)
	}
	p = path.Clean(p)
	switch {
	case p == r.root:
		return "."
	case r.root == "/":
		return p[1:]
	}
	if rel, ok := strings.CutPrefix(p, r.root+"/"); ok {
		return rel
	}
	return p
}

func (ru *rule) matches(c *Call, f *facts) bool {
	named := func(g string) bool { ok, err := path.Match(g, c.Tool); return err == nil && ok }
	switch {
	case len(ru.Tools) > 0 && !slices.ContainsFunc(ru.Tools, named):
		return false
	case len(ru.MCPServers) > 0 && !slices.ContainsFunc(ru.MCPServers, func(s *spec.MCPServer) bool { return s.Label == c.Server }):
		return false
	case len(ru.Agents) > 0 && !slices.ContainsFunc(ru.Agents, func(a *spec.Agent) bool { return a.Label == c.Agent }):
		return false
	}
	hit := func(text string) bool {
		return slices.ContainsFunc(ru.match, func(re *regexp.Regexp) bool { return re.MatchString(text) })
	}
	inside := func(p string) bool {
		return slices.ContainsFunc(ru.Paths, func(g string) bool { ok, err := doublestar.Match(g, p); return err == nil && ok })
	}
	if ru.Decision == "allow" {
		return (len(ru.match) == 0 || slices.ContainsFunc(f.strict, hit)) &&
			(len(ru.Paths) == 0 || len(f.paths) > 0 && !slices.ContainsFunc(f.paths, func(p string) bool { return !inside(p) }))
	}
	return (len(ru.match) == 0 || slices.ContainsFunc(f.lax, hit)) && (len(ru.Paths) == 0 || slices.ContainsFunc(f.paths, inside))
}

// canonical is a JSON text in one form, whatever its escapes and spaces; another text is kept.
func canonical(arguments string) string {
	var v any
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		return arguments
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return arguments
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// texts are the string values in a JSON text.
func texts(arguments string) []string {
	var out []string
	dec := json.NewDecoder(strings.NewReader(arguments))
	for {
		tok, err := dec.Token()
		if err != nil {
			return out
		}
		if s, ok := tok.(string); ok {
			out = append(out, s)
		}
	}
}
