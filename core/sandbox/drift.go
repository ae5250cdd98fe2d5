// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
)

// The policies for what differs from what a sandbox was made with. Without one, what cannot be given anew is refused and
// the rest is told.
const (
	DriftReuse    = "reuse"
	DriftRecreate = "recreate"
	DriftFail     = "fail"
)

// Difference is one thing that is another today than when the sandbox was made.
type Difference struct {
	What string
	// Was and Is are for people, without secrets; empty = What says it all.
	Was, Is string
	// Fixed: a sandbox cannot be given it anew.
	Fixed bool
}

func (d Difference) String() string {
	if d.Was == "" && d.Is == "" {
		return d.What
	}
	return fmt.Sprintf("%s (%s, now %s)", d.What, d.Was, d.Is)
}

// Drift is everything that differs, in order.
type Drift []Difference

func (d Drift) String() string {
	all := make([]string, len(d))
	for i, x := range d {
		all[i] = x.String()
	}
	return strings.Join(all, "; ")
}

// DriftError refuses a sandbox that differs from what the configuration says.
type DriftError struct {
	Drift Drift
	err   *errs.Error
}

func (e *DriftError) Error() string { return e.err.Error() }

// Unwrap gives the error with its code and hint.
func (e *DriftError) Unwrap() error { return e.err }

// never can be gone on with in the same sandbox, whatever the policy: it would be looked for elsewhere.
var never = []string{"driver", "root of the manifest"}

// see puts down what of today's configuration a sandbox was given, by names and hashes. No value, no secret and no path
// of the host is in it.
func (f *Fixed) see(c *manifest.Contents) {
	m := c.Manifest
	f.Seen = map[string]string{}
	for _, v := range m.Environment {
		kind := "plain"
		if !v.Secret.IsZero() {
			kind = "secret"
		}
		f.Seen["environment variable "+v.Name] = kind
	}
	for _, g := range m.Grants {
		f.Seen["path_grant "+g.Path] = f.conceal(fmt.Sprint(g.HostPath, g.ReadOnly))
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		f.Seen["entry "+e.Path+" of the manifest"] = string(e.Kind)
	}
	f.Seen["contents of the manifest"] = f.conceal(c.Digest())
}

// carried is what the sandbox has after it was found again with today's configuration: that gives environment and grants
// anew, and nothing else.
func (f *Fixed) carried(now *Fixed) *Fixed {
	if f == nil {
		return now
	}
	out := &Fixed{Salt: f.Salt, Values: f.Values, Seen: maps.Clone(now.Seen)}
	if f.Seen == nil {
		return out
	}
	ofManifest := func(name, _ string) bool { return strings.HasSuffix(name, " of the manifest") }
	maps.DeleteFunc(out.Seen, ofManifest)
	for name, was := range f.Seen {
		if ofManifest(name, was) {
			out.Seen[name] = was
		}
	}
	return out
}

// drift compares with what is gathered now. What only one of the two can know is passed over: the driver or berth has
// changed since.
func (f *Fixed) drift(now *Fixed) Drift {
	var all Drift
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		if is, known := now.Values[name]; known && is != f.Values[name] {
			all = append(all, Difference{What: name, Was: reveal(f.Values[name]), Is: reveal(is), Fixed: true})
		}
	}
	if f.Seen == nil {
		return all
	}
	names := maps.Clone(f.Seen)
	maps.Copy(names, now.Seen)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, before := f.Seen[name]
		is, after := now.Seen[name]
		switch {
		case !before:
			all = append(all, Difference{What: name + " is new"})
		case !after:
			all = append(all, Difference{What: name + " is no longer there"})
		case was != is:
			all = append(all, Difference{What: name + " changed"})
		}
	}
	return all
}

// hold refuses a configuration that the sandbox was not made with, as the policy says.
func (d Drift) hold(policy, id string, sp *spec.Sandbox) error {
	refused := slices.DeleteFunc(slices.Clone(d), func(x Difference) bool {
		switch policy {
		case DriftReuse:
			return !slices.Contains(never, x.What)
		case DriftRecreate, DriftFail:
			return false
		default:
			return !x.Fixed
		}
	})
	if len(refused) == 0 {
		return nil
	}
	place := ""
	if pos := sp.Pos; pos.File != "" {
		place = fmt.Sprintf("%s:%d: ", pos.File, pos.Line)
	}
	first := refused[slices.IndexFunc(refused, func(x Difference) bool { return x.Fixed || !refused.anyFixed() })]
	var err *errs.Error
	if first.Fixed {
		err = errs.New(errs.ConfigInvalid, "%sthe %s cannot change while sandbox %s lives: it was made with %s, and the files say %s now",
			place, first.What, id, first.Was, first.Is)
	} else {
		err = errs.New(errs.ConfigInvalid, "%ssandbox %s was made with another configuration: %s", place, id, first.What)
	}
	if len(refused) > 1 {
		err.Message += "; all that differs: " + refused.String()
	}
	back := "set it back"
	if first.Was != "" {
		back += " to " + first.Was
	}
	hint := back + ` to go on in this sandbox; on_drift in the session block says what else to do: "recreate" makes a new one`
	if !slices.Contains(never, first.What) {
		hint += `, "reuse" goes on in it as it is`
	}
	return &DriftError{Drift: d, err: err.With("sandbox", id).WithHint("%s", hint)}
}

func (d Drift) anyFixed() bool {
	return slices.ContainsFunc(d, func(x Difference) bool { return x.Fixed })
}
