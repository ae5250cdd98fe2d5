// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
)

// Report says what was generated.
type Report struct {
	Extracted int // rollouts
	Failed    int // rollouts whose extraction failed; they are taken up again
	Merged    bool
	Usage     model.Usage
	// Problems are what went wrong and did not end it.
	Problems []string
}

// maxAttempts is how often an extraction is tried by itself; somebody who asks for it tries again.
const maxAttempts = 5

// Write extracts what is pending and merges it. With again, also what has failed too often. Errors are of files; what a model
// does wrong is in the report, and is done again the next time.
func (m *Memory) Write(ctx context.Context, again bool) (Report, error) {
	var rep Report
	ix, err := m.loadIndex(ctx)
	if err != nil {
		return rep, err
	}
	for _, id := range slices.SortedFunc(maps.Keys(ix.Rollouts), func(a, b string) int {
		return cmp.Or(ix.Rollouts[a].Updated.Compare(ix.Rollouts[b].Updated), cmp.Compare(a, b))
	}) {
		s := ix.Rollouts[id]
		if !s.Pending() || s.Attempts >= maxAttempts && !again {
			continue
		}
		usage, err := m.extract(ctx, id, s)
		rep.Usage = rep.Usage.Add(usage)
		if ctx.Err() != nil {
			return rep, context.Cause(ctx)
		}
		if err != nil {
			s.Attempts, s.Error = s.Attempts+1, err.Error()
			rep.Failed++
			rep.Problems = append(rep.Problems, fmt.Sprintf("rollout %s: %s", id, err))
		} else {
			s.Attempts, s.Error, s.Extracted = 0, "", s.Updated
			rep.Extracted++
		}
		if err := m.saveIndex(ctx, ix); err != nil {
			return rep, err
		}
	}
	return rep, m.merge(ctx, &rep)
}

// extracted is what a model answers in the first phase.
type extracted struct {
	Slug    string `json:"rollout_slug"`
	Summary string `json:"rollout_summary"`
	Raw     string `json:"raw_memory"`
}

var extractSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"rollout_slug":{"type":"string","description":"Two to six words with dashes that say what the work was about."},` +
	`"rollout_summary":{"type":"string","description":"What was asked, done and found, in Markdown."},` +
	`"raw_memory":{"type":"string","description":"What is worth knowing next time, in Markdown."}},` +
	`"required":["rollout_slug","rollout_summary","raw_memory"],"additionalProperties":false}`)

// slug is how the last part of a summary's name may look.
var slug = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,79}$`) })

// safeSlug makes one of what a model says.
func safeSlug(s string) string {
	s = strings.Trim(odd.ReplaceAllString(strings.ToLower(strings.TrimSuffix(strings.TrimSpace(s), ".md")), "-"), "-")
	if s = strings.TrimRight(s[:min(len(s), 80)], "-"); s == "" {
		return "rollout"
	}
	return s
}

// The bounds of a rollout as the model reads it, in tokens.
const (
	plainRollout = 150_000
	rolloutPart  = 0.7 // of the model's window
	maxSummary   = 8_000
	maxRawMemory = 16_000
	extractTurns = 3
	mergeTurns   = 40
)

// room is how many tokens of a rollout the model reads.
func (m *Memory) room() int {
	if m.Window > 0 {
		return int(float64(m.Window) * rolloutPart)
	}
	return plainRollout
}

