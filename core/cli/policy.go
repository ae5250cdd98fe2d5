// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/config/host"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/handshake"
)

// forbidden are the diagnostics of what the host's policy does not let a project do.
func forbidden(l *config.Loaded, hc *host.Config) diag.Diagnostics {
	var out diag.Diagnostics
	if slices.Contains(hc.Policy.Forbid, "nonsensitive") {
		for _, r := range l.Public {
			out = append(out, diag.Errorf(diag.ForbiddenByHost, r, "nonsensitive is forbidden by the host's policy").
				Notef("the policy is %s", said(hc, "forbid")).
				Helpf("pass the value to an attribute that may hold secrets, see docs/language.md"))
		}
	}
	if !hc.Policy.AllowHostCommands {
		for _, c := range l.HostCommands {
			out = append(out, diag.Errorf(diag.ForbiddenByHost, c.Range, "%s is forbidden by the host's policy", c.What).
				Labelf("this machine would run a program of the project's choice").
				Notef("the policy is %s", said(hc, "allow_host_commands")).
				Helpf("run it in the sandbox, take a secret from env, file or store, or let whoever owns the policy set allow_host_commands = true"))
		}
	}
	return out
}

// said is the place of a policy, with its name.
func said(hc *host.Config, name string) string {
	if at := hc.Origins["policy."+name]; at != "" {
		return name + " at " + at
	}
	return name
}

// allowed refuses a driver that the host's policy does not name.
func allowed(p *spec.Project, hc *host.Config, label string) error {
	name := label
	if d := p.Drivers[label]; d != nil && d.Uses != "" {
		name = d.Uses
	}
	source := catalog.Source(name, p.RequiredDrivers[name])
	if hc.Policy.DriverAllowed(source) {
		return nil
	}
	return fmt.Errorf("the host's policy does not allow driver %s; it allows: %s\nhint: use one of those, or change %s",
		source, list(hc.Policy.AllowedDrivers), said(hc, "allowed_drivers"))
}

// bound lowers a run's budget to the host's.
func bound(r *spec.Run, most spec.Budget) {
	lower(&r.Budget.TotalTokens, most.TotalTokens)
	lower(&r.Budget.CostUSD, most.CostUSD)
	lower(&r.Budget.WallTime, most.WallTime)
	lower(&r.Budget.ToolCalls, most.ToolCalls)
}

// lower takes the smaller bound; 0 is none.
func lower[T ~int | ~int64 | ~float64](have *T, most T) {
	if most > 0 && (*have == 0 || *have > most) {
		*have = most
	}
}

// overrides refuses drivers without a lock where the policy wants one.
func overrides(hc *host.Config, flags []string, attached map[string]handshake.Reattach) error {
	if hc.Policy.AllowDevOverride || len(flags)+len(hc.Plugins.DevOverrides)+len(attached) == 0 {
		return nil
	}
	return fmt.Errorf("the host's policy does not allow drivers from other places: leave out --driver-binary, dev_override (%s) and %s (%s)",
		list(slices.Sorted(maps.Keys(hc.Plugins.DevOverrides))), handshake.EnvReattach, list(slices.Sorted(maps.Keys(attached))))
}
