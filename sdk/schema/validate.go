// SPDX-License-Identifier: Apache-2.0

//go:build !berth_guest

package schema

import (
	"regexp"

	"github.com/berth-dev/berth/sdk/errs"
)

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Validate finds the first mistake in the schema itself: a name, a type, a default, a pattern or a reference that
// cannot be. A nil Schema is valid.
func (s *Schema) Validate() error {
	if s == nil {
		return nil
	}
	return s.Block.validate("")
}

func (b *Block) validate(at string) error {
	names := map[string]bool{}
	bad := func(name, format string, args ...any) error {
		e := errs.New(errs.ConfigInvalid, format, args...)
		e.Op = "schema of " + at + name
		return e
	}
	take := func(name string) error {
		if !namePattern.MatchString(name) {
			return bad(name, "%q is not a name: lower-case letters, digits and _", name)
		}
		if names[name] {
			return bad(name, "the name is there twice")
		}
		names[name] = true
		return nil
	}
	for i := range b.Attributes {
		if err := take(b.Attributes[i].Name); err != nil {
			return err
		}
	}
	for i := range b.Attributes {
		a := &b.Attributes[i]
		if err := a.validate(names); err != nil {
			return bad(a.Name, "%s", err)
		}
	}
	for i := range b.Blocks {
		n := &b.Blocks[i]
		if err := take(n.Type); err != nil {
			return err
		}
		if n.Nesting < Single || n.Nesting > Map {
			return bad(n.Type, "the block has no nesting")
		}
		if n.Nesting == Map && len(n.Labels) == 0 {
			return bad(n.Type, "a map of blocks needs a label for its key")
		}
		if n.Nesting == Single && len(n.Labels) > 0 {
			return bad(n.Type, "a single block has no labels")
		}
		if n.Max > 0 && n.Min > n.Max {
			return bad(n.Type, "at least %d and at most %d blocks cannot be", n.Min, n.Max)
		}
		for _, l := range n.ElementLabels() {
			if !namePattern.MatchString(l) {
				return bad(n.Type, "%q is not a name for a label", l)
			}
			if _, clash := n.Block.attributeTypes(nil)[l]; clash {
				return bad(n.Type, "the label %q is also an argument", l)
			}
		}
		if err := n.Block.validate(at + n.Type + "."); err != nil {
			return err
		}
	}
	return nil
}

func (a *Attribute) validate(names map[string]bool) error {
	if a.Type.IsZero() {
		return errs.New(errs.ConfigInvalid, "the attribute has no type")
	}
	if a.Unit != "" && (a.Unit != UnitBytes && a.Unit != UnitDuration || a.Type != Number) {
		return errs.New(errs.ConfigInvalid, "a unit is %q or %q, on a number", UnitBytes, UnitDuration)
	}
	if a.Required && a.Default != nil {
		return errs.New(errs.ConfigInvalid, "what is required has no default")
	}
	if a.Pattern != "" {
		if _, err := regexp.Compile(a.Pattern); err != nil {
			return errs.New(errs.ConfigInvalid, "pattern: %s", err)
		}
	}
	for _, o := range append(append([]string(nil), a.ConflictsWith...), a.Requires...) {
		if !names[o] {
			return errs.New(errs.ConfigInvalid, "%q is not an attribute beside it", o)
		}
	}
	v, err := a.fallback(nil)
	if err != nil {
		return err
	}
	if d := a.violation(v); d != "" {
		return errs.New(errs.ConfigInvalid, "default: %s", d)
	}
	return nil
}