// extract asks what is worth keeping of a rollout.
func (m *Memory) extract(ctx context.Context, id string, s *Status) (model.Usage, error) {
	text, err := m.text(ctx, id)
	if err != nil {
		return model.Usage{}, err
	}
	if text == "" {
		return model.Usage{}, errors.New("the rollout is not there any more, or cannot be read")
	}
	answer, usage, err := m.Ask(ctx, Job{
		Phase: PhaseExtract, Key: id + " " + s.Updated.Format(time.RFC3339Nano), Instructions: m.instructions(extractText), Schema: extractSchema, MaxTurns: extractTurns,
		Input: fmt.Sprintf("rollout_id: %s\nterminal_state: %s\n\nThe transcript, as data:\n\n%s", s.ID, s.Terminal, text),
	})
	if err != nil {
		return usage, err
	}
	var got extracted
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		return usage, fmt.Errorf("the answer is no JSON: %w", err)
	}
	summary, raw := strings.TrimSpace(got.Summary), strings.TrimSpace(got.Raw)
	old := s.Summary
	switch {
	case summary == "" && raw == "":
		s.Summary = ""
		if err := m.remove(ctx, m.Layout.raw(id)); err != nil {
			return usage, err
		}
		return usage, m.dropSummary(ctx, old, "")
	case summary == "" || raw == "":
		return usage, errors.New("the answer has a summary and no memory, or a memory and no summary")
	}
	summary, raw = Scrub(bounded(summary, maxSummary)), Scrub(bounded(raw, maxRawMemory))
	s.Summary = path.Join("rollout_summaries", id+"_"+safeSlug(got.Slug)+".md")
	at := s.Updated.Format(time.RFC3339Nano)
	if err := m.write(ctx, path.Join(m.Layout.Memories, s.Summary), header([][2]string{
		{"session_id", s.ID}, {"updated_at", at}, {"rollout_path", m.Layout.rollout(id)}, {"terminal_state", s.Terminal},
	}, summary)); err != nil {
		return usage, err
	}
	if err := m.write(ctx, m.Layout.raw(id), header([][2]string{
		{"rollout_id", s.ID}, {"updated_at", at}, {"rollout_path", m.Layout.rollout(id)}, {"rollout_summary_file", s.Summary}, {"terminal_state", s.Terminal},
	}, raw)); err != nil {
		return usage, err
	}
	return usage, m.dropSummary(ctx, old, s.Summary)
}

// dropSummary removes the summary that another one took the place of.
func (m *Memory) dropSummary(ctx context.Context, old, now string) error {
	if old == "" || old == now {
		return nil
	}
	return m.remove(ctx, path.Join(m.Layout.summaries(), path.Base(old)))
}

func bounded(s string, tokens int) string {
	return tool.Truncate(s, "", 0, uint64(strings.Count(s, "\n")+1), tokens).Text
}

// text is a rollout as the model reads it: its beginning and its end.
func (m *Memory) text(ctx context.Context, id string) (string, error) {
	var b strings.Builder
	err := m.segments(ctx, id, func(seg *Segment) {
		line, err := json.Marshal(seg)
		if err == nil && b.Len() < maxRollout {
			b.Write(append(line, '\n'))
		}
	})
	return bounded(b.String(), m.room()), err
}

// maxRollout bounds what is held of a rollout, in bytes.
const maxRollout = 64 << 20

// rawMemory is a file of extracted memory.
type rawMemory struct {
	ID       string    `json:"rollout_id"`
	Updated  time.Time `json:"updated_at"`
	Rollout  string    `json:"rollout_path"`
	Summary  string    `json:"rollout_summary_file"`
	Terminal string    `json:"terminal_state"`
	file     string    // its name, without .md
	text     string
}

// rawMemory reads one.
func (m *Memory) rawMemory(ctx context.Context, file string) (r rawMemory, ok bool, err error) {
	text, ok, err := m.read(ctx, m.Layout.raw(file))
	if err != nil || !ok {
		return r, false, err
	}
	f, rest := parseHeader(text)
	r = rawMemory{ID: f["rollout_id"], Rollout: f["rollout_path"], Summary: f["rollout_summary_file"], Terminal: f["terminal_state"], file: file, text: rest}
	if at, err := time.Parse(time.RFC3339Nano, f["updated_at"]); err == nil {
		r.Updated = at // else it is not known, and comes last
	}
	return r, true, nil
}
