// SPDX-License-Identifier: Apache-2.0

package runs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

// BesideFile is what a run has beside its log: JSON of whoever performs runs.
const BesideFile = "run.json"

// keptVersion is that of [kept]. One that is newer is refused; older ones stay readable, see testdata.
const keptVersion = 1

// kept is what the store keeps of a run that no process works on and that is not complete.
type kept struct {
	Version  int                        `json:"version"`
	Document *Document                  `json:"document"`
	Beside   map[string]json.RawMessage `json:"beside,omitempty"` // by run: this one, and those in its calls
}

func unpack(rec *state.Run) (*kept, error) {
	if len(rec.Kept) == 0 {
		return nil, nil
	}
	var k kept
	if err := json.Unmarshal(rec.Kept, &k); err != nil {
		return nil, fmt.Errorf("what the store keeps of run %s: %w", rec.ID, err)
	}
	if k.Version > keptVersion {
		return nil, errs.New(errs.VersionMismatch, "what the store keeps of run %s has version %d, and this berth knows up to %d", rec.ID, k.Version, keptVersion).
			WithHint("a newer berth has written it: use that one")
	}
	if k.Document == nil || k.Document.RunID != rec.ID {
		return nil, fmt.Errorf("what the store keeps of run %s is of another one", rec.ID)
	}
	return &k, nil
}

// storeFile holds, in the directory of a run, the id of the store that has its record.
const storeFile = "store"

// storeTime bounds how long the end of a run waits for the store.
const storeTime = 30 * time.Second

// Begin puts down that this process starts a run.
func (g *Register) Begin(ctx context.Context, id, project, agent string) error {
	rec := &state.Run{ID: id, Project: project, Agent: agent}
	if err := g.mine(rec); err != nil {
		return err
	}
	err := g.Store.CreateRun(ctx, rec)
	if errors.Is(err, state.ErrExists) {
		return errs.New(errs.InvalidArgument, "there is a run %s already, in %s", id, g.Store.Where()).WithHint("berth resume %s goes on with it", id)
	}
	if err != nil {
		return fmt.Errorf("begin run %s: %w", id, err)
	}
	return nil
}

// mine makes a record one of a run that this process works on, with its log here.
func (g *Register) mine(rec *state.Run) error {
	place, err := g.Dir.place(true)
	if err != nil {
		return err
	}
	h := state.Here("run " + rec.ID)
	rec.Status, rec.Owner, rec.Host, rec.Place, rec.Holder = string(run.Running), h.Owner(), h.Name, place, &h
	rec.Kept, rec.Ended = nil, time.Time{}
	return nil
}

// Fetched is a run that this process wants to go on with.
type Fetched struct {
	id  string
	rec *state.Run // nil = the store knows nothing of it
	// Moved says that it was worked on elsewhere meanwhile.
	Moved bool
}

// Fetch brings the log of a run here, when it went on elsewhere, for [Register.Claim].
func (g *Register) Fetch(ctx context.Context, id string) (*Fetched, error) {
	rec, here, err := g.record(ctx, id)
	if err != nil {
		return nil, err
	}
	f := &Fetched{id: id, rec: rec, Moved: !here}
	if here {
		dir, err := g.Dir.dir(id)
		if err == nil {
			if _, serr := os.Stat(dir); errors.Is(serr, fs.ErrNotExist) {
				err = errs.New(errs.InvalidArgument, "there is no run %q in %s or %s", id, g.Dir.Path, g.Store.Where()).
					WithHint("berth run names a run in its first and its last line")
			}
		}
		return f, err
	}
	k, err := unpack(rec)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, notHere(rec)
	}
	err = g.Dir.bring(k.Document, g.Now())
	if err == nil {
		err = g.Dir.put(id, storeFile, []byte(g.Store.ID()))
	}
	if err != nil {
		return nil, fmt.Errorf("bring run %s here: %w", id, err)
	}
	for of, raw := range k.Beside {
		if err := g.Dir.PutBeside(of, raw); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Claim puts down that this process, which has the log open, goes on with a run. Only one can.
func (g *Register) Claim(ctx context.Context, f *Fetched, project string) error {
	rec, write := f.rec, func(rec *state.Run) error { return g.Store.UpdateRun(ctx, rec, false) }
	if rec == nil {
		rec, write = &state.Run{ID: f.id, Project: project}, func(rec *state.Run) error { return g.Store.CreateRun(ctx, rec) }
	}
	if err := g.mine(rec); err != nil {
		return err
	}
	err := write(rec)
	if errors.Is(err, state.ErrChanged) || errors.Is(err, state.ErrExists) || errors.Is(err, state.ErrUnknown) {
		return errs.New(errs.InvalidArgument, "somebody else has gone on with run %s, or removed it, just now", f.id).
			WithHint("berth runs show %s says who has it", f.id)
	}
	if err != nil {
		return fmt.Errorf("go on with run %s: %w", f.id, err)
	}
	_, err = g.Read(ctx, f.id) // takes over the decisions of an earlier version
	return err
}

// Settle puts down where a run is that this process has worked on, when its log is closed. What is not complete is kept in
// the store, so that another machine can go on with it.
func (g *Register) Settle(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), storeTime, errors.New("the state store does not answer"))
	defer cancel()
	if err := g.settle(ctx, id); err != nil {
		return fmt.Errorf("keep the record of run %s: %w", id, err)
	}
	return nil
}

