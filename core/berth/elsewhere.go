// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

// Runs is the register of runs.
func (h *Harness) Runs(ctx context.Context) (*runs.Register, error) {
	open := h.cfg.RunStore
	if open == nil {
		open = h.cfg.Store
	}
	store, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &runs.Register{Dir: runs.Dir{Path: h.cfg.RunsDir}, Store: store, Now: h.cfg.Now, Share: h.share}, nil
}

// share is what lies beside a run, for other machines.
func (h *Harness) share(raw json.RawMessage) (json.RawMessage, error) {
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if h.cfg.Portable != nil && r.Note != nil {
		var err error
		if r.Note, err = h.cfg.Portable(r.Note); err != nil {
			return nil, err
		}
	}
	return json.Marshal(r)
}

// taken is what lies beside a run that this process goes on with, which may come from another machine.
func (r *live) taken(f *runs.Fetched) (err error) {
	if r.record, err = readRecord(r.dir); err != nil || !f.Moved {
		return err
	}
	if r.o.Note != nil {
		r.record.Note = r.o.Note
	}
	if r.o.Fresh {
		r.record.Session, r.record.Sessions = "", nil
	}
	return r.save()
}

// Export gives a run as one value that [Harness.Import] takes, on this machine or another.
func (h *Harness) Export(ctx context.Context, id string) (*runs.Document, error) {
	reg, err := h.Runs(ctx)
	if err != nil {
		return nil, err
	}
	doc, err := reg.Export(ctx, id)
	if err != nil {
		return nil, err
	}
	r, err := h.beside(ctx, reg, id)
	if err != nil {
		return nil, err
	}
	doc.Note = r.Note
	if r.Trace != "" {
		doc.Trace = map[string]string{traceparent: r.Trace}
	}
	if r.Session != "" {
		doc.Sandboxes = map[string]runs.Sandbox{doc.State.Agent: {Session: r.Session}}
	}
	return doc, nil
}

// Import puts an exported run among those of this machine, with a note of the caller's.
func (h *Harness) Import(ctx context.Context, doc *runs.Document, note json.RawMessage) error {
	reg, err := h.Runs(ctx)
	if err != nil {
		return err
	}
	switch _, err := reg.Store.Run(ctx, doc.RunID); {
	case err == nil:
		return errs.New(errs.InvalidArgument, "run %s is here already, in %s", doc.RunID, reg.Store.Where()).
			WithHint("berth resume %s goes on with it; berth runs rm %s removes it", doc.RunID, doc.RunID)
	case !errors.Is(err, state.ErrUnknown):
		return err
	}
	if err := reg.Dir.Import(doc, h.cfg.Now()); err != nil {
		return err
	}
	return (&live{h: h, o: RunOptions{ID: doc.RunID}, record: record{Note: note, Trace: doc.Trace[traceparent]}}).save()
}

// Note gives what was kept beside a run.
func (h *Harness) Note(ctx context.Context, id string) (json.RawMessage, error) {
	reg, err := h.Runs(ctx)
	if err != nil {
		return nil, err
	}
	r, err := h.beside(ctx, reg, id)
	return r.Note, err
}

// beside is what lies beside a run, wherever it is.
func (h *Harness) beside(ctx context.Context, reg *runs.Register, id string) (r record, err error) {
	raw, err := reg.Beside(ctx, id)
	if raw != nil && err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, err
}

// dirOf is the directory of a project; empty = there is none.
func dirOf(p *spec.Project) string {
	if p == nil {
		return ""
	}
	return p.Dir
}
