// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

// Register is all that is known of runs: the logs in a directory of this machine, and the store that machines share.
type Register struct {
	Dir   Dir
	Store state.Store
	Now   func() time.Time
	// Share makes what lies beside a run good for other machines; nil = it is so already.
	Share func(json.RawMessage) (json.RawMessage, error)
}

// record is what the store has of a run; nil = nothing. Here says that the log in the directory counts.
func (g *Register) record(ctx context.Context, id string) (rec *state.Run, here bool, err error) {
	rec, err = g.Store.Run(ctx, id)
	if errors.Is(err, state.ErrUnknown) {
		return nil, true, g.removed(id)
	}
	if err != nil {
		return nil, false, err
	}
	place, err := g.Dir.place(false)
	return rec, rec.Place == place, err
}

// removed says that a run of which something is here was removed from the store.
func (g *Register) removed(id string) error {
	in, err := g.Dir.text(id, storeFile)
	if err != nil || in != g.Store.ID() {
		return err
	}
	return errs.New(errs.InvalidArgument, "run %s was removed from %s by somebody, and what is here is an older state of it", id, g.Store.Where()).
		WithHint("berth runs rm %s removes it here too", id)
}

// Find gives the id of a run by the beginning of it.
func (g *Register) Find(ctx context.Context, text string) (string, error) {
	ids, err := g.Dir.IDs()
	if err != nil {
		return "", err
	}
	records, err := g.Store.ListRuns(ctx)
	if err != nil {
		return "", err
	}
	for _, rec := range records {
		ids = append(ids, rec.ID)
	}
	slices.Sort(ids)
	return pick(slices.Compact(ids), text, g.Dir.Path, g.Store.Where())
}

// pick finds the one that is meant.
func pick(ids []string, text string, places ...string) (string, error) {
	var found []string
	for _, id := range ids {
		if id == text {
			return id, nil
		}
		if text != "" && strings.HasPrefix(id, text) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", errs.New(errs.InvalidArgument, "there is no run %q in %s", text, strings.Join(places, " or ")).WithHint("berth runs list shows them")
	case 1:
		return found[0], nil
	default:
		return "", errs.New(errs.InvalidArgument, "%q is the beginning of %d runs: %s", text, len(found), strings.Join(found, ", ")).
			WithHint("give more of the id")
	}
}

