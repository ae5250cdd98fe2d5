// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/diag"
)

func (l *loader) policy(b *hcl.Block) {
	p := &l.cfg.Policy
	var forbid []string
	l.read(b.Body, b.DefRange, body{
		attrs: map[string]func(*hcl.Attribute){
			"allow_host_commands": l.truth("policy.allow_host_commands", &p.AllowHostCommands),
			"allow_host_files":    l.globs("policy.allow_host_files", &p.AllowHostFiles),
			"allowed_drivers":     l.list("policy.allowed_drivers", &p.AllowedDrivers),
			"require_lock":        l.truth("policy.require_lock", &p.RequireLock),
			"allow_dev_override":  l.truth("policy.allow_dev_override", &p.AllowDevOverride),
			"forbid": func(a *hcl.Attribute) {
				words, ok := l.texts(a)
				for _, w := range words {
					if !slices.Contains(forbidden, w) {
						l.notOneOf(a, w, forbidden)
						ok = false
					}
				}
				if ok {
					forbid = words
					l.origin("policy.forbid", a)
				}
			},
		},
		blocks: map[string]block{"max_budget": {read: l.maxBudget}},
	})
	// What one file forbids no other allows.
	p.Forbid = slices.Compact(slices.Sorted(slices.Values(append(p.Forbid, forbid...))))
	l.tighten()
}

func (l *loader) maxBudget(b *hcl.Block) {
	m := &l.cfg.Policy.MaxBudget
	l.read(b.Body, b.DefRange, body{attrs: map[string]func(*hcl.Attribute){
		"total_tokens": l.number("policy.max_budget.total_tokens", func(f float64) { m.TotalTokens = int64(f) }),
		"cost_usd":     l.number("policy.max_budget.cost_usd", func(f float64) { m.CostUSD = f }),
		"wall_time":    l.duration("policy.max_budget.wall_time", &m.WallTime),
		"tool_calls":   l.number("policy.max_budget.tool_calls", func(f float64) { m.ToolCalls = int(f) }),
	}})
}

// globs are paths with patterns.
func (l *loader) globs(key string, dst *[]string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		l.paths(key, dst)(a)
		for _, g := range *dst {
			if _, err := filepath.Match(g, "/"); err != nil {
				l.add(diag.Errorf(diag.PatternMismatch, a.Expr.Range(), "%q is not a pattern", g))
			}
		}
	}
}

// fixPolicy keeps what the system's file says: the others are held against it.
func (l *loader) fixPolicy() {
	p := l.cfg.Policy
	p.AllowHostFiles = slices.Clone(p.AllowHostFiles)
	p.AllowedDrivers = slices.Clone(p.AllowedDrivers)
	l.fixed = &p
	for key, r := range l.places {
		if strings.HasPrefix(key, "policy.") {
			l.said[key] = r
			delete(l.places, key)
		}
	}
}

// tighten undoes, with an error, whatever is looser than the system's policy.
func (l *loader) tighten() {
	if l.fixed == nil {
		return // this is the system's file
	}
	p, f := &l.cfg.Policy, l.fixed
	l.hold("allow_host_commands", p.AllowHostCommands && !f.AllowHostCommands, "", func() { p.AllowHostCommands = f.AllowHostCommands })
	l.hold("require_lock", !p.RequireLock && f.RequireLock, "", func() { p.RequireLock = f.RequireLock })
	l.hold("allow_dev_override", p.AllowDevOverride && !f.AllowDevOverride, "", func() { p.AllowDevOverride = f.AllowDevOverride })
	more := beyond(p.AllowHostFiles, f.AllowHostFiles, func(g, have string) bool {
		ok, err := filepath.Match(have, g)
		return g == have || err == nil && ok && !strings.ContainsAny(g, "*?[\\")
	})
	l.hold("allow_host_files", len(more) > 0, strings.Join(more, ", "), func() { p.AllowHostFiles = f.AllowHostFiles })
	more = beyond(p.AllowedDrivers, f.AllowedDrivers, func(d, have string) bool { return d == have })
	l.hold("allowed_drivers", len(more) > 0 || p.AllowedDrivers == nil, strings.Join(more, ", "), func() { p.AllowedDrivers = f.AllowedDrivers })

	b, most := &p.MaxBudget, f.MaxBudget
	looser := func(got, limit float64) bool { return limit > 0 && (got == 0 || got > limit) }
	l.hold("max_budget.total_tokens", looser(float64(b.TotalTokens), float64(most.TotalTokens)), fmt.Sprint(b.TotalTokens),
		func() { b.TotalTokens = most.TotalTokens })
	l.hold("max_budget.cost_usd", looser(b.CostUSD, most.CostUSD), fmt.Sprint(b.CostUSD), func() { b.CostUSD = most.CostUSD })
	l.hold("max_budget.wall_time", looser(b.WallTime.Seconds(), most.WallTime.Seconds()), b.WallTime.Round(time.Second).String(),
		func() { b.WallTime = most.WallTime })
	l.hold("max_budget.tool_calls", looser(float64(b.ToolCalls), float64(most.ToolCalls)), fmt.Sprint(b.ToolCalls),
		func() { b.ToolCalls = most.ToolCalls })
}

func beyond(got, have []string, within func(g, have string) bool) []string {
	var out []string
	for _, g := range got {
		if !slices.ContainsFunc(have, func(h string) bool { return within(g, h) }) {
			out = append(out, g)
		}
	}
	return out
}

// hold undoes one attribute when it is looser than what the system's file says about it.
func (l *loader) hold(name string, looser bool, what string, undo func()) {
	key := "policy." + name
	system, said := l.said[key]
	if !looser || !said {
		return
	}
	undo()
	at, here := l.places[key]
	if !here {
		return
	}
	d := diag.Errorf(diag.ForbiddenByHost, at, "policy %s is looser than the system's", name).Relate(system, "the system's policy")
	if what != "" {
		d.Labelf("more is allowed here: %s", what)
	} else {
		d.Labelf("this cannot be loosened")
	}
	l.add(d)
}

// check looks at what must fit together.
func (l *loader) check() {
	p := l.cfg.Policy
	if p.RequireLock && l.cfg.Plugins.Verify != "lock" {
		d := diag.Errorf(diag.ForbiddenByHost, l.places["plugins.verify"], "plugins verify = %q, but the policy requires the lock", l.cfg.Plugins.Verify).
			Helpf("write policy { require_lock = false } as well, if the system's policy allows it")
		if from := l.cfg.Origins["plugins.verify"]; d.Subject.Filename == "" && from != "" {
			d.Notef("it is set by %s", from)
		}
		l.add(d)
		l.cfg.Plugins.Verify = "lock"
	}
	if !p.AllowDevOverride && len(l.cfg.Plugins.DevOverrides) > 0 {
		for _, r := range l.overrides {
			l.add(diag.Errorf(diag.ForbiddenByHost, r, "dev_override is forbidden by the policy").
				Labelf("this driver would run without being verified"))
		}
		l.cfg.Plugins.DevOverrides = map[string]DevOverride{}
	}
}

// DriverAllowed reports whether the policy lets projects use a driver, by its source "namespace/name" or its name.
func (p Policy) DriverAllowed(source string) bool {
	if p.AllowedDrivers == nil {
		return true
	}
	_, name, _ := strings.Cut(source, "/")
	return slices.Contains(p.AllowedDrivers, source) || name != "" && slices.Contains(p.AllowedDrivers, name)
}
