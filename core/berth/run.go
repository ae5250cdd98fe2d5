// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/berth-dev/berth/core/audit"
	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/outfit"
	"github.com/berth-dev/berth/core/outschema"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/runs"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/trace"
)

// RunOptions say what to run.
type RunOptions struct {
	ID      string // empty = a new one
	Project *spec.Project
	Run     *spec.Run // with its agent and input
	// Model answers every agent of the run, under the name Name, unless ModelOf gives each its own.
	Model   model.Model
	Name    string
	ModelOf func(context.Context, *spec.Agent) (choose.Choice, error)
	// Tools are those in Go that the run's agent has besides its own.
	Tools []tool.Tool
	Keep  bool   // leave the sandbox stopped at the end
	From  string // snapshot that a new run's workspace starts from; empty = as the sandbox block says
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
	// Conversation is the key of one that a new run goes on with and adds to; empty = what the run block says.
	Conversation string

	call string // of another run that this one is; empty = none
}

// Run performs a run to its end.
func (h *Harness) Run(ctx context.Context, o RunOptions) (_ *runner.Result, err error) {
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
	reg, err := h.Runs(ctx)
	if err != nil {
		return nil, err
	}
	if err := reg.Begin(ctx, o.ID, dirOf(o.Project), o.Run.Agent.Label); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reg.Settle(ctx, o.ID)) }()
	log, err := runlog.Create(dir)
	if err != nil {
		return nil, err
	}
	defer log.Close() // every record was written, and synced where it counts
	r := &live{h: h, o: o, dir: dir, record: record{Note: o.Note}}
	said, err := r.converse(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.save(); err != nil {
		return nil, err
	}
	defer r.end(ctx)
	cfg, err := r.config(ctx, log)
	if err != nil {
		return nil, err
	}
	cfg.History, cfg.Warnings = said.Items, said.Warnings
	res, err := runner.Run(r.named(ctx), cfg)
	return res, r.keepTurn(ctx, res, err)
}

// Resume goes on with a run that did not complete.
func (h *Harness) Resume(ctx context.Context, o RunOptions) (_ *runner.Result, err error) {
	if err := available(o.Run); err != nil {
		return nil, err
	}
	dir, err := h.runDir(o.ID)
	if err != nil {
		return nil, err
	}
	reg, err := h.Runs(ctx)
	if err != nil {
		return nil, err
	}
	f, err := reg.Fetch(ctx, o.ID)
	if err != nil {
		return nil, err
	}
	log, err := runlog.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close(), reg.Settle(ctx, o.ID)) }()
	if err := reg.Claim(ctx, f, dirOf(o.Project)); err != nil {
		return nil, err
	}
	r := &live{h: h, o: o, dir: dir}
	if err := r.taken(f); err != nil {
		return nil, err
	}
	defer r.end(ctx)
	cfg, err := r.config(ctx, log)
	if err != nil {
		return nil, err
	}
	if o.Fresh {
		cfg.Notes = append(cfg.Notes, freshNote)
	}
	res, err := runner.Resume(r.named(ctx), cfg)
	return res, r.keepTurn(ctx, res, err)
}

// freshNote tells the model that its work is not there.
const freshNote = "The run goes on on another machine, in a new workspace that holds what the workspace held at the very first. " +
	"Files that were changed or made before are not there any more, and no command runs."

// record is what it holds.
type record struct {
	Session  string            `json:"session,omitempty"`  // of the state store
	Sessions map[string]string `json:"sessions,omitempty"` // of the workspaces of other agents, by label
	// Conversation is the key of the one that the run adds to; empty = none.
	Conversation string          `json:"conversation,omitempty"`
	Said         int             `json:"said,omitempty"` // items of it that the run began with
	Note         json.RawMessage `json:"note,omitempty"`
	Trace        string          `json:"trace,omitempty"` // that a resume goes on in
}

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, runs.BesideFile))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, runs.BesideFile), err)
	}
	return r, nil
}

// live is a run that is being performed.
type live struct {
	h   *Harness
	o   RunOptions
	dir string

	trace  *trace.Trace // nil = there is none, or the outer run has it
	traced *trace.Run   // nil = there is none
	audit  *audit.Log   // of the outermost run

	mu     sync.Mutex
	record record                    // guarded by mu
	open   map[string]*held          // guarded by mu; the sessions in use, by the label of the agent whose workspace it is
	plain  map[string]*outfit.Outfit // guarded by mu; of agents without a sandbox, by label
}

// held is a session that agents of the run work in.
type held struct {
	*session.Session
	users int // workspaces on it
}

