// SPDX-License-Identifier: Apache-2.0

//go:build linux

package confine_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/probe"
)

func TestProbe(t *testing.T) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cache := t.TempDir()
	f, err := probe.Probe(t.Context(), program, cache)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", f)
	// The weaker setups have to work wherever a stronger one does, for a machine that refuses the stronger.
	for _, s := range probe.Setups(f.Landlock, true) {
		if s.Level() > f.Level || s.Level() == confine.LevelNone {
			continue
		}
		if err := probe.Try(t.Context(), program, s); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	// The second answer comes from the first.
	again, err := probe.Probe(t.Context(), program, cache)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, again); d != "" {
		t.Error(d)
	}
}
