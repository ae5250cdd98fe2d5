// SPDX-License-Identifier: Apache-2.0

// Package runs is the directory of runs and their register: it finds, reads, exports, imports and removes them, and carries
// decisions from one process to another. The log of a run is the only truth about it, in a directory of one machine; the
// store, which machines can share, has where that is, who works on the run, what people were asked and said, and, while no
// process works on it, all that another machine needs to go on.
//
// A call of an agent as a tool is a run of its own, beside the outer one under a name that begins with its name: see
// [NestedID]. What waits for a decision there is told with the outer run, which also takes it along when it goes.
//
// # Who has a run
//
// The log stays a file: it grows with each step, and a step must not wait for a database. When a process ends its work on a
// run that is not complete, it puts the run's document into the store. Whoever goes on, at any place, first brings its own
// log up to that document and then claims the run, which takes the document away: from then on only this place can go on,
// until it ends its work in turn. A place whose process died keeps the run.
//
// # Decisions
//
// A call that waits for a decision is in the run's state, and a question in the store. Whoever decides, be it the process
// that performs the run or another one, writes the decision there, once: so one wins, and the other is told. The process that
// performs the run takes the decision from there, now or when it goes on. Versions before had a file decision-EFFECT.json
// in the run's directory; such files are still read.
package runs

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/runner/stream"
	"github.com/berth-dev/berth/sdk/errs"
)

// Dir is a directory of runs.
type Dir struct{ Path string }

// Summary is what a list of runs tells of one.
type Summary struct {
	ID      string        `json:"id"`
	Status  run.Status    `json:"status"`
	Live    bool          `json:"live"` // a process works on it
	Agent   string        `json:"agent"`
	Turns   int           `json:"turns"`
	Usage   model.Usage   `json:"usage"`
	Waiting int           `json:"waiting"` // calls that wait for a decision
	Started time.Time     `json:"started"`
	Updated time.Time     `json:"updated"`
	Worked  time.Duration `json:"worked_ns"`
	Host    string        `json:"host,omitempty"`  // the machine that has its log, when that is elsewhere
	Error   string        `json:"error,omitempty"` // why it cannot be read
}

// Resumable reports whether somebody can go on with the run.
func (s *Summary) Resumable() bool {
	return s.Error == "" && !s.Live && s.Status != run.Completed
}

