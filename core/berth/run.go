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
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
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
	Emit    func(event.Event)
	Stop    <-chan struct{}
	// Approve asks a person who is here about a call, until the context ends; nil = nobody is. When nobody has decided
	// within the time that the files give, the run pauses.
	Approve func(context.Context, runner.Approval) (runner.Decision, error)
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
	cfg, err := r.config(log)
	if err != nil {
		return nil, err
	}
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
	cfg, err := r.config(log)
	if err != nil {
		return nil, err
	}
	return runner.Resume(ctx, cfg)
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

// record is kept beside a run's log. It is written before the sandbox is made, so that no sandbox is without one.
type record struct {
	SandboxID string          `json:"sandbox_id,omitempty"`
	Driver    string          `json:"driver,omitempty"`
	State     *driver.State   `json:"state,omitempty"`
	Fixed     *sandbox.Fixed  `json:"fixed,omitempty"`
	Note      json.RawMessage `json:"note,omitempty"`
}

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, sessionFile))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, sessionFile), err)
	}
	return r, nil
}

// live is a run that is being performed.
type live struct {
	h   *Harness
	o   RunOptions
	dir string

	mu      sync.Mutex
	record  record           // guarded by mu
	session *sandbox.Session // guarded by mu; nil = none is open
}

func (r *live) save() error {
	r.mu.Lock()
	b, err := json.Marshal(r.record)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	tmp := filepath.Join(r.dir, sessionFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(r.dir, sessionFile))
}

func (r *live) config(log *runlog.Log) (runner.Config, error) {
	o, agent := r.o, r.o.Run.Agent
	rules, err := rules(o.Run)
	if err != nil {
		return runner.Config{}, err
	}
	cfg := runner.Config{
		Rules: rules, Approve: r.approve,
		RunID: o.ID, Run: o.Run, Model: o.Model, ModelName: o.Name, Log: log, Emit: r.emit, Stop: o.Stop, Now: r.h.cfg.Now,
		Tools: func(s runner.Session) ([]tool.Tool, error) {
			if ws, ok := s.(*workspace); ok {
				return ws.tools(o.Model.Supports()), nil
			}
			return nil, nil
		},
		Instructions: func(_ context.Context, s runner.Session) (string, error) { return r.instructions(s) },
	}
	if agent.Sandboxed {
		cfg.OpenSession = r.open
	}
	return cfg, nil
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
	agent := r.o.Run.Agent
	m := manifestOf(r.o.Run)
	r.mu.Lock()
	resume, fixed := r.record.State, r.record.Fixed
	if r.record.SandboxID == "" {
		r.record.SandboxID, r.record.Driver = r.o.ID, r.h.DriverOf(r.o.Run.Sandbox)
	}
	id := r.record.SandboxID
	r.mu.Unlock()
	if err := r.save(); err != nil {
		return nil, err
	}
	s, err := r.h.Open(ctx, r.o.Project, SandboxOptions{
		ID: id, Sandbox: r.o.Run.Sandbox, Manifest: m, RunAs: agent.RunAs, Vars: r.vars(), Emit: emit, Keep: r.o.Keep,
		Labels: map[string]string{"berth.run": r.o.ID}, Resume: resume, Fixed: fixed,
		From: r.o.From, Run: r.o.ID,
	})
	if err != nil {
		return nil, err
	}
	state := s.State()
	r.mu.Lock()
	r.record.State, r.record.Fixed, r.session = &state, s.Fixed(), s
	r.mu.Unlock()
	if err := r.save(); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx), run.Failed))
	}
	return newWorkspace(r, s), nil
}

var _ runner.Session = (*workspace)(nil)

// workspace is a session with the capabilities that work in it.
type workspace struct {
	*sandbox.Session
	run *live
	capabilities
}

func newWorkspace(r *live, s *sandbox.Session) *workspace {
	return &workspace{Session: s, run: r, capabilities: newCapabilities(s, r.o.Run)}
}

// Close ends the commands that still run, then the sandbox.
func (w *workspace) Close(ctx context.Context, status run.Status) error {
	err := w.end(ctx)
	if cerr := w.Session.Close(ctx, status); cerr != nil {
		return errors.Join(err, cerr)
	}
	state := w.State()
	w.run.mu.Lock()
	w.run.record.State = &state
	if status == run.Completed && !w.run.o.Keep {
		w.run.record.State = nil
	}
	w.run.mu.Unlock()
	return errors.Join(err, w.run.save())
}
