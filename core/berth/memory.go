// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/memory"
	"github.com/berth-dev/berth/core/memory/fit"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

// memoryTime bounds the writing of memories at the end of an agent's work.
const memoryTime = 15 * time.Minute

// remembering is the memory of an agent in a session.
type remembering struct {
	*memory.Memory
	run   *live
	agent *spec.Agent
	entry memory.Entry
	key   string // of the lock
}

// memory gives the memory of an agent that has one.
func (r *live) memory(a *spec.Agent, s *session.Session) *remembering {
	c := a.Capabilities.Memory
	m := &remembering{
		run: r, agent: a, Memory: &memory.Memory{Files: s.FileSystem, User: a.RunAs, Layout: memory.LayoutOf(c), Generate: c.Generate, Now: r.h.cfg.Now},
	}
	m.key = s.ID() + "\x00" + m.Layout.Memories
	rec := s.Record()
	m.entry = memory.Entry{
		Run: r.o.ID, Rollout: r.o.ID, Skip: r.record.Said,
		Place: memory.Place{Project: rec.Project, Sandbox: rec.Sandbox, Key: rec.Name, Layout: m.Layout},
	}
	if key := r.record.Conversation; key != "" {
		m.entry.Rollout = key
	} else if t := r.o.Run.Trace; t != nil && t.GroupID != "" {
		m.entry.Rollout = t.GroupID
	}
	m.Ask = m.ask
	return m
}

// phase is the agent of a job.
func (m *remembering) phase(job memory.Job) *spec.Agent {
	g := m.agent.Capabilities.Memory.Generate
	own, settings := g.PhaseOneModel, g.PhaseOneSettings
	if job.Phase == memory.PhaseMerge {
		own, settings = g.PhaseTwoModel, g.PhaseTwoSettings
	}
	a := &spec.Agent{
		Label: job.Phase, Model: own, OwnModel: own != nil, Settings: settings, Instructions: spec.Text{Literal: job.Instructions},
		OutputSchema: &spec.OutputSchema{Label: "memory", Schema: job.Schema, Strict: true, Retry: 1},
	}
	if own == nil {
		a.Model = m.agent.Model
	}
	return a
}

// ask performs a job in a run of its own beside the one that it belongs to: without a sandbox, with no tools but the job's,
// and outside of the run's budget.
func (m *remembering) ask(ctx context.Context, job memory.Job) (string, model.Usage, error) {
	t := &agentTool{
		outer: m.run, replayed: job.Phase,
		spec: &spec.AgentTool{Name: job.Phase, Agent: m.phase(job), MaxTurns: job.MaxTurns, Workspace: "none"},
		adjust: func(o *RunOptions) {
			o.Tools, o.Approve, o.Run.Approvals, o.Run.Settings = job.Tools, nil, nil, nil
		},
	}
	args, err := toolInput(job.Input)
	if err != nil {
		return "", model.Usage{}, err
	}
	res, err := t.Call(ctx, tool.Call{
		ID: job.Phase + " " + job.Key, RunID: m.run.o.ID, Agent: m.agent.Label, Arguments: args,
		Progress: func(tool.Progress) {}, Tell: func(event.Data) {}, Save: func([]byte) error { return nil },
	})
	if err == nil && res.Error != nil {
		err = errors.New(res.Error.Message)
	}
	return res.Text, res.Usage, err
}

// recall makes an agent's memory ready: what runs left whose process ended is put down, and what the agent is told of it is
// read.
func (w *workspace) recall(ctx context.Context, a *spec.Agent) error {
	c := a.Capabilities.Memory
	if c == nil {
		return nil
	}
	r := w.run
	m := r.memory(a, w.Session)
	defer r.h.locks.Lock(m.key)()
	if c.Generate != nil {
		if r.o.Session == nil && r.o.Use == "" && !fit.Stays(r.o.Run.Sandbox, manifestOf(r.o.Run, a), m.Layout) {
			w.emit(event.Warning{
				Message: fmt.Sprintf("what agent %q learns goes away with the workspace", a.Label),
				Hint:    "give the sandbox a session with a key or a snapshot, or put " + m.Layout.Memories + " on a mount",
			})
		}
		if err := m.takeUp(ctx, w.emit); err != nil {
			return err
		}
		if err := r.h.queue().Put(m.entry); err != nil {
			return err
		}
	}
	w.memory = m
	if !c.Read {
		return nil
	}
	var err error
	w.recalled, err = m.Fragment(ctx, w.Root(), c.LiveUpdate)
	return err
}

// takeUp writes what runs left whose process ended.
func (m *remembering) takeUp(ctx context.Context, emit func(event.Data)) error {
	some, err := m.TakeUp(ctx, m.run.h.queue(), m.run.h.cfg.RunsDir, m.entry.Place, m.entry.Run)
	if err != nil || !some {
		return err
	}
	_, err = m.generate(ctx, false, emit)
	return err
}

