// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// selection is what the handbook was made of.
type selection struct {
	Version  int         `json:"version"`
	Updated  time.Time   `json:"updated_at"`
	Selected []rawMemory `json:"selected"`
}

// merged is what a model answers in the second phase.
type merged struct {
	Handbook string        `json:"memory"`
	Summary  string        `json:"memory_summary"`
	Skills   []mergedSkill `json:"skills"`
	Removed  []string      `json:"removed_skills"`
}

type mergedSkill struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

var mergeSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"memory":{"type":"string","description":"The whole of MEMORY.md as it shall be."},` +
	`"memory_summary":{"type":"string","description":"The whole of memory_summary.md as it shall be."},` +
	`"skills":{"type":"array","description":"Skills that are new or changed, each with the whole of its SKILL.md.","items":{"type":"object","properties":{` +
	`"name":{"type":"string"},"content":{"type":"string"}},"required":["name","content"],"additionalProperties":false}},` +
	`"removed_skills":{"type":"array","description":"Names of skills that go.","items":{"type":"string"}}},` +
	`"required":["memory","memory_summary","skills","removed_skills"],"additionalProperties":false}`)

// The bounds of what is merged, in tokens.
const (
	maxHandbook = 60_000
	maxTold     = 15_000  // of the summary that every run is told
	maxNew      = 100_000 // of raw memories in the question; the rest is read with tools
	maxSkill    = 8_000
	maxSkills   = 50
)

// merge brings the handbook up to date with the newest raw memories, when these are others than it was made of.
func (m *Memory) merge(ctx context.Context, rep *Report) error {
	now, err := m.newest(ctx)
	if err != nil {
		return err
	}
	was, err := m.loadSelection(ctx)
	if err != nil {
		return err
	}
	same := func(a, b rawMemory) bool { return a.ID == b.ID && a.Updated.Equal(b.Updated) }
	var added, retained, removed []rawMemory
	for _, r := range now {
		if slices.ContainsFunc(was, func(o rawMemory) bool { return same(o, r) }) {
			retained = append(retained, r)
		} else {
			added = append(added, r)
		}
	}
	for _, o := range was {
		if !slices.ContainsFunc(now, func(r rawMemory) bool { return r.ID == o.ID }) {
			removed = append(removed, o)
		}
	}
	if len(added)+len(removed) == 0 {
		return nil
	}
	if len(now) == 0 { // everything was forgotten, and no model needs to be asked
		for _, name := range []string{m.Layout.handbook(), m.Layout.summary(), m.Layout.raws()} {
			if err := m.remove(ctx, name); err != nil {
				return err
			}
		}
		if err := m.Files.Remove(ctx, m.Layout.skills(), true, m.User); err != nil && !missing(err) {
			return err
		}
		rep.Merged = true
		return m.saveSelection(ctx, now)
	}
	var all strings.Builder
	for _, r := range now {
		all.WriteString("# " + r.file + "\n\n" + r.text + "\n")
	}
	if err := m.write(ctx, m.Layout.raws(), all.String()); err != nil {
		return err
	}
	problem := m.consolidate(ctx, rep, added, retained, removed)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if problem != nil {
		rep.Problems = append(rep.Problems, "merging: "+problem.Error())
		return nil // the selection is as it was: it is done again
	}
	rep.Merged = true
	return m.saveSelection(ctx, now)
}

// newest are the raw memories that count, the newest first and those whose time is not known last.
func (m *Memory) newest(ctx context.Context) ([]rawMemory, error) {
	names, err := m.list(ctx, path.Join(m.Layout.Memories, "raw_memories"))
	if err != nil {
		return nil, err
	}
	var all []rawMemory
	for _, name := range names {
		file, text := strings.CutSuffix(name, ".md")
		if !text || strings.Contains(file, "/") {
			continue
		}
		r, ok, err := m.rawMemory(ctx, file)
		if err != nil {
			return nil, err
		}
		if ok {
			r.ID = cmp.Or(r.ID, file)
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b rawMemory) int { return cmp.Or(b.Updated.Compare(a.Updated), cmp.Compare(a.file, b.file)) })
	if most := m.Generate.MaxRawMemories; most > 0 && len(all) > most {
		all = all[:most]
	}
	return all, nil
}

func (m *Memory) loadSelection(ctx context.Context) ([]rawMemory, error) {
	text, ok, err := m.read(ctx, m.Layout.selection())
	var s selection
	if err != nil || !ok || json.Unmarshal(text, &s) != nil || s.Version != version {
		return nil, err // with none, or one that an agent has damaged, everything is merged again
	}
	return s.Selected, nil
}

func (m *Memory) saveSelection(ctx context.Context, now []rawMemory) error {
	if now == nil {
		now = []rawMemory{}
	}
	return m.writeJSON(ctx, m.Layout.selection(), selection{Version: version, Updated: m.Now().UTC().Truncate(time.Millisecond), Selected: now})
}

// consolidate asks for a new handbook and writes it.
func (m *Memory) consolidate(ctx context.Context, rep *Report, added, retained, removed []rawMemory) error {
	handbook, _, err := m.read(ctx, m.Layout.handbook())
	if err != nil {
		return err
	}
	summary, _, err := m.read(ctx, m.Layout.summary())
	if err != nil {
		return err
	}
	had, err := m.skillNames(ctx)
	if err != nil {
		return err
	}
	var in strings.Builder
	fmt.Fprintf(&in, "MEMORY.md as it is:\n\n%s\n\nmemory_summary.md as it is:\n\n%s\n\nSkills: %s\n", handbook, summary, orNone(had))
	left := maxNew
	for _, r := range added {
		text := r.text
		if left -= len(text) / 4; left < 0 {
			text = "(read it: raw_memories/" + r.file + ".md)\n"
		}
		fmt.Fprintf(&in, "\nADDED %s (%s, %s):\n\n%s", r.file, r.Updated.Format(time.RFC3339), r.Terminal, text)
	}
	in.WriteString("\nRETAINED, in MEMORY.md already: " + orNone(files(retained)) + "\n")
	in.WriteString("\nREMOVED, what only these support goes: " + orNone(files(removed)) + "\n")
	key := sha256.Sum256([]byte(in.String()))
	answer, usage, err := m.Ask(ctx, Job{
		Phase: PhaseMerge, Key: fmt.Sprintf("%x", key), Instructions: m.instructions(mergeText), Input: in.String(), Schema: mergeSchema,
		Tools: m.readers(), MaxTurns: mergeTurns,
	})
	rep.Usage = rep.Usage.Add(usage)
	if err != nil {
		return err
	}
	var got merged
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	return m.put(ctx, &got)
}

// put writes what a model made of the memories, and nothing of it when a part is not as it must be.
func (m *Memory) put(ctx context.Context, got *merged) error {
	if strings.TrimSpace(got.Handbook) == "" || strings.TrimSpace(got.Summary) == "" {
		return errors.New("the answer has an empty handbook or an empty summary")
	}
	for name, text := range map[string]string{"MEMORY.md": got.Handbook, "memory_summary.md": got.Summary} {
		most := maxHandbook
		if name == "memory_summary.md" {
			most = maxTold
		}
		if len(text) > most*4 {
			return fmt.Errorf("%s would have %d bytes, at most %d are allowed", name, len(text), most*4)
		}
	}
	if len(got.Skills) > maxSkills {
		return fmt.Errorf("the answer has %d skills, at most %d are allowed", len(got.Skills), maxSkills)
	}
	for _, s := range got.Skills {
		if !slug().MatchString(s.Name) || len(s.Content) > maxSkill*4 || strings.TrimSpace(s.Content) == "" {
			return fmt.Errorf("skill %q is not named in lower case, is empty, or is larger than %d bytes", s.Name, maxSkill*4)
		}
	}
	for _, name := range got.Removed {
		if !slug().MatchString(name) {
			return fmt.Errorf("skill %q cannot be removed: it is no name of one", name)
		}
	}
	for _, s := range got.Skills {
		if err := m.write(ctx, path.Join(m.Layout.skills(), s.Name, "SKILL.md"), Scrub(s.Content)); err != nil {
			return err
		}
	}
	for _, name := range got.Removed {
		if err := m.Files.Remove(ctx, path.Join(m.Layout.skills(), name), true, m.User); err != nil && !missing(err) {
			return err
		}
	}
	if err := m.write(ctx, m.Layout.handbook(), Scrub(strings.TrimSpace(got.Handbook))+"\n"); err != nil {
		return err
	}
	return m.write(ctx, m.Layout.summary(), Scrub(strings.TrimSpace(got.Summary))+"\n")
}

// skillNames lists the skills.
func (m *Memory) skillNames(ctx context.Context) ([]string, error) {
	names, err := m.list(ctx, m.Layout.skills())
	var all []string
	for _, name := range names {
		if dir, file := path.Split(name); file == "SKILL.md" {
			all = append(all, path.Clean(dir))
		}
	}
	return all, err
}

func files(all []rawMemory) []string {
	var names []string
	for _, r := range all {
		name := r.file
		if name == "" {
			name = SafeID(r.ID)
		}
		names = append(names, name)
	}
	return names
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
