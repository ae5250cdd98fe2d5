// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/sdk/errs"
)

// The format of a [Document]. This program writes Version, and reads it and the one before it, where there is one.
const (
	Format  = "berth run state"
	Version = 2
)

// Document is a run as one JSON value: all that another machine with the same project needs to go on. It holds no secret
// that berth knows of and no path of this machine; the workspace is not in it.
type Document struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	RunID    string    `json:"run_id"`
	Exported time.Time `json:"exported"`
	State    run.State `json:"state"`
	// Items is the transcript, Store what the state refers to besides. They are texts, so that no byte of them changes on
	// the way: the state refers to them by hash.
	Items []string `json:"items"`
	Store []string `json:"store,omitempty"`
	// Prior are the settled calls, Saved the checkpoints of those that are not, by call id.
	Prior map[string]run.PriorCall   `json:"prior,omitempty"`
	Saved map[string]json.RawMessage `json:"saved,omitempty"`
	// Waiting are the calls that wait for a decision, for whoever reads the document.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Sandboxes are those of the run, by the label of the agent.
	Sandboxes map[string]Sandbox `json:"sandboxes,omitempty"`
	// Nested are the runs of agents that are tools, by call id.
	Nested map[string]Document `json:"nested,omitempty"`
	// Trace names the trace that the run belongs to.
	Trace map[string]string `json:"trace,omitempty"`
	// Note is what whoever started the run keeps beside it.
	Note json.RawMessage `json:"note,omitempty"`
}

// Sandbox is what a document says about a sandbox.
type Sandbox struct {
	Session string `json:"session"` // its name on the machine that the run comes from
}

// Export makes the document of a run that no process works on.
func (d Dir) Export(id string, now time.Time) (*Document, error) {
	r, err := d.Read(id)
	if err != nil {
		return nil, err
	}
	if r.Summary.Live {
		return nil, errs.New(errs.InvalidArgument, "a process works on run %s", id).WithHint("stop it first with Ctrl-C")
	}
	dir, err := d.dir(id)
	if err != nil {
		return nil, err
	}
	v, err := runlog.OpenView(dir)
	if err != nil {
		return nil, err
	}
	defer v.Close() // it was only read
	h, err := history.Read(v)
	if err != nil {
		return nil, err
	}
	doc := &Document{
		Format: Format, Version: Version, RunID: id, Exported: now.UTC(), State: h.State, Prior: h.Prior, Waiting: r.Waiting,
		Saved: map[string]json.RawMessage{},
	}
	for _, it := range h.Items {
		doc.Items = append(doc.Items, string(it.Raw))
	}
	for k, v := range h.Saved {
		doc.Saved[k] = v
	}
	for i := range h.State.Calls {
		c := &h.State.Calls[i]
		inner, err := d.Export(NestedID(id, c.CallID), now)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		if doc.Nested == nil {
			doc.Nested = map[string]Document{}
		}
		doc.Nested[c.CallID] = *inner
	}
	for _, ref := range besides(&h.State) {
		it, err := v.Get(ref)
		if err != nil {
			return nil, err
		}
		doc.Store = append(doc.Store, string(it.Raw))
	}
	return doc, nil
}

// besides are the items that a state refers to and that need not be in the transcript.
func besides(s *run.State) []run.Ref {
	var refs []run.Ref
	for i := range s.Calls {
		if out := s.Calls[i].Output; out != nil {
			refs = append(refs, *out)
		}
	}
	refs = append(refs, s.Notes...)
	if s.Stop != nil && s.Stop.Output != nil {
		refs = append(refs, *s.Stop.Output)
	}
	return refs
}

// ReadDocument reads what [Dir.Export] wrote.
func ReadDocument(data []byte) (*Document, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("run state: %w", err)
	}
	switch {
	case head.Format != Format:
		return nil, errs.New(errs.InvalidArgument, "this is no run state, its format is %q", head.Format).WithHint("berth runs export RUN writes one")
	case head.Version > Version:
		return nil, errs.New(errs.InvalidArgument, "the run state has version %d, and this berth reads up to %d", head.Version, Version).
			WithHint("use a berth that is at least as new as the one that wrote it")
	case head.Version < 1:
		return nil, errs.New(errs.InvalidArgument, "the run state has version %d, and the first is 1", head.Version)
	}
	var doc Document
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("run state: %w", err)
	}
	if doc.RunID == "" || doc.RunID != doc.State.RunID || doc.State.Status == "" {
		return nil, errors.New("run state: it names no run, or another one than its state")
	}
	return &doc, nil
}

// Import puts a run into the directory. One that is there already is not touched.
func (d Dir) Import(doc *Document, now time.Time) error {
	for callID, inner := range doc.Nested {
		if inner.RunID != NestedID(doc.RunID, callID) {
			return fmt.Errorf("run state: the run in call %q has the name %q", callID, inner.RunID)
		}
		if err := d.Import(&inner, now); err != nil {
			return err
		}
	}
	return d.importOne(doc, now)
}

// importOne imports a run without those in its calls.
func (d Dir) importOne(doc *Document, now time.Time) (err error) {
	dir, err := d.dir(doc.RunID)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		return errs.New(errs.InvalidArgument, "run %s is here already, in %s", doc.RunID, dir).
			WithHint("berth resume %s goes on with it; berth runs rm %s removes it", doc.RunID, doc.RunID)
	}
	log, err := runlog.Create(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, log.Close()); err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	return fill(log, doc, 0, now)
}

// fill appends to a log what a document has, from an item of the transcript on.
func fill(log *runlog.Log, doc *Document, from int, now time.Time) error {
	if len(doc.Items) != doc.State.Items.To {
		return fmt.Errorf("run state: it has %d items, and its state wants %d", len(doc.Items), doc.State.Items.To)
	}
	var items []run.Ref
	for i, raw := range doc.Items[from:] {
		ref, err := put(log, raw)
		if err != nil {
			return fmt.Errorf("run state: item %d: %w", from+i, err)
		}
		items = append(items, ref)
	}
	for i, raw := range doc.Store {
		if _, err := put(log, raw); err != nil {
			return fmt.Errorf("run state: stored item %d: %w", i, err)
		}
	}
	entries, err := history.Import(doc.State, items, doc.Prior, doc.Saved, now)
	if err != nil {
		return err
	}
	return log.Append(true, entries...)
}

func put(log *runlog.Log, raw string) (run.Ref, error) {
	if strings.TrimSpace(raw) == "" {
		return run.Ref{}, errors.New("it is empty")
	}
	it, err := model.ParseItem([]byte(raw))
	if err != nil {
		return run.Ref{}, err
	}
	return log.Put(it)
}
