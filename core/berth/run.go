// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/outfit"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// RunOptions say what to run.
type RunOptions struct {
	ID      string // empty = a new one
	Project *spec.Project
	Run     *spec.Run // with its agent and input
	Model   model.Model
	Name    string // of the model
	Keep    bool   // leave the sandbox stopped at the end
	From    string // snapshot that a new run's workspace starts from; empty = as the sandbox block says
	// Session is one that the caller has open; the run works in it and never closes it. nil = the sandbox's own policy.
	Session *session.Session
	// Use names a session that is remembered, by its id, the beginning of it, or its key. The run works in it and puts it
	// back as it was. Empty = the sandbox's own policy.
	Use  string
	Emit func(event.Event)
	Stop <-chan struct{}
	// Approve asks a person who is here about a call, until the context ends; nil = nobody is. When nobody has decided
	// within the time that the files give, the run pauses.
	Approve func(context.Context, runner.Approval) (runner.Decision, error)
	// Fresh says that the run goes on in a new workspace, and that the model must be told. Of a resume.
	Fresh bool
	// Note is kept beside the run and given back by [Harness.Note], for whoever resumes it.
	Note json.RawMessage
}

// Run performs a run to its end.
func (h *Harness) Run(ctx context.Context, o RunOptions) (*runner.Result, error) {
	if o.ID == "" {
		o.ID = runlog.NewID(h.cfg.Now())
	}
	if err := available(o.Run); err != nil {
		return nil, err
	}
	dir, err := h.runDir(o.ID)
	if err != nil {
		return nil, err
	}
	log, err := runlog.Create(dir)
	if err != nil {
		return nil, err
	}
	defer log.Close() // every record was written, and synced where it counts
	r := &live{h: h, o: o, dir: dir, record: record{Note: o.Note}}
	if err := r.save(); err != nil {
		return nil, err
	}
	cfg, err := r.config(ctx, log)
	if err != nil {
		return nil, err
	}
	defer r.end(ctx)
	return runner.Run(ctx, cfg)
}

// Resume goes on with a run that did not complete.
func (h *Harness) Resume(ctx context.Context, o RunOptions) (*runner.Result, error) {
	if err := available(o.Run); err != nil {
		return nil, err
	}
	dir, err := h.runDir(o.ID)
	if err != nil {
		return nil, err
	}
	if !exists(dir) {
		return nil, h.unknownRun(o.ID)
	}
	log, err := runlog.Open(dir)
	if err != nil {
		return nil, err
	}
	defer log.Close() // every record was written, and synced where it counts
	r := &live{h: h, o: o, dir: dir}
	if r.record, err = readRecord(dir); err != nil {
		return nil, err
	}
	cfg, err := r.config(ctx, log)
	if err != nil {
		return nil, err
	}
	defer r.end(ctx)
	if o.Fresh {
		cfg.Notes = append(cfg.Notes, freshNote)
	}
	return runner.Resume(ctx, cfg)
}

// freshNote tells the model that its work is not there.
const freshNote = "The run goes on on another machine, in a new workspace that holds what the workspace held at the very first. " +
	"Files that were changed or made before are not there any more, and no command runs."

// Export gives a run as one value that [Harness.Import] takes, on this machine or another.
func (h *Harness) Export(id string) (*runs.Document, error) {
	doc, err := h.Runs().Export(id, h.cfg.Now())
	if err != nil {
		return nil, err
	}
	dir, err := h.runDir(id)
	if err != nil {
		return nil, err
	}
	r, err := readRecord(dir)
	if err != nil {
		return nil, err
	}
	doc.Note = r.Note
	if r.Session != "" {
		doc.Sandboxes = map[string]runs.Sandbox{doc.State.Agent: {Session: r.Session}}
	}
	return doc, nil
}

// Import puts an exported run among those of this machine, with a note of the caller's.
func (h *Harness) Import(doc *runs.Document, note json.RawMessage) error {
	if err := h.Runs().Import(doc, h.cfg.Now()); err != nil {
		return err
	}
	dir, err := h.runDir(doc.RunID)
	if err != nil {
		return err
	}
	return (&live{h: h, dir: dir, record: record{Note: note}}).save()
}

// Note gives what was kept beside a run.
func (h *Harness) Note(id string) (json.RawMessage, error) {
	dir, err := h.runDir(id)
	if err != nil {
		return nil, err
	}
	if !exists(dir) {
		return nil, h.unknownRun(id)
	}
	r, err := readRecord(dir)
	return r.Note, err
}

// runFile is what a run remembers beside its log.
const runFile = "run.json"

// record is what it holds.
type record struct {
	Session string          `json:"session,omitempty"` // of the state store
	Note    json.RawMessage `json:"note,omitempty"`
}

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, runFile), err)
	}
	return r, nil
}