// end ends what agents without a sandbox work with, and the trace.
func (r *live) end(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kit := range r.plain {
		_ = kit.Close(context.WithoutCancel(ctx)) // the run is over, and nothing of it is left
	}
	r.endWatch(ctx)
}

func (r *live) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saveLocked()
}

func (r *live) saveLocked() error {
	b, err := json.Marshal(r.record)
	if err != nil {
		return err
	}
	return runs.Dir{Path: r.h.cfg.RunsDir}.PutBeside(r.o.ID, b)
}

func (r *live) config(ctx context.Context, log *runlog.Log) (runner.Config, error) {
	o := r.o
	team := runner.Reachable(o.Run.Agent)
	rules, err := rules(o.Run, team)
	if err != nil {
		return runner.Config{}, err
	}
	if err := errors.Join(r.openTrace(ctx), r.openAudit()); err != nil {
		return runner.Config{}, err
	}
	ctx = r.named(ctx)
	reg, err := r.h.Runs(ctx)
	if err != nil {
		return runner.Config{}, err
	}
	desk := &runs.Desk{Register: reg, RunID: o.ID, Ask: o.Approve, KeepFor: r.keepFor()}
	cfg := runner.Config{
		Rules: rules, Approve: desk.Approve, Call: o.call, Others: map[string]runner.Other{},
		CheckOutput: checkOutput, Guard: r.guard,
		RunID: o.ID, Run: o.Run, Log: log, Emit: r.emit, Watch: r.watch(), Stop: o.Stop, Now: r.h.cfg.Now,
	}
	if cfg.Member, err = r.member(ctx, o.Run.Agent); err != nil {
		return cfg, err
	}
	for _, a := range team {
		m, err := r.member(ctx, a)
		if err != nil {
			return cfg, err
		}
		cfg.Others[a.Label] = runner.Other{Agent: a, Member: m}
	}
	return cfg, nil
}

// member is what an agent of the run works with.
func (r *live) member(ctx context.Context, a *spec.Agent) (runner.Member, error) {
	c, err := r.choice(ctx, a)
	if err != nil {
		return runner.Member{}, err
	}
	if r.traced != nil {
		r.traced.Model(a.Label, c.Name)
	}
	m := runner.Member{
		Model: c.Model, ModelName: c.Name, Settings: c.Settings,
		Tools:        func(s runner.Session) ([]tool.Tool, error) { return r.served(r.tools(ctx, a, s, c.Model.Supports())) },
		Instructions: func(_ context.Context, s runner.Session) (string, error) { return r.instructions(a, s) },
	}
	m.Settings, m.CompactAt = compaction(a, c)
	if s := a.OutputSchema; s != nil && s.Strict {
		strict, err := outschema.Strict(s.Schema)
		if err != nil {
			return m, schemaFault(s, err)
		}
		m.StrictSchema = strict
	}
	if a.Sandboxed {
		m.OpenSession = func(ctx context.Context, where string, emit func(event.Data)) (runner.Session, error) {
			if where == "" {
				where = a.Label
			}
			return r.workspace(ctx, a, where, emit)
		}
	}
	return m, nil
}

// tools are what the model may call for an agent.
func (r *live) tools(ctx context.Context, a *spec.Agent, s runner.Session, support model.Support) ([]tool.Tool, error) {
	ws, _ := s.(*workspace)
	nested, err := r.agentTools(a, ws)
	if err != nil {
		return nil, err
	}
	if a == r.o.Run.Agent {
		nested = append(nested, r.o.Tools...)
	}
	if ws != nil {
		return append(ws.Tools(support), nested...), nil
	}
	kit, err := r.outfit(ctx, a, nil, nil)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plain == nil {
		r.plain = map[string]*outfit.Outfit{}
	}
	r.plain[a.Label] = kit
	return append(kit.Tools(support), nested...), nil
}

// emit passes events on, and tells the sessions when a turn is over.
func (r *live) emit(ev event.Event) {
	if ev.Kind == event.KindTurnStarted && ev.Turn > 1 {
		r.mu.Lock()
		for _, s := range r.open {
			s.Turn()
		}
		r.mu.Unlock()
	}
	if r.o.Emit != nil {
		r.o.Emit(ev)
	}
}

func (r *live) vars(a *spec.Agent) spec.RunVars {
	return spec.RunVars{RunID: r.o.ID, Input: r.o.Run.Input, Vars: r.o.Run.Vars, StartedAt: r.h.cfg.Now(), Agent: a.Label}
}

// agent gives an agent of the run by its label.
func (r *live) agent(label string) *spec.Agent {
	for _, a := range runner.Reachable(r.o.Run.Agent) {
		if a.Label == label {
			return a
		}
	}
	return r.o.Run.Agent
}