// List gives all runs, the oldest first: those whose logs are here as their logs say, others as the store says.
func (g *Register) List(ctx context.Context) ([]Summary, error) {
	all, err := g.Dir.List()
	if err != nil {
		return nil, err
	}
	records, err := g.Store.ListRuns(ctx)
	if err != nil {
		return nil, err
	}
	open, err := g.Store.CountOpen(ctx)
	if err != nil {
		return nil, err
	}
	place, err := g.Dir.place(false)
	if err != nil {
		return nil, err
	}
	for i := range all {
		known := slices.ContainsFunc(records, func(r *state.Run) bool { return r.ID == all[i].ID })
		if err := g.removed(all[i].ID); err != nil && !known {
			all[i] = Summary{ID: all[i].ID, Error: err.Error()}
		}
	}
	for _, rec := range records {
		if rec.Place == place {
			continue
		}
		sum := summary(rec)
		sum.Waiting = open[rec.ID]
		if i := slices.IndexFunc(all, func(s Summary) bool { return s.ID == rec.ID }); i >= 0 {
			all[i] = sum // an older state of it is here
			continue
		}
		all = append(all, sum)
	}
	slices.SortStableFunc(all, func(a, b Summary) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// summary is what the store says of a run whose log is elsewhere.
func summary(rec *state.Run) Summary {
	s := Summary{
		ID: rec.ID, Status: run.Status(rec.Status), Agent: rec.Agent, Turns: rec.Turns, Started: rec.Started, Updated: rec.Updated,
		Host: rec.Host, Live: rec.Holder != nil && !rec.Holder.Dead(),
	}
	if len(rec.Usage) > 0 {
		if err := json.Unmarshal(rec.Usage, &s.Usage); err != nil {
			s.Error = fmt.Sprintf("its usage in the store: %v", err)
		}
	}
	return s
}

// Read reads a run, whatever it is doing and wherever it is.
func (g *Register) Read(ctx context.Context, id string) (*Run, error) {
	rec, here, err := g.record(ctx, id)
	if err != nil {
		return nil, err
	}
	var r *Run
	if here {
		r, err = g.Dir.Read(id)
	} else {
		r, err = g.elsewhere(rec)
	}
	if err != nil {
		return nil, err
	}
	asked, err := g.Store.ListApprovals(ctx, id)
	if err != nil {
		return nil, err
	}
	if !here && r.Summary.Live {
		for _, a := range asked { // which of them the run has taken is not known
			if a.Decision == "" {
				r.Waiting = append(r.Waiting, waiting(a))
			}
		}
	}
	for i := range r.Waiting {
		w := &r.Waiting[i]
		at := slices.IndexFunc(asked, func(a *state.Approval) bool {
			return a.Run == cmp.Or(w.Run, id) && a.Effect == int64(w.Effect)
		})
		switch {
		case at >= 0 && asked[at].Decision != "":
			w.Decision = decision(asked[at])
		case w.Decision != nil: // a file of an earlier version
			was, _, err := g.Decide(ctx, id, *w, *w.Decision)
			if err != nil {
				return nil, err
			}
			w.Decision = &was
		}
	}
	r.Summary.Waiting = len(r.Waiting)
	return r, nil
}

// elsewhere is a run as the store has it.
func (g *Register) elsewhere(rec *state.Run) (*Run, error) {
	r := &Run{Summary: summary(rec)}
	k, err := unpack(rec)
	if k == nil || err != nil {
		return r, err
	}
	r.State, r.Waiting, r.Prior = k.Document.State, k.Document.Waiting, k.Document.Prior
	r.Summary.Worked = r.State.Elapsed
	for i := range r.Waiting {
		r.Waiting[i].Decision = nil // that counts which the store has
	}
	return r, nil
}

func waiting(a *state.Approval) Waiting {
	w := Waiting{
		Effect: run.EffectID(a.Effect), CallID: a.CallID, Agent: a.Agent, Tool: a.Tool, Arguments: a.Arguments, Reason: a.Reason,
		Covers: a.Covers, Unsure: a.Unsure,
	}
	if a.Run != a.Root {
		w.Run = a.Run
	}
	return w
}

func decision(a *state.Approval) *Decision {
	return &Decision{Allow: a.Decision == state.Approved, Always: a.Always, Message: a.Message, By: a.Who, Time: a.Decided}
}

// Decide decides about a call that waits in a run. When somebody was first, it gives that decision and false.
func (g *Register) Decide(ctx context.Context, id string, w Waiting, d Decision) (Decision, bool, error) {
	a := &state.Approval{
		Run: cmp.Or(w.Run, id), Effect: int64(w.Effect), Root: id, CallID: w.CallID, Agent: w.Agent, Tool: w.Tool, Arguments: w.Arguments,
		Reason: w.Reason, Covers: w.Covers, Unsure: w.Unsure, Decision: state.Rejected, Always: d.Always, Message: d.Message, Who: d.By,
	}
	if d.Allow {
		a.Decision = state.Approved
	}
	won, err := g.Store.Decide(ctx, a)
	if err != nil {
		return d, false, fmt.Errorf("decide about call %s of run %s: %w", w.CallID, id, err)
	}
	return *decision(a), won, nil
}

// Remove removes a run that no process works on, here and from the store.
func (g *Register) Remove(ctx context.Context, id string) error {
	rec, here, err := g.record(ctx, id)
	if err != nil && g.removed(id) == nil {
		return err
	}
	if !here && rec.Holder != nil && !rec.Holder.Dead() {
		return errs.New(errs.InvalidArgument, "a process works on run %s: %s", id, rec.Holder).WithHint("stop it there first with Ctrl-C")
	}
	err = g.Dir.Remove(id)
	if err != nil && (here || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	return g.Store.DeleteRun(ctx, id)
}

// Export makes the document of a run that no process works on.
func (g *Register) Export(ctx context.Context, id string) (*Document, error) {
	rec, here, err := g.record(ctx, id)
	if err != nil {
		return nil, err
	}
	if here {
		return g.Dir.Export(id, g.Now())
	}
	k, err := unpack(rec)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, notHere(rec)
	}
	return k.Document, nil
}

// Beside is what lies beside a run's log; nil = nothing.
func (g *Register) Beside(ctx context.Context, id string) (json.RawMessage, error) {
	rec, here, err := g.record(ctx, id)
	if err != nil {
		return nil, err
	}
	if here {
		return g.Dir.beside(id)
	}
	k, err := unpack(rec)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, notHere(rec)
	}
	return k.Beside[id], nil
}

// notHere says why nothing can be done with a run from here.
func notHere(rec *state.Run) error {
	switch {
	case rec.Holder != nil:
		return errs.New(errs.InvalidArgument, "run %s is with %s, and its log is there", rec.ID, rec.Holder).
			WithHint("stop it there first with Ctrl-C; if that process has died, go on on %s", rec.Host)
	default:
		return errs.New(errs.InvalidArgument, "run %s is %s, and its log is on %s", rec.ID, rec.Status, rec.Host)
	}
}