// Waiting is a call that waits for a decision.
type Waiting struct {
	Run       string          `json:"run,omitempty"` // that the call belongs to, when it is one in a call of the run
	Effect    run.EffectID    `json:"effect"`
	CallID    string          `json:"call_id"`
	Agent     string          `json:"agent"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Reason    string          `json:"reason,omitempty"`
	Unsure    bool            `json:"unsure,omitempty"` // it may have been made already
	// Covers says which calls an answer covers that is to count for later ones; empty = it cannot.
	Covers   string    `json:"covers,omitempty"`
	Decision *Decision `json:"decision,omitempty"` // that the run has not taken yet
}

// Decision is about one call that waits.
type Decision struct {
	Allow   bool      `json:"allow"`
	Always  bool      `json:"always,omitempty"`
	Message string    `json:"message,omitempty"`
	By      string    `json:"by,omitempty"`
	Time    time.Time `json:"time"`
}

// Run is a run as it was read.
type Run struct {
	Summary Summary   `json:"summary"`
	State   run.State `json:"state"`
	Waiting []Waiting `json:"waiting,omitempty"`

	Items []model.Item             `json:"-"`
	Prior map[string]run.PriorCall `json:"-"`
}

// dir is the directory of a run.
func (d Dir) dir(id string) (string, error) { return runlog.Dir(d.Path, id) }

// IDs lists the runs, the oldest first.
func (d Dir) IDs() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if _, err := d.dir(e.Name()); err == nil && e.IsDir() && !nested.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// List reads all runs, the oldest first. One that cannot be read says why.
func (d Dir) List() ([]Summary, error) {
	ids, err := d.IDs()
	if err != nil {
		return nil, err
	}
	all := make([]Summary, 0, len(ids))
	for _, id := range ids {
		r, err := d.Read(id)
		if err != nil {
			r = &Run{Summary: Summary{ID: id, Error: err.Error()}}
		}
		all = append(all, r.Summary)
	}
	return all, nil
}

// Read reads a run, whatever it is doing.
func (d Dir) Read(id string) (*Run, error) {
	dir, err := d.dir(id)
	if err != nil {
		return nil, err
	}
	v, err := runlog.OpenView(dir)
	if err != nil {
		return nil, err
	}
	defer v.Close() // it was only read
	r := &Run{Summary: Summary{ID: id}}
	covers := map[string]string{}
	for rec, err := range v.Records() {
		if err != nil {
			return nil, err
		}
		if r.Summary.Started.IsZero() {
			r.Summary.Started = rec.Time
		}
		r.Summary.Updated = rec.Time
		if rec.Type == stream.EntryType {
			noteCovers(covers, rec.Data)
		}
	}
	h, err := history.Read(v)
	if err != nil {
		return nil, err
	}
	r.State, r.Items, r.Prior = h.State, h.Items, h.Prior
	s, sum := &r.State, &r.Summary
	sum.Status, sum.Agent, sum.Turns, sum.Usage, sum.Worked = s.Status, s.Agent, s.Turn, s.Usage, s.Elapsed
	if sum.Live, err = runlog.Live(dir); err != nil {
		return nil, err
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		if c.Stage == run.StageRun && c.Ran {
			inner, err := d.Read(NestedID(id, c.CallID))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, w := range inner.Waiting {
				w.Run = cmp.Or(w.Run, inner.Summary.ID)
				r.Waiting = append(r.Waiting, w)
				sum.Waiting++
			}
		}
		if c.Stage != run.StageAsk {
			continue
		}
		it, err := v.Get(c.Item)
		if err != nil {
			return nil, err
		}
		w := Waiting{Effect: c.Slot.ID, CallID: c.CallID, Agent: s.Agent, Tool: c.Name, Reason: c.Reason, Unsure: c.Unsure}
		if !c.Unsure {
			w.Covers = covers[c.CallID]
		}
		if mc, ok := it.ToolCall(); ok {
			w.Arguments = mc.JSON()
		}
		if w.Decision, err = d.decision(id, w.Effect); err != nil {
			return nil, err
		}
		r.Waiting = append(r.Waiting, w)
		sum.Waiting++
	}
	return r, nil
}

// noteCovers remembers what an answer to a question would cover.
func noteCovers(covers map[string]string, data []byte) {
	var ev struct {
		Type event.Kind           `json:"type"`
		Data event.ApprovalWanted `json:"data"`
	}
	if json.Unmarshal(data, &ev) == nil && ev.Type == event.KindApprovalWanted {
		covers[ev.Data.CallID] = ev.Data.Covers
	}
}

func decisionName(e run.EffectID) string { return fmt.Sprintf("decision-%d.json", e) }

// decision is what was decided about a call in a file beside the log, as versions before the store had it; nil = nothing.
func (d Dir) decision(id string, effect run.EffectID) (*Decision, error) {
	dir, err := d.dir(id)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, decisionName(effect)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dec Decision
	if err := json.Unmarshal(b, &dec); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, decisionName(effect)), err)
	}
	return &dec, nil
}

// Remove removes a run that no process works on.
func (d Dir) Remove(id string) error {
	dir, err := d.dir(id)
	if err != nil {
		return err
	}
	switch live, err := runlog.Live(dir); {
	case err == nil && live:
		return errs.New(errs.InvalidArgument, "a process works on run %s", id).WithHint("stop it first with Ctrl-C")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	inner, err := d.inside(id)
	if err != nil {
		return err
	}
	for _, name := range inner {
		if err := os.RemoveAll(filepath.Join(d.Path, name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// nested are the names of runs inside others.
var nested = regexp.MustCompile(`\.call-[0-9a-f]{8}$`)

// NestedID names the run of an agent that is called as a tool.
func NestedID(outer, callID string) string {
	sum := sha256.Sum256([]byte(callID))
	return fmt.Sprintf("%s.call-%x", outer, sum[:4])
}

// Root is the run that people see of one that may be inside of it.
func Root(id string) string {
	for nested.MatchString(id) {
		id = nested.ReplaceAllString(id, "")
	}
	return id
}

// inside lists the runs in the calls of a run.
func (d Dir) inside(id string) ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), id+".call-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Latest chooses the run that was worked on last of those that ok takes; empty = none.
func Latest(all []Summary, ok func(*Summary) bool) string {
	slices.SortFunc(all, func(a, b Summary) int { return b.Updated.Compare(a.Updated) })
	for i := range all {
		if ok(&all[i]) {
			return all[i].ID
		}
	}
	return ""
}
