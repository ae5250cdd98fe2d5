// SPDX-License-Identifier: Apache-2.0

// Package memory lets agents learn from earlier runs. What was said and done in a run is a rollout, kept in the workspace;
// one model call extracts from a rollout what is worth keeping, and another merges what was extracted into a handbook that
// the next run begins with. The files are those of [Layout].
//
// A rollout is text that nobody checked. The agents that read it have no tool but such as read the memories themselves: what
// they write is their answer, and this package puts it where it belongs. It asks models through [Memory.Ask] and touches
// files through the sandbox's own interface; it starts no sandbox and performs no run.
//
// What is still to be done is in the workspace too, in the index: a rollout whose extraction failed, or whose process ended
// before it, is taken up by whoever generates next.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// The phases.
const (
	PhaseExtract = "memory.extract"
	PhaseMerge   = "memory.merge"
)

// Layout says where things are, relative to the workspace's root.
//
//	MEMORIES/memory_summary.md              what every run is told
//	MEMORIES/MEMORY.md                      the handbook
//	MEMORIES/skills/NAME/SKILL.md           procedures
//	MEMORIES/raw_memories/ID.md             what was extracted from one rollout
//	MEMORIES/raw_memories.md                those that the handbook was made of
//	MEMORIES/rollout_summaries/ID_SLUG.md   what happened in one rollout
//	MEMORIES/phase_two_selection.json       which raw memories the handbook was made of
//	MEMORIES/index.json                     what is known of each rollout
//	SESSIONS/ID.jsonl                       a rollout, one run a line
type Layout struct{ Memories, Sessions string }

// LayoutOf is the layout of an agent that has memory.
func LayoutOf(c *spec.MemoryCapability) Layout {
	return Layout{path.Clean(cmp.Or(c.MemoriesDir, "memories")), path.Clean(cmp.Or(c.SessionsDir, "sessions"))}
}

func (l Layout) summary() string          { return path.Join(l.Memories, "memory_summary.md") }
func (l Layout) handbook() string         { return path.Join(l.Memories, "MEMORY.md") }
func (l Layout) raw(id string) string     { return path.Join(l.Memories, "raw_memories", id+".md") }
func (l Layout) raws() string             { return path.Join(l.Memories, "raw_memories.md") }
func (l Layout) summaries() string        { return path.Join(l.Memories, "rollout_summaries") }
func (l Layout) skills() string           { return path.Join(l.Memories, "skills") }
func (l Layout) selection() string        { return path.Join(l.Memories, "phase_two_selection.json") }
func (l Layout) index() string            { return path.Join(l.Memories, "index.json") }
func (l Layout) rollout(id string) string { return path.Join(l.Sessions, id+".jsonl") }

// Job is a question to a model.
type Job struct {
	Phase        string
	Key          string // tells the job from others of the phase
	Instructions string
	Input        string
	Schema       json.RawMessage // of the answer
	Tools        []tool.Tool
	MaxTurns     int
}

// Memory is the memory of one layout in one workspace.
type Memory struct {
	Files  driver.FileSystem
	User   string // of the sandbox, that the files belong to; empty = its usual one
	Layout Layout
	// Generate says how memories are written; nil = they are only read.
	Generate *spec.MemoryGenerate
	// Window is the context window of the model that extracts, in tokens; 0 = not known.
	Window int64
	// Ask asks a model, whose answer fits the schema. Required to generate.
	Ask func(ctx context.Context, job Job) (answer string, usage model.Usage, err error)
	Now func() time.Time
}

// version is that of the files that this package reads itself.
const version = 1

// maxFile bounds what is read of one file; rollouts are read in part.
const maxFile = 16 << 20

