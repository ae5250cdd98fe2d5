// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Segment is a line of a rollout: a run, or what a run added after it was gone on with.
type Segment struct {
	UpdatedAt time.Time         `json:"updated_at"`
	RolloutID string            `json:"rollout_id"`
	Run       string            `json:"run"`
	From      int               `json:"from"` // of the run's items
	To        int               `json:"to"`
	Input     []json.RawMessage `json:"input"`
	Generated []json.RawMessage `json:"generated_items"`
	Waiting   []string          `json:"interruptions,omitempty"` // tools that a decision is waited for
	Terminal  Terminal          `json:"terminal_metadata"`
	Output    string            `json:"final_output,omitempty"`
}

// Terminal says how a run ended.
type Terminal struct {
	State   string `json:"terminal_state"`
	Type    string `json:"exception_type,omitempty"`
	Message string `json:"exception_message,omitempty"`
	Output  bool   `json:"has_final_output"`
}

// Part is what a run gives to its rollout.
type Part struct {
	Rollout string // its id, any text
	Run     string
	Items   []model.Item // of the run, all of its own
	State   run.State
	Output  string
}

// plainID are the ids that name files as they are.
var plainID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`) })

// madeID are those that SafeID makes.
var madeID = regexp.MustCompile(`-x[0-9a-f]{16}$`)

var odd = regexp.MustCompile(`[^A-Za-z0-9]+`)

// SafeID makes a name for files of an id: the id itself where it can be one, else what is legible of it and a hash. No two
// ids get one name.
func SafeID(id string) string {
	if plainID().MatchString(id) && !madeID.MatchString(id) && !strings.HasSuffix(id, ".") {
		return id
	}
	legible := strings.Trim(odd.ReplaceAllString(id, "-"), "-")
	if len(legible) > 60 {
		legible = strings.TrimRight(legible[:60], "-")
	}
	if legible == "" {
		legible = "id"
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s-x%x", legible, sum[:8])
}

// Capture puts at the end of a rollout what a run has that is not there yet. It reports whether there was anything.
func (m *Memory) Capture(ctx context.Context, p Part) (bool, error) {
	ix, err := m.loadIndex(ctx)
	if err != nil {
		return false, err
	}
	id := SafeID(p.Rollout)
	s := ix.Rollouts[id]
	if s == nil {
		s = &Status{ID: p.Rollout}
		ix.Rollouts[id] = s
	}
	if s.Runs == nil {
		s.Runs = map[string]int{}
	}
	from := s.Runs[p.Run]
	seg := segment(p, from, m.Now())
	if from >= len(p.Items) {
		return false, nil
	}
	line, err := json.Marshal(seg)
	if err != nil {
		return false, err
	}
	_, err = m.Files.Write(ctx, m.Layout.rollout(id), driver.WriteOptions{Parents: true, Append: true, User: m.User}, bytes.NewReader(append(line, '\n')))
	if err != nil {
		return false, err
	}
	// When the process ends here, the line is there twice, and read once.
	s.Updated, s.Terminal, s.Attempts, s.Error = seg.UpdatedAt, seg.Terminal.State, 0, ""
	s.Runs[p.Run] = len(p.Items)
	return true, m.saveIndex(ctx, ix)
}

// segment makes a line of a rollout.
func segment(p Part, from int, now time.Time) *Segment {
	seg := &Segment{
		UpdatedAt: now.UTC().Truncate(time.Millisecond), RolloutID: p.Rollout, Run: p.Run, From: from, To: len(p.Items),
		Input: []json.RawMessage{}, Generated: []json.RawMessage{}, Terminal: terminal(&p.State, p.Output), Output: Scrub(p.Output),
	}
	for i := range p.State.Calls {
		if c := &p.State.Calls[i]; c.Stage == run.StageAsk {
			seg.Waiting = append(seg.Waiting, c.Name)
		}
	}
	for i, it := range p.Items {
		if i < from || !kept(it) {
			continue
		}
		raw := shorten(it)
		if it.Role() == "user" && len(seg.Generated) == 0 {
			seg.Input = append(seg.Input, raw)
		} else {
			seg.Generated = append(seg.Generated, raw)
		}
	}
	return seg
}

// kept leaves out what is no part of what was said and done.
func kept(it model.Item) bool {
	switch it.Type {
	case model.ItemReasoning, model.ItemCompaction, "image_generation_call":
		return false
	case model.ItemMessage:
		role := it.Role()
		return role != "developer" && role != "system"
	default:
		return true
	}
}

func terminal(s *run.State, output string) Terminal {
	t := Terminal{State: string(s.Status), Output: output != ""}
	switch s.Status {
	case run.Paused:
		t.State = "interrupted"
	case run.Running:
		t.State, t.Type, t.Message = "interrupted", "process_ended", "the process ended before the run did"
	case run.MaxTurns:
		t.State = "max_turns_exceeded"
	case run.Budget:
		t.State = "budget_exceeded"
	case run.Completed, run.Failed, run.Cancelled:
	}
	if s.Stop != nil && s.Stop.Error != nil {
		t.Type, t.Message = s.Stop.Error.Code, Scrub(s.Stop.Error.Message)
		if strings.HasPrefix(t.Type, "guardrail") {
			t.State = "guardrail_tripped"
		}
	}
	return t
}

// maxText bounds the text of one item, in tokens.
const maxText = 8000

// shorten gives an item without secrets, its text bounded.
func shorten(it model.Item) json.RawMessage {
	raw := Scrub(string(it.WithoutID().Raw))
	if len(raw) > maxText*4 {
		text := it.Text()
		if text == "" {
			text = string(it.Raw)
		}
		short := map[string]any{
			"type": it.Type, "text": Scrub(tool.Truncate(text, "", 0, uint64(strings.Count(text, "\n")+1), maxText).Text),
		}
		if role := it.Role(); role != "" {
			short["role"] = role
		}
		if call := it.CallID(); call != "" {
			short["call_id"] = call
		}
		if b, err := json.Marshal(short); err == nil {
			return b
		}
	}
	if !json.Valid([]byte(raw)) { // a pattern took a piece of the syntax along
		b, _ := json.Marshal(raw) // a string always can be
		return b
	}
	return json.RawMessage(raw)
}

// secrets are texts that look like credentials.
var secrets = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.Join([]string{
		`\b(?:sk|rk|pk)-[a-z0-9_-]{20,}`, `\bgh[pousr]_[a-z0-9]{30,}`, `\bgithub_pat_[a-z0-9_]{30,}`, `\bglpat-[a-z0-9_-]{20,}`,
		`\bxox[abprs]-[a-z0-9-]{10,}`, `\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`, `\bAIza[a-z0-9_-]{35}`, `\beyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}`,
		`-----BEGIN [A-Z ]*PRIVATE KEY-----[^"]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`,
		`(?:bearer|basic) [a-z0-9+/=._~-]{16,}`,
	}, "|"))
})

// Scrub takes out what looks like a credential. It is a net, not a wall.
func Scrub(s string) string { return secrets().ReplaceAllString(s, "[redacted]") }

// maxLine bounds a line of a rollout that is read.
const maxLine = 64 << 20

// segments reads a rollout. A line that is there twice is given once, one that is torn or no segment is left out: agents
// can write here.
func (m *Memory) segments(ctx context.Context, id string, f func(*Segment)) error {
	_, r, err := m.Files.Open(ctx, m.Layout.rollout(id), driver.ReadOptions{User: m.User})
	if errors.Is(err, errs.FileNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		var seg Segment
		key := ""
		if json.Unmarshal(sc.Bytes(), &seg) == nil && seg.Run != "" {
			key = fmt.Sprint(seg.Run, " ", seg.From)
		}
		if key != "" && !seen[key] {
			seen[key] = true
			f(&seg)
		}
	}
	return errors.Join(sc.Err(), r.Close())
}
