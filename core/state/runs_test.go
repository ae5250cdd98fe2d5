// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sampleRun(id string) *Run {
	h := Here("berth run " + id)
	return &Run{
		ID: id, Project: "/p", Agent: "coder", Status: "running", Turns: 3, Usage: []byte(`{"total_tokens":7}`), Owner: "ada@box", Host: "box",
		Place: "p1", Holder: &h,
	}
}

func TestRunRecords(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		if _, err := d.Run(ctx, "r1"); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown run: %v", err)
		}
		r := sampleRun("r1")
		if err := d.CreateRun(ctx, r); err != nil {
			t.Fatal(err)
		}
		want := sampleRun("r1")
		want.Version = 1
		times := cmpopts.IgnoreFields(Run{}, "Started", "Updated")
		if diff := cmp.Diff(want, r, times, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		if r.Started.IsZero() || r.Updated.IsZero() || !r.Ended.IsZero() {
			t.Errorf("the times are %+v", r)
		}
		if err := d.CreateRun(ctx, sampleRun("r1")); !errors.Is(err, ErrExists) {
			t.Errorf("made twice: %v", err)
		}
		other, err := d.Run(ctx, "r1")
		if err != nil {
			t.Fatal(err)
		}
		r.Status, r.Holder, r.Kept = "paused", nil, []byte{0, 0xff}
		if err := d.UpdateRun(ctx, r, true); err != nil || r.Ended.Before(r.Started) || r.Version != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		other.Status = "completed"
		if err := d.UpdateRun(ctx, other, true); !errors.Is(err, ErrChanged) {
			t.Errorf("an old record was written: %v", err)
		}
		if err := d.UpdateRun(ctx, sampleRun("none"), false); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown record was written: %v", err)
		}
		ended := r.Ended
		if err := d.UpdateRun(ctx, r, false); err != nil || !r.Ended.Equal(ended) {
			t.Errorf("it ended at %s, and now at %s, %v", ended, r.Ended, err)
		}
		if err := d.CreateRun(ctx, sampleRun("r2")); err != nil {
			t.Fatal(err)
		}
		all, err := d.ListRuns(ctx)
		if err != nil || len(all) != 2 || all[0].ID != "r1" || all[0].Status != "paused" || all[0].Kept != nil {
			t.Errorf("%+v, %v", all, err)
		}
		if err := d.DeleteRun(ctx, "r1"); err != nil {
			t.Error(err)
		}
		if _, err := d.Run(ctx, "r1"); !errors.Is(err, ErrUnknown) {
			t.Errorf("it is left: %v", err)
		}
	})
}

func sampleApproval(run string, effect int64) *Approval {
	return &Approval{
		Run: run, Effect: effect, Root: strings.TrimSuffix(run, ".call-1"), CallID: fmt.Sprint("c", effect), Agent: "coder", Tool: "exec_command",
		Arguments: []byte(`{"cmd": "a  b"}`), Reason: "why", Covers: "every call", Unsure: true,
	}
}

func TestApprovals(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		for _, a := range []*Approval{sampleApproval("r1", 4), sampleApproval("r1.call-1", 4), sampleApproval("r2", 9), sampleApproval("r1", 4)} {
			if err := d.Ask(ctx, a); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Approval(ctx, "r1", 5); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown question: %v", err)
		}
		a, err := d.Approval(ctx, "r1", 4)
		if err != nil || a.Asked.IsZero() {
			t.Fatalf("%+v, %v", a, err)
		}
		if diff := cmp.Diff(sampleApproval("r1", 4), a, cmpopts.IgnoreFields(Approval{}, "Asked")); diff != "" {
			t.Error(diff)
		}
		if open, err := d.CountOpen(ctx); err != nil || !cmp.Equal(open, map[string]int{"r1": 2, "r2": 1}) {
			t.Errorf("%v, %v", open, err)
		}
		a.Decision, a.Always, a.Message, a.Who = Approved, true, "go", "ada"
		if won, err := d.Decide(ctx, a); err != nil || !won || a.Decided.IsZero() {
			t.Errorf("%v, %v, %+v", won, err, a)
		}
		late := sampleApproval("r1", 4)
		late.Decision, late.Who = Rejected, "bob"
		if won, err := d.Decide(ctx, late); err != nil || won || late.Decision != Approved || late.Who != "ada" || !late.Always || late.Message != "go" {
			t.Errorf("%v, %v, %+v", won, err, late)
		}
		// What is decided is not taken back.
		for _, a := range []*Approval{sampleApproval("r1", 4), sampleApproval("r2", 9)} {
			if err := d.Withdraw(ctx, a.Run, a.Effect); err != nil {
				t.Error(err)
			}
		}
		if all, err := d.ListApprovals(ctx, "r1"); err != nil || len(all) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		if all, err := d.ListApprovals(ctx, "r2"); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		// A question that is only known to whoever decides.
		fresh := sampleApproval("r3", 1)
		fresh.Decision, fresh.Who = Rejected, "bob"
		if won, err := d.Decide(ctx, fresh); err != nil || !won {
			t.Error(won, err)
		}
		if err := d.DeleteRun(ctx, "r1"); err != nil {
			t.Error(err)
		}
		if all, err := d.ListApprovals(ctx, "r1"); err != nil || len(all) != 0 {
			t.Errorf("left: %+v, %v", all, err)
		}
	})
}

// Of many who decide at once, one wins, and all are told the same.
func TestOneDecision(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d := openStore(t, cfg)
		said := make([]Approval, 16)
		wins := make([]bool, len(said))
		var wg sync.WaitGroup
		for i := range said {
			wg.Go(func() {
				said[i] = *sampleApproval("r1", 4)
				said[i].Decision, said[i].Who = Approved, fmt.Sprint("w", i)
				var err error
				if wins[i], err = d.Decide(t.Context(), &said[i]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		won := 0
		for i := range said {
			if wins[i] {
				won++
			}
			if said[i].Who != said[0].Who || (wins[i] && said[i].Who != fmt.Sprint("w", i)) {
				t.Errorf("%d was told %s", i, said[i].Who)
			}
		}
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
}