// read gives a file; ok is false when there is none. A file that is too large is an error.
func (m *Memory) read(ctx context.Context, name string) (text []byte, ok bool, err error) {
	info, r, err := m.Files.Open(ctx, name, driver.ReadOptions{User: m.User})
	if errors.Is(err, errs.FileNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	text, err = io.ReadAll(io.LimitReader(r, maxFile+1))
	if err = errors.Join(err, r.Close()); err == nil && len(text) > maxFile {
		err = errs.New(errs.InvalidArgument, "%s has %d bytes, at most %d are read", name, info.Size, maxFile)
	}
	return text, err == nil, err
}

// write replaces a file.
func (m *Memory) write(ctx context.Context, name, text string) error {
	_, err := m.Files.Write(ctx, name, driver.WriteOptions{Parents: true, User: m.User}, strings.NewReader(text))
	return err
}

func (m *Memory) writeJSON(ctx context.Context, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return m.write(ctx, name, string(b)+"\n")
}

// remove removes a file, if it is there.
func (m *Memory) remove(ctx context.Context, name string) error {
	err := m.Files.Remove(ctx, name, false, m.User)
	if errors.Is(err, errs.FileNotFound) {
		return nil
	}
	return err
}

// list gives the regular files below a directory, relative to it; links are left out, wherever they lead.
func (m *Memory) list(ctx context.Context, dir string) ([]string, error) {
	var all []string
	for info, err := range m.Files.List(ctx, dir, driver.ListOptions{Recursive: true, Limit: maxFiles, User: m.User}) {
		if errors.Is(err, errs.FileNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if info.Type == driver.TypeRegular {
			all = append(all, info.Path)
		}
	}
	slices.Sort(all)
	return all, nil
}

// maxFiles bounds a listing.
const maxFiles = 50_000

// index is what is known of the rollouts.
type index struct {
	Version  int                `json:"version"`
	Rollouts map[string]*Status `json:"rollouts"` // by id
}

// Status is how far a rollout is.
type Status struct {
	ID       string    `json:"rollout_id"` // as it was given; the name of files is made of it
	Updated  time.Time `json:"updated_at"`
	Terminal string    `json:"terminal_state"`
	// Runs says how many items of each run are in the rollout.
	Runs map[string]int `json:"runs"`
	// Extracted is the time of the newest part that was extracted; zero = nothing was.
	Extracted time.Time `json:"extracted_at,omitzero"`
	Summary   string    `json:"rollout_summary_file,omitempty"` // empty = nothing was worth keeping
	Attempts  int       `json:"attempts,omitempty"`             // that failed since
	Error     string    `json:"error,omitempty"`                // of the last one
}

// Pending says that there is something to extract.
func (s *Status) Pending() bool { return !s.Extracted.Equal(s.Updated) }

// loadIndex reads the index. One that an agent has damaged is made anew of the rollouts.
func (m *Memory) loadIndex(ctx context.Context) (*index, error) {
	ix := &index{Version: version, Rollouts: map[string]*Status{}}
	text, ok, err := m.read(ctx, m.Layout.index())
	if err != nil {
		return nil, err
	}
	if ok && json.Unmarshal(text, ix) == nil && ix.Version == version && !slices.Contains(values(ix.Rollouts), nil) {
		if ix.Rollouts == nil {
			ix.Rollouts = map[string]*Status{}
		}
		return ix, nil
	}
	if ok && ix.Version > version {
		return nil, errs.New(errs.VersionMismatch, "%s is of a newer berth", m.Layout.index())
	}
	ix = &index{Version: version, Rollouts: map[string]*Status{}}
	return ix, m.rebuild(ctx, ix)
}

func values(all map[string]*Status) []*Status {
	var out []*Status
	for _, s := range all {
		out = append(out, s)
	}
	return out
}

// rebuild finds out from the files what is known of the rollouts.
func (m *Memory) rebuild(ctx context.Context, ix *index) error {
	names, err := m.list(ctx, m.Layout.Sessions)
	if err != nil {
		return err
	}
	for _, name := range names {
		file, isRollout := strings.CutSuffix(name, ".jsonl")
		if !isRollout || strings.Contains(file, "/") {
			continue
		}
		s := &Status{Runs: map[string]int{}}
		if err := m.segments(ctx, file, func(seg *Segment) {
			s.ID, s.Updated, s.Terminal = seg.RolloutID, seg.UpdatedAt, seg.Terminal.State
			s.Runs[seg.Run] = max(s.Runs[seg.Run], seg.To)
		}); err != nil {
			return err
		}
		if s.ID == "" {
			continue
		}
		if raw, ok, err := m.rawMemory(ctx, file); err != nil {
			return err
		} else if ok {
			s.Extracted, s.Summary = raw.Updated, raw.Summary
		}
		ix.Rollouts[file] = s
	}
	return nil
}

func (m *Memory) saveIndex(ctx context.Context, ix *index) error {
	return m.writeJSON(ctx, m.Layout.index(), ix)
}

// List tells what is known of the rollouts, by the names of their files.
func (m *Memory) List(ctx context.Context) (map[string]*Status, error) {
	ix, err := m.loadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return ix.Rollouts, nil
}

// Show gives what the agent is told and its handbook, or what there is of one rollout.
func (m *Memory) Show(ctx context.Context, rollout string) (string, error) {
	names := []string{m.Layout.summary(), m.Layout.handbook()}
	if rollout != "" {
		ix, err := m.loadIndex(ctx)
		if err != nil {
			return "", err
		}
		name, s, err := ix.find(rollout)
		if err != nil {
			return "", err
		}
		names = []string{m.Layout.raw(name)}
		if s.Summary != "" {
			names = append(names, path.Join(m.Layout.summaries(), path.Base(s.Summary)))
		}
	}
	var b strings.Builder
	for _, name := range names {
		text, ok, err := m.read(ctx, name)
		if err != nil {
			return "", err
		}
		if ok {
			b.WriteString("== " + name + "\n\n" + strings.TrimRight(string(text), "\n") + "\n\n")
		}
	}
	return b.String(), nil
}

// find gives a rollout by the name of its files, or by the id that it has.
func (ix *index) find(name string) (string, *Status, error) {
	for _, n := range []string{name, SafeID(name)} {
		if s := ix.Rollouts[n]; s != nil {
			return n, s, nil
		}
	}
	return "", nil, errs.New(errs.InvalidArgument, "there is no memory of %q", name).WithHint("berth memory list shows those that there are")
}

// Forget removes a rollout and what was extracted from it; what the handbook has of it goes when it is merged next. The
// name is that of its files, or the id that it has.
func (m *Memory) Forget(ctx context.Context, name string) error {
	ix, err := m.loadIndex(ctx)
	if err != nil {
		return err
	}
	name, s, err := ix.find(name)
	if err != nil {
		return err
	}
	files := []string{m.Layout.raw(name), m.Layout.rollout(name)}
	if s.Summary != "" {
		files = append(files, path.Join(m.Layout.summaries(), path.Base(s.Summary)))
	}
	for _, file := range files {
		if err := m.remove(ctx, file); err != nil {
			return err
		}
	}
	delete(ix.Rollouts, name)
	return m.saveIndex(ctx, ix)
}

// Clear removes everything.
func (m *Memory) Clear(ctx context.Context) error {
	for _, dir := range []string{m.Layout.Memories, m.Layout.Sessions} {
		if err := m.Files.Remove(ctx, dir, true, m.User); err != nil && !errors.Is(err, errs.FileNotFound) {
			return err
		}
	}
	return nil
}

// header writes and reads the lines before the text of a file.
func header(fields [][2]string, text string) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "%s: %s\n", f[0], strings.Join(strings.Fields(f[1]), " "))
	}
	return b.String() + "\n" + strings.TrimSpace(text) + "\n"
}

func parseHeader(text []byte) (fields map[string]string, rest string) {
	fields = map[string]string{}
	head, body, _ := bytes.Cut(text, []byte("\n\n"))
	for line := range strings.Lines(string(head)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			fields[k] = v
		}
	}
	return fields, string(body)
}