// live is a run that is being performed.
type live struct {
	h     *Harness
	o     RunOptions
	dir   string
	plain *outfit.Outfit // of an agent without a sandbox

	mu      sync.Mutex
	record  record           // guarded by mu
	session *session.Session // guarded by mu; nil = none is open
}

// end ends what an agent without a sandbox works with.
func (r *live) end(ctx context.Context) {
	if r.plain == nil {
		return
	}
	_ = r.plain.Close(context.WithoutCancel(ctx)) // the run is over, and nothing of it is left
}

func (r *live) save() error {
	r.mu.Lock()
	b, err := json.Marshal(r.record)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	tmp := filepath.Join(r.dir, runFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(r.dir, runFile))
}

func (r *live) config(ctx context.Context, log *runlog.Log) (runner.Config, error) {
	o, agent := r.o, r.o.Run.Agent
	rules, err := rules(o.Run)
	if err != nil {
		return runner.Config{}, err
	}
	desk := &runs.Desk{Dir: r.h.Runs(), RunID: o.ID, Ask: o.Approve, KeepFor: r.keepFor(), Now: r.h.cfg.Now}
	cfg := runner.Config{
		Rules: rules, Approve: desk.Approve,
		RunID: o.ID, Run: o.Run, Model: o.Model, ModelName: o.Name, Log: log, Emit: r.emit, Stop: o.Stop, Now: r.h.cfg.Now,
		Tools: func(s runner.Session) ([]tool.Tool, error) {
			if ws, ok := s.(*workspace); ok {
				return ws.Tools(o.Model.Supports()), nil
			}
			return r.plain.Tools(o.Model.Supports()), nil
		},
		Instructions: func(_ context.Context, s runner.Session) (string, error) { return r.instructions(s) },
	}
	if agent.Sandboxed {
		cfg.OpenSession = r.open
		return cfg, nil
	}
	r.plain, err = r.outfit(ctx, nil)
	return cfg, err
}

// emit passes events on, and tells the session when a turn is over.
func (r *live) emit(ev event.Event) {
	if ev.Kind == event.KindTurnStarted && ev.Turn > 1 {
		r.mu.Lock()
		s := r.session
		r.mu.Unlock()
		if s != nil {
			s.Turn()
		}
	}
	if r.o.Emit != nil {
		r.o.Emit(ev)
	}
}

func (r *live) vars() spec.RunVars {
	return spec.RunVars{RunID: r.o.ID, Input: r.o.Run.Input, Vars: r.o.Run.Vars, StartedAt: r.h.cfg.Now(), Agent: r.o.Run.Agent.Label}
}

// open makes the run's sandbox, or finds the one that it had.
func (r *live) open(ctx context.Context, emit func(event.Data)) (runner.Session, error) {
	if s := r.o.Session; s != nil {
		emit(event.SandboxReady{SandboxID: s.ID(), Driver: s.Record().Driver, Root: s.Root(), Isolation: s.Info().Isolation, Reattached: true})
		return r.workspace(ctx, s)
	}
	r.mu.Lock()
	held := r.record.Session
	r.mu.Unlock()
	o := SandboxOptions{
		ID: r.o.ID, Sandbox: r.o.Run.Sandbox, Manifest: manifestOf(r.o.Run), Agent: r.o.Run.Agent, Vars: r.vars(), Emit: emit, Keep: r.o.Keep,
		RunID: r.o.ID, From: r.o.From, What: "run " + r.o.ID, held: held, chosen: r.chosen,
	}
	var s *session.Session
	var err error
	if r.o.Use != "" {
		s, err = r.h.use(ctx, r.o.Project, r.o.Use, o)
	} else {
		s, err = r.h.Open(ctx, r.o.Project, o)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.session = s
	r.mu.Unlock()
	return r.workspace(ctx, s)
}

// chosen keeps which session the run has.
func (r *live) chosen(id string) error {
	r.mu.Lock()
	r.record.Session = id
	r.mu.Unlock()
	return r.save()
}

var _ runner.Session = (*workspace)(nil)

// workspace is a session with what the agent has in it.
type workspace struct {
	*session.Session
	*outfit.Outfit
	run *live
}

func (r *live) workspace(ctx context.Context, s *session.Session) (runner.Session, error) {
	kit, err := r.outfit(ctx, s.Session)
	if err != nil {
		if r.o.Session == nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx), run.Failed))
		}
		return nil, err
	}
	return &workspace{Session: s, Outfit: kit, run: r}, nil
}

// Close ends the commands that still run, then the session, unless somebody else opened it.
func (w *workspace) Close(ctx context.Context, status run.Status) error {
	err := w.Outfit.Close(ctx)
	if w.run.o.Session != nil {
		return err
	}
	return errors.Join(err, w.Session.Close(ctx, status))
}
