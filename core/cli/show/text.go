// SPDX-License-Identifier: Apache-2.0

package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/value"
)

// TextOptions are for [Text].
type TextOptions struct {
	Live  bool // a terminal: a last line tells what goes on, and is written over
	Color bool
	Width int // columns; 0 = 100
	// Asks says that whoever asks a person about a call shows the call.
	Asks bool
	// Ticks redraw the last line of a terminal, so that its clock goes on while nothing happens; nil = it stands still.
	Ticks <-chan time.Time
}

const (
	tailLines  = 5  // of a command's output
	patchLines = 12 // of a patch
	mostTail   = 16 << 10
)

// Text shows events to a person.
func Text(w io.Writer, o TextOptions) Shower {
	if o.Width == 0 {
		o.Width = 100
	}
	s := &textShower{w: w, o: o, calls: map[string]*call{}, over: make(chan struct{}), ended: make(chan struct{})}
	if !o.Live || o.Ticks == nil {
		close(s.ended)
		return s
	}
	go func() {
		defer close(s.ended)
		s.tick()
	}()
	return s
}

type textShower struct {
	w           io.Writer
	o           TextOptions
	over, ended chan struct{} // of the ticks

	mu    sync.Mutex // guards what follows
	out   bytes.Buffer
	began time.Time
	usage model.Usage
	calls map[string]*call
	head  string // the call whose first line was written last
	live  string // the live line that stands
	note  string // of the live line
	text  strings.Builder
	held  int // how often what there is to write is held back
}