// session gives the session of an agent's workspace: the one that is open, the one that the run had, or a fresh one.
func (r *live) session(ctx context.Context, where string, emit func(event.Data)) (*session.Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.open[where]; s != nil {
		s.users++
		return s.Session, nil
	}
	s, err := r.openLocked(ctx, where, emit)
	if err != nil {
		return nil, err
	}
	if r.open == nil {
		r.open = map[string]*held{}
	}
	r.open[where] = &held{Session: s, users: 1}
	return s, nil
}

func (r *live) openLocked(ctx context.Context, where string, emit func(event.Data)) (*session.Session, error) {
	owner := r.agent(where)
	first := where == r.o.Run.Agent.Label || !r.o.Run.Agent.Sandboxed
	if s := r.o.Session; s != nil && first {
		emit(event.SandboxReady{SandboxID: s.ID(), Driver: s.Record().Driver, Root: s.Root(), Isolation: s.Info().Isolation, Reattached: true})
		return s, nil
	}
	o := SandboxOptions{
		ID: r.o.ID, Sandbox: r.o.Run.Sandbox, Manifest: manifestOf(r.o.Run, owner), Agent: owner, Vars: r.vars(owner), Emit: emit, Keep: r.o.Keep,
		RunID: r.o.ID, From: r.o.From, What: "run " + r.o.ID, users: workers(r.o.Run.Agent),
		held: r.record.Session, chosen: func(id string) error { r.record.Session = id; return r.saveLocked() },
	}
	if r.o.Fresh && o.held == "" {
		o.ID = runlog.NewID(r.h.cfg.Now()) // the run's own id is that of the session that it had elsewhere
	}
	switch {
	case !first:
		// A workspace of an agent's own is made by the run and goes with it, whatever the sandbox's policy is.
		o.ID, o.held = runlog.NewID(r.h.cfg.Now()), r.record.Sessions[where]
		o.Sandbox = ofTheRun(o.Sandbox)
		o.chosen = func(id string) error {
			if r.record.Sessions == nil {
				r.record.Sessions = map[string]string{}
			}
			r.record.Sessions[where] = id
			return r.saveLocked()
		}
	case r.o.Use != "":
		return r.h.use(ctx, r.o.Project, r.o.Use, o)
	}
	return r.h.Open(ctx, r.o.Project, o)
}

// ofTheRun is a sandbox block without its policy about where a session comes from: the run makes one.
func ofTheRun(s *spec.Sandbox) *spec.Sandbox {
	if s == nil {
		return nil
	}
	own := *s
	own.Session.Source, own.Session.Key, own.Session.StateFile = "", spec.Text{}, ""
	return &own
}

// workers are the users that agents of a run work as, in a workspace that they may share.
func workers(first *spec.Agent) []string {
	var users []string
	for _, a := range everybody(first) {
		if a.RunAs != "" && !slices.Contains(users, a.RunAs) {
			users = append(users, a.RunAs)
		}
	}
	return users
}

var _ runner.Session = (*workspace)(nil)

// workspace is a session with what an agent has in it.
type workspace struct {
	*session.Session
	*outfit.Outfit
	run      *live
	where    string // label of the agent whose workspace it is
	emit     func(event.Data)
	memory   *remembering // nil = the agent has none
	recalled string       // what the agent is told of it
}

// workspace opens a workspace for an agent.
func (r *live) workspace(ctx context.Context, a *spec.Agent, where string, emit func(event.Data)) (runner.Session, error) {
	s, err := r.session(ctx, where, emit)
	if err != nil {
		return nil, err
	}
	w := &workspace{Session: s, run: r, where: where, emit: emit}
	if w.Outfit, err = r.outfit(ctx, a, s.Session, emit); err != nil {
		return nil, errors.Join(err, w.leave(context.WithoutCancel(ctx), run.Failed))
	}
	if err := w.recall(ctx, a); err != nil {
		return nil, errors.Join(err, w.Outfit.Close(ctx), w.leave(context.WithoutCancel(ctx), run.Failed))
	}
	return w, nil
}

// Close ends the commands that still run, and the session when no other agent works in it, unless somebody else opened it.
func (w *workspace) Close(ctx context.Context, status run.Status) error {
	err := w.Outfit.Close(ctx)
	w.remember(ctx, status)
	return errors.Join(err, w.leave(ctx, status))
}

// leave ends the use of the session.
func (w *workspace) leave(ctx context.Context, status run.Status) error {
	w.run.mu.Lock()
	s := w.run.open[w.where]
	s.users--
	last := s.users == 0
	if last {
		delete(w.run.open, w.where)
	}
	w.run.mu.Unlock()
	if !last || w.Session == w.run.o.Session {
		return nil
	}
	return w.Session.Close(ctx, status)
}
