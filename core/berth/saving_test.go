// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/internal/localtest"
)

// A workspace is saved as its policy says while its session is open, so that what dies then does not take it along.
func TestSavedWhileOpen(t *testing.T) {
	f := newFixture(t)
	p := &spec.Project{Dir: t.TempDir()}
	for name, c := range map[string]struct {
		policy spec.SnapshotPolicy
		turn   bool
		saved  bool
	}{
		"interval":   {spec.SnapshotPolicy{Persist: "interval", Interval: 50 * time.Millisecond}, false, true},
		"every_turn": {spec.SnapshotPolicy{Persist: "every_turn"}, true, true},
		"on_stop":    {spec.SnapshotPolicy{Persist: "on_stop"}, true, false},
		"manual":     {spec.SnapshotPolicy{Persist: "manual"}, true, false},
		"never":      {spec.SnapshotPolicy{Persist: "never"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.policy.Kind, c.policy.Restore = "local", "never"
			o := berth.SandboxOptions{Sandbox: &spec.Sandbox{Label: "box-" + name, Driver: localtest.Driver, Snapshot: &c.policy}, What: "a test"}
			s, err := f.Open(t.Context(), p, o)
			if err != nil {
				t.Fatal(err)
			}
			repo, err := berth.OpenSnapshots(t.Context(), p, o.Sandbox)
			if err != nil {
				t.Fatal(err)
			}
			holds := func(text string) bool {
				rec, err := repo.LatestOf(t.Context(), s.ID())
				if err != nil || rec == nil {
					return false
				}
				x, err := repo.Load(t.Context(), rec)
				if err != nil {
					return false
				}
				return contains(x, text)
			}
			for _, name := range []string{"first", "second"} {
				localtest.Sh(t, s.Session, "echo work > "+name)
				if c.turn {
					s.Turn()
				}
				if c.saved {
					localtest.Eventually(t, "saved", func() bool { return holds(name) })
				}
			}
			if rec, err := repo.LatestOf(t.Context(), s.ID()); err != nil || (rec != nil) != c.saved {
				t.Errorf("%+v, %v", rec, err)
			}
			end(t, s)
			if c.saved || c.policy.Persist == "on_stop" {
				if !holds("second") {
					t.Error("it was not saved at the end")
				}
			} else if rec, err := repo.LatestOf(t.Context(), s.ID()); rec != nil || err != nil {
				t.Errorf("%+v, %v", rec, err)
			}
		})
	}
}

func contains(x *snapshot.Index, name string) bool {
	for i := range x.Entries {
		if e := &x.Entries[i]; e.Kind == index.File && strings.TrimPrefix(e.Path, "./") == name {
			return true
		}
	}
	return false
}
