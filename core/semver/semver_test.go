// SPDX-License-Identifier: Apache-2.0

package semver_test

import (
	"testing"

	"github.com/berth-dev/berth/core/semver"
)

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		constraint, version string
		want                bool
	}{
		{"", "1.2.3", true},
		{"", "1.2.3-rc1", false},
		{"1.2.3", "1.2.3", true},
		{"1.2", "1.2.0", true},
		{"= 1.2.3", "v1.2.4", false},
		{"!= 1.2.3", "1.2.4", true},
		{"~> 0.1", "0.9.0", true},
		{"~> 0.1", "1.0.0", false},
		{"~> 0.1.2", "0.1.9", true},
		{"~> 0.1.2", "0.2.0", false},
		{"~> 0.1.2", "0.1.1", false},
		{"~> 1", "1.9.0", true},
		{">= 1.2, < 2", "1.9.9", true},
		{">= 1.2, < 2", "2.0.0", false},
		{"> 1.0", "1.0.0", false},
		{"<= 1.0", "1.0.0", true},
		{">= 1.0.0-beta.2", "1.0.0-beta.11", true},
		{">= 1.0.0-beta.2", "1.0.0-beta.1", false},
		{">= 1.0.0-beta.2", "1.1.0-beta.3", false},
	} {
		constraint, err := semver.ParseConstraint(c.constraint)
		if err != nil {
			t.Fatal(err)
		}
		v, err := semver.Parse(c.version)
		if err != nil {
			t.Fatal(err)
		}
		if got := constraint.Allows(v); got != c.want {
			t.Errorf("%q allows %s = %v, want %v", c.constraint, c.version, got, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "x", "1.2.3.4", "1..2", "1.2.3-", "1.-2", "-1", "+1", "1.2.3-a..b"} {
		if v, err := semver.Parse(s); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", s, v)
		}
	}
	for _, s := range []string{">=", ">> 1", "1 2", ", 1", "~>x"} {
		if _, err := semver.ParseConstraint(s); err == nil {
			t.Errorf("ParseConstraint(%q) gave no error", s)
		}
	}
}

func TestOrder(t *testing.T) {
	order := []string{"0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1"}
	for i := range len(order) - 1 {
		a, errA := semver.Parse(order[i])
		b, errB := semver.Parse(order[i+1])
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
			t.Errorf("%s does not come before %s", a, b)
		}
		if a.String() != order[i] {
			t.Errorf("String() = %q, want %q", a, order[i])
		}
	}
}