// generate extracts and merges, and says what came of it.
func (m *remembering) generate(ctx context.Context, again bool, emit func(event.Data)) (memory.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, memoryTime, fmt.Errorf("the memory was not written within %s", memoryTime))
	defer cancel()
	if m.Window == 0 {
		reader, err := m.run.choice(ctx, m.phase(memory.Job{Phase: memory.PhaseExtract}))
		if err != nil {
			return memory.Report{}, err
		}
		m.Window = model.Window(reader.Name)
	}
	rep, err := m.Write(ctx, again)
	for _, p := range rep.Problems {
		emit(event.Warning{Message: "the memory is not up to date: " + p, Hint: "it is tried again by the next run, and by berth memory generate"})
	}
	if rep.Extracted+rep.Failed > 0 || rep.Merged {
		emit(event.MemoryWritten{Agent: m.agent.Label, Rollouts: rep.Extracted, Failed: rep.Failed, Merged: rep.Merged, Usage: rep.Usage})
	}
	return rep, err
}

// remember puts down what the agent's run was, at the end of it, and writes the memory when the run came to an end of its own.
// Whatever goes wrong is told, and done by the next run.
func (w *workspace) remember(ctx context.Context, status run.Status) {
	m := w.memory
	if m == nil || m.Generate == nil {
		return
	}
	defer w.run.h.locks.Lock(m.key)()
	part, err := memory.ReadPart(w.run.h.cfg.RunsDir, m.entry)
	if err == nil {
		_, err = m.Capture(ctx, part)
	}
	if err == nil {
		err = w.run.h.queue().Drop(m.entry)
	}
	if err == nil && status != run.Cancelled && status != run.Paused {
		_, err = m.generate(ctx, false, w.emit)
	}
	if err != nil {
		w.emit(event.Warning{
			Message: fmt.Sprintf("the memory of agent %q was not written: %s", m.agent.Label, err), Hint: "the next run tries again, and berth memory generate",
		})
	}
}

// queue is where runs are that have something to remember.
func (h *Harness) queue() memory.Queue {
	return memory.Queue{Dir: filepath.Join(h.cfg.RunsDir, ".memory")}
}

// Memory opens the memory that the agent of a run has in the workspace in which the run would work, for f: what runs left
// whose process ended is in it. Generate of its argument writes what is pending.
func (h *Harness) Memory(ctx context.Context, o RunOptions, f func(context.Context, *OpenMemory) error) (err error) {
	a := o.Run.Agent
	if a.Capabilities.Memory == nil {
		return errs.New(errs.InvalidArgument, "agent %q has no memory", a.Label).WithHint("give it a memory block in its capabilities")
	}
	if err := available(o.Run); err != nil {
		return err
	}
	if o.Use == "" && !fit.Stays(o.Run.Sandbox, manifestOf(o.Run, a), memory.LayoutOf(a.Capabilities.Memory)) {
		return errs.New(errs.InvalidArgument, "the memory of agent %q goes away with each workspace", a.Label).
			WithHint("give the sandbox a session with a key or a snapshot, or put the memory on a mount")
	}
	o.ID = runlog.NewID(h.cfg.Now())
	dir, err := h.runDir(o.ID)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	emit := func(event.Data) {}
	if o.Emit != nil {
		emit = func(d event.Data) {
			o.Emit(event.Event{RunID: o.ID, Time: h.cfg.Now(), Agent: a.Label, Kind: d.Kind(), Data: d})
		}
	}
	r := &live{h: h, o: o, dir: dir}
	s, err := r.session(ctx, a.Label, emit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx), run.Completed)) }()
	m := r.memory(a, s)
	if m.Generate != nil {
		if _, err := m.TakeUp(ctx, h.queue(), h.cfg.RunsDir, m.entry.Place, ""); err != nil {
			return err
		}
	}
	return f(ctx, &OpenMemory{Memory: m.Memory, m: m, emit: emit})
}

// OpenMemory is a memory that somebody looks at.
type OpenMemory struct {
	*memory.Memory
	m    *remembering
	emit func(event.Data)
}

// Generate extracts what is pending, also what has failed too often, and merges it.
func (o *OpenMemory) Generate(ctx context.Context) (memory.Report, error) {
	if o.m.Memory.Generate == nil {
		return memory.Report{}, errs.New(errs.InvalidArgument, "agent %q does not write its memory", o.m.agent.Label).WithHint("give its memory a generate block")
	}
	return o.m.generate(ctx, true, o.emit)
}

// choice is the model of an agent of the run.
func (r *live) choice(ctx context.Context, a *spec.Agent) (choose.Choice, error) {
	if r.o.ModelOf == nil {
		return choose.Choice{Model: r.o.Model, Name: r.o.Name, Settings: r.o.Run.Settings.Over(a.Settings)}, nil
	}
	c, err := r.o.ModelOf(ctx, a)
	if err != nil {
		err = fmt.Errorf("agent %q: %w", a.Label, err)
	}
	return c, err
}