func (g *Register) settle(ctx context.Context, id string) error {
	rec, here, err := g.record(ctx, id)
	if err != nil || rec == nil || !here {
		return err
	}
	r, err := g.Dir.Read(id)
	if err != nil && !g.Dir.begun(id) {
		return g.Store.DeleteRun(ctx, id) // whoever performed it says why it did not begin
	}
	if err != nil {
		rec.Status, rec.Holder = string(run.Failed), nil
		return errors.Join(err, g.Store.UpdateRun(ctx, rec, true))
	}
	if rec.Usage, err = json.Marshal(r.Summary.Usage); err != nil {
		return err
	}
	rec.Status, rec.Agent, rec.Turns, rec.Holder = string(r.Summary.Status), r.Summary.Agent, r.Summary.Turns, nil
	if r.Summary.Status != run.Completed {
		if rec.Kept, err = g.pack(id); err != nil {
			return err
		}
	}
	if err := g.Dir.put(id, storeFile, []byte(g.Store.ID())); err != nil {
		return err
	}
	asked, err := g.Store.ListApprovals(ctx, id)
	if err != nil {
		return err
	}
	for _, a := range asked {
		waits := slices.ContainsFunc(r.Waiting, func(w Waiting) bool {
			return int64(w.Effect) == a.Effect && (w.Run == a.Run || w.Run == "" && id == a.Run)
		})
		if a.Decision != "" || waits {
			continue
		}
		if err := g.Store.Withdraw(ctx, a.Run, a.Effect); err != nil {
			return err
		}
	}
	return g.Store.UpdateRun(ctx, rec, true)
}

// begun reports whether there is a run in a log.
func (d Dir) begun(id string) bool {
	dir, err := d.dir(id)
	if err != nil {
		return false
	}
	for rec, err := range runlog.Read(dir) {
		if err != nil {
			return !errors.Is(err, fs.ErrNotExist)
		}
		if rec.Type == history.Step || rec.Type == history.State {
			return true
		}
	}
	return false
}

// pack makes what the store keeps.
func (g *Register) pack(id string) ([]byte, error) {
	doc, err := g.Dir.Export(id, g.Now())
	if err != nil {
		return nil, err
	}
	k := kept{Version: keptVersion, Document: doc, Beside: map[string]json.RawMessage{}}
	inner, err := g.Dir.inside(id)
	if err != nil {
		return nil, err
	}
	for _, of := range append(inner, id) {
		raw, err := g.Dir.beside(of)
		if err == nil && raw != nil && g.Share != nil {
			raw, err = g.Share(raw)
		}
		if err != nil {
			return nil, err
		}
		if raw != nil {
			k.Beside[of] = raw
		}
	}
	return json.Marshal(k)
}

// beside reads what a run has beside its log; nil = nothing.
func (d Dir) beside(id string) (json.RawMessage, error) {
	text, err := d.text(id, BesideFile)
	if text == "" {
		return nil, err
	}
	return json.RawMessage(text), err
}

// PutBeside writes what a run has beside its log, whole or not at all.
func (d Dir) PutBeside(id string, raw json.RawMessage) error { return d.put(id, BesideFile, raw) }

// text reads a file of a run; empty = there is none.
func (d Dir) text(id, name string) (string, error) {
	dir, err := d.dir(id)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// put writes a file of a run, whole or not at all.
func (d Dir) put(id, name string, b []byte) error {
	dir, err := d.dir(id)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, name+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, name))
}

// placeFile holds the name of a directory of runs, which is like no other's.
const placeFile = "place"

// place is that name; with make it is made when there is none, else it is empty then.
func (d Dir) place(make bool) (string, error) {
	path := filepath.Join(d.Path, placeFile)
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		return strings.TrimSpace(string(b)), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the directory of runs: %w", err)
	case !make:
		return "", nil
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return "", fmt.Errorf("the directory of runs: %w", err)
	}
	f, err := os.CreateTemp(d.Path, ".place-*")
	if err != nil {
		return "", fmt.Errorf("the directory of runs: %w", err)
	}
	_, err = f.WriteString(strings.ToLower(rand.Text()) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return "", fmt.Errorf("the directory of runs: %w", err)
	}
	return d.place(false)
}

// bring puts a run into the directory, or goes on in the log that is there up to where the document is.
func (d Dir) bring(doc *Document, now time.Time) error {
	for callID, inner := range doc.Nested {
		if inner.RunID != NestedID(doc.RunID, callID) {
			return fmt.Errorf("the run in call %q has the name %q", callID, inner.RunID)
		}
		if err := d.bring(&inner, now); err != nil {
			return err
		}
	}
	dir, err := d.dir(doc.RunID)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return d.importOne(doc, now)
	}
	log, err := runlog.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(catchUp(log, doc, now), log.Close())
}

// catchUp appends to a log what a document has beyond it.
func catchUp(log *runlog.Log, doc *Document, now time.Time) error {
	h, err := history.Read(log)
	if err != nil {
		return err
	}
	was, werr := json.Marshal(h.State)
	is, ierr := json.Marshal(doc.State)
	if err := errors.Join(werr, ierr); err != nil || bytes.Equal(was, is) {
		return err
	}
	for i, it := range h.Items {
		if i >= len(doc.Items) || doc.Items[i] != string(it.Raw) {
			return errs.New(errs.ConfigInvalid, "the log of run %s that is here is not the beginning of the one in the store: item %d differs", doc.RunID, i).
				WithHint("berth runs export writes the one in the store to a file")
		}
	}
	return fill(log, doc, len(h.Items), now)
}