// call is a tool call that runs.
type call struct {
	tool, what string
	patch      []string
	tail       []string
	rest       string // of an unfinished line
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

func (s *textShower) paint(color, text string) string {
	if !s.o.Color || text == "" {
		return text
	}
	return color + text + plain
}

// line writes a line for good.
func (s *textShower) line(format string, args ...any) {
	s.clear()
	fmt.Fprintf(&s.out, format+"\n", args...)
}

func (s *textShower) clear() {
	if s.live != "" {
		s.out.WriteString("\r\x1b[K")
		s.live = ""
	}
}

// flush writes what one event brought in one piece, so that nothing flickers.
func (s *textShower) flush() {
	if s.out.Len() > 0 && s.held == 0 {
		_, _ = s.w.Write(s.out.Bytes()) // who does not read does not see
		s.out.Reset()
	}
}

// moment shows what goes on now.
func (s *textShower) moment(at time.Time) {
	if !s.o.Live || s.note == "" || s.held > 0 {
		return
	}
	text := fmt.Sprintf("%s  %s tokens  %s", clock(at.Sub(s.began)), Count(s.usage.TotalTokens), s.note)
	text = s.paint(dim, clip(text, s.o.Width-1))
	if text == s.live {
		return
	}
	if s.live != "" {
		s.out.WriteString("\r")
	}
	s.out.WriteString(text + "\x1b[K")
	s.live = text
}

func (s *textShower) tick() {
	for {
		select {
		case at := <-s.o.Ticks:
			s.mu.Lock()
			if s.live != "" {
				s.moment(at)
				s.flush()
			}
			s.mu.Unlock()
		case <-s.over:
			return
		}
	}
}

func (s *textShower) Close() {
	close(s.over)
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.flush()
}

// Event shows one event.
func (s *textShower) Event(ev event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.flush()
	if s.began.IsZero() {
		s.began = ev.Time
	}
	if s.show(ev) {
		s.moment(ev.Time)
	}
}

// show writes an event's lines and reports whether the run goes on.
func (s *textShower) show(ev event.Event) bool {
	switch d := ev.Data.(type) {
	case event.RunStarted:
		verb := "started"
		if d.Resumed {
			verb = "goes on"
		}
		s.line("%s %s: agent %s, model %s", s.paint(bold, "run "+ev.RunID), verb, ev.Agent, d.Model)
	case event.SandboxProgress:
		s.note = "sandbox: " + strings.TrimSpace(d.Phase+" "+d.Message)
		if !s.o.Live && d.Message != "" {
			s.line("  %s %s", d.Phase, d.Message)
		}
	case event.SandboxReady:
		s.ready(d)
	case event.SandboxLost:
		s.line("%s sandbox lost: %s; finding it again", s.paint(red, "!"), d.Reason)
	case event.SandboxEnded:
		s.line("%s", s.paint(dim, "sandbox "+d.Outcome))
		s.note = ""
	case event.Warning:
		s.line("%s %s", s.paint(red, "warning:"), d.Message)
		if d.Hint != "" {
			s.line("hint: %s", d.Hint)
		}
	case event.AgentChanged:
		s.line("%s", s.paint(bold, "agent "+oneLine(d.To))+" takes over from "+oneLine(d.From))
	case event.Compacted:
		s.line("%s", s.paint(dim, fmt.Sprintf("the conversation was shortened: %s tokens became a summary", Count(d.Tokens))))
	case event.MemoryWritten:
		s.line("%s", s.paint(dim, fmt.Sprintf("memory of %s: %d looked at, %d failed, %s tokens", oneLine(d.Agent), d.Rollouts, d.Failed, Count(d.Usage.TotalTokens))))
	case event.GuardrailAsked:
		if d.Tripped {
			s.line("%s guardrail %s tripped", s.paint(red, "!"), oneLine(d.Guardrail))
		}
	case event.TurnStarted:
		s.note = fmt.Sprintf("turn %d: the model thinks", ev.Turn)
		s.text.Reset()
	case event.ModelDelta:
		s.text.WriteString(d.Text)
		if text := lastLine(s.text.String()); text != "" {
			s.note = fmt.Sprintf("turn %d: %s", ev.Turn, text)
		}
	case event.ModelRetry:
		s.text.Reset()
		s.line("%s the model call failed (attempt %d), again in %s: %s", s.paint(red, "!"), d.Attempt, value.Duration(d.After), d.Error)
	case event.ModelDone:
		s.usage = s.usage.Add(d.Usage)
		if text := strings.TrimSpace(d.Text); text != "" && d.ToolCalls > 0 {
			s.line("%s", Lines(text))
		}
	case event.ToolStarted:
		c := &call{tool: oneLine(d.Tool), what: oneLine(summary(d.Arguments)), patch: patchBody(d.Arguments)}
		s.calls[d.CallID] = c
		s.note = c.tool + " " + c.what
		if !s.o.Live {
			s.heading(d.CallID, c)
		}
	case event.ToolOutput:
		if c := s.calls[d.CallID]; c != nil {
			c.add(d.Text)
			if s.note = c.tool + " " + c.what; c.last() != "" {
				s.note = c.tool + " | " + c.last()
			}
		}
	case event.ToolFinished:
		s.finished(d)
	case event.ApprovalWanted:
		s.note = "waiting for an answer about " + oneLine(d.Tool)
		if !s.o.Asks {
			s.line("%s", Question(d.Tool, string(d.Arguments), d.Reason, d.Unsure))
		}
	case event.ApprovalDecided:
		s.decided(d)
	case event.RunFinished:
		s.clear()
		s.note = ""
		return false
	}
	return true
}

func (s *textShower) decided(d event.ApprovalDecided) {
	word := s.paint(red, "rejected")
	if d.Allow {
		word = s.paint(green, "approved")
	}
	by, more := "", ""
	if d.By != "" {
		by = " (" + oneLine(d.By) + ")"
	}
	if d.Covers != "" {
		more = ", and for this run " + oneLine(d.Covers)
	}
	if d.Message != "" {
		more += ": " + oneLine(d.Message)
	}
	s.line("%s %s%s%s", word, oneLine(d.Tool), by, more)
}

// Hold writes a text and holds the live line back.
func (s *textShower) Hold(text string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == 0 {
		s.clear()
		s.flush()
	}
	_, _ = io.WriteString(s.w, text) // who does not read does not see
	s.held++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
		s.flush()
	}
}

func (s *textShower) ready(d event.SandboxReady) {
	s.note = ""
	verb := "ready"
	if d.Reattached {
		verb = "found again"
	}
	s.line("%s %s: driver %s, workspace %s", s.paint(bold, "sandbox"), verb, d.Driver, d.Root)
	width := 0
	for _, i := range d.Isolation {
		width = max(width, len(i.Axis))
	}
	for _, i := range d.Isolation {
		s.line("  %s  %s", s.paint(dim, fmt.Sprintf("%-*s", width, strings.ReplaceAll(i.Axis, "_", " "))), i.Statement)
		if i.Gap != "" {
			s.line("  %*s  %s", width, "", s.paint(dim, "not stronger: "+i.Gap))
		}
	}
	for _, p := range d.Ports {
		s.line("  %s  %s", s.paint(dim, fmt.Sprintf("%-*s", width, fmt.Sprintf("port %d", p.Port))), p.URL)
	}
}

func (s *textShower) finished(d event.ToolFinished) {
	c := s.calls[d.CallID]
	delete(s.calls, d.CallID)
	if c == nil {
		c = &call{tool: d.Tool}
	}
	if s.head != d.CallID {
		s.heading(d.CallID, c)
	}
	for _, l := range c.lines() {
		s.line("  %s", s.paint(dim, clip(l, s.o.Width-2)))
	}
	if d.OK {
		s.patch(c.patch)
	}
	mark, color, text := "ok", green, d.Summary
	if !d.OK {
		mark, color = "failed", red
		if text == "" {
			text = d.Code
		}
	}
	s.line("  %s %s", s.paint(color, mark), clip(oneLine(text), s.o.Width-3-len(mark)))
	s.note = ""
	for _, c := range s.calls { // another one still runs
		s.note = c.tool + " " + c.what
	}
}

// patch shows what a patch has changed.
func (s *textShower) patch(body []string) {
	shown := body[:min(len(body), patchLines)]
	for _, l := range shown {
		color := dim
		switch l[0] {
		case '+':
			color = green
		case '-':
			color = red
		}
		s.line("  %s", s.paint(color, clip(printable(l), s.o.Width-2)))
	}
	if more := len(body) - len(shown); more > 0 {
		s.line("  %s", s.paint(dim, fmt.Sprintf("… %d more lines", more)))
	}
}

// heading names a call. What follows it belongs to it, so it is repeated where calls run side by side.
func (s *textShower) heading(id string, c *call) {
	s.line("%s %s", s.paint(bold, "> "+c.tool), clip(c.what, s.o.Width-len(c.tool)-3))
	s.head = id
}

func (c *call) add(text string) {
	lines := strings.Split(c.rest+text, "\n")
	c.rest = lines[len(lines)-1]
	if over := len(c.rest) - mostTail; over > 0 {
		c.rest = strings.ToValidUTF8(c.rest[over:], "")
	}
	c.tail = append(c.tail, lines[:len(lines)-1]...)
	if over := len(c.tail) - tailLines; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
}

func (c *call) lines() []string {
	out := slices.Clone(c.tail)
	if c.rest != "" {
		out = append(out, c.rest)
	}
	if over := len(out) - tailLines; over > 0 {
		out = out[over:]
	}
	for i, l := range out {
		out[i] = printable(l)
	}
	return out
}

func (c *call) last() string {
	if l := c.lines(); len(l) > 0 {
		return l[len(l)-1]
	}
	return ""
}

// summary is the part of a call's arguments that tells a person what it is about.
func summary(arguments string) string {
	var m map[string]any
	if json.Unmarshal([]byte(arguments), &m) != nil {
		return patchFiles(arguments)
	}
	for _, k := range []string{"cmd", "path", "chars", "patch", "input"} {
		if v, ok := m[k].(string); ok && v != "" {
			if k == "patch" || k == "input" {
				return patchFiles(v)
			}
			return v
		}
	}
	return arguments
}

// patchBody gives the lines that a patch changes.
func patchBody(arguments string) (body []string) {
	var m struct{ Patch, Input string }
	if json.Unmarshal([]byte(arguments), &m) == nil {
		arguments = m.Patch + m.Input
	}
	if !strings.HasPrefix(strings.TrimSpace(arguments), "*** Begin Patch") {
		return nil
	}
	for l := range strings.Lines(arguments) {
		l = strings.TrimRight(l, "\r\n")
		if strings.HasPrefix(l, "+") || strings.HasPrefix(l, "-") || strings.HasPrefix(l, "@@ ") {
			body = append(body, l)
		}
	}
	return body
}

// patchFiles names the files of a patch.
func patchFiles(patch string) string {
	var files []string
	for l := range strings.Lines(patch) {
		for _, mark := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: "} {
			if f, ok := strings.CutPrefix(strings.TrimSpace(l), mark); ok {
				files = append(files, f)
			}
		}
	}
	if files == nil {
		return patch
	}
	return strings.Join(files, " ")
}

// clock is a time that goes on: in whole seconds, so that it does not jump about.
func clock(d time.Duration) string { return d.Truncate(time.Second).String() }

// Count is a number for people.
func Count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
