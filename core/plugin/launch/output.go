// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/value/redact"
)

const (
	lineBytes = 64 << 10 // longer lines are cut
	tailLines = 200      // kept for the report of a crash
	tailBytes = 2 << 10  // of each kept line
)

// tail keeps the last lines.
type tail struct {
	mu    sync.Mutex
	lines []string // guarded by mu; a ring once it is full
	next  int      // guarded by mu
}

func (t *tail) add(line string) {
	if len(line) > tailBytes {
		line = strings.ToValidUTF8(line[:tailBytes], "") + "…"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) < tailLines {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % tailLines
}

func (t *tail) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(append([]string(nil), t.lines[t.next:]...), t.lines[:t.next]...)
}

// relog logs each line that a driver writes, at its own level and with its own fields when it is a line of hclog.
type relog struct {
	log    hclog.Logger
	redact *redact.Set
	tail   *tail
	panics bool // the lines of a stack trace follow
}

// sibling logs to the same places, for another stream.
func (l *relog) sibling() *relog { return &relog{log: l.log, redact: l.redact, tail: l.tail} }

// drain reads until the end.
func (l *relog) drain(r io.Reader) {
	br := bufio.NewReaderSize(r, lineBytes)
	for {
		line, err := br.ReadSlice('\n')
		if len(line) > 0 {
			cut := errors.Is(err, bufio.ErrBufferFull)
			l.line(bytes.TrimRight(line, "\r\n"), cut)
			for cut && errors.Is(err, bufio.ErrBufferFull) {
				_, err = br.ReadSlice('\n')
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *relog) line(line []byte, cut bool) {
	text := l.redact.String(string(line))
	if cut {
		text += "… (the line was longer)"
	}
	if !cut && bytes.HasPrefix(line, []byte("{")) {
		if level, message, args, ok := l.structured(line); ok {
			l.tail.add(flat(level, message, args))
			l.log.Log(level, message, args...)
			return
		}
	}
	l.tail.add(text)
	l.log.Log(l.guess(text), text)
}

// lines logs what go-plugin takes from the driver's os.Stdout and os.Stderr after the handshake.
type lines struct {
	*relog
	rest []byte
}

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok && len(l.rest) < lineBytes {
			return len(p), nil
		}
		l.line(bytes.TrimRight(line, "\r"), !ok)
		l.rest = append(l.rest[:0], rest...)
	}
}

// guess gives the level of a plain line.
func (l *relog) guess(text string) hclog.Level {
	if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
		l.panics = true
	}
	if l.panics {
		return hclog.Error
	}
	if rest, ok := strings.CutPrefix(text, "["); ok {
		if word, _, ok := strings.Cut(rest, "]"); ok {
			if level := hclog.LevelFromString(word); level != hclog.NoLevel && level != hclog.Off {
				return level
			}
		}
	}
	return hclog.Debug
}

func (l *relog) structured(line []byte) (level hclog.Level, message string, args []any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return 0, "", nil, false
	}
	name, _ := fields["@level"].(string)
	message, ok = fields["@message"].(string)
	level = hclog.LevelFromString(name)
	if !ok || level == hclog.NoLevel || level == hclog.Off {
		return 0, "", nil, false
	}
	names := make([]string, 0, len(fields))
	for k := range fields {
		if !strings.HasPrefix(k, "@") {
			names = append(names, k)
		}
	}
	sort.Strings(names)
	for _, k := range names {
		args = append(args, k, l.value(fields[k]))
	}
	return level, l.redact.String(message), args, true
}

func (l *relog) value(v any) any {
	switch v := v.(type) {
	case string:
		return l.redact.String(v)
	case nil, bool, json.Number:
		return v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return l.redact.String(string(b))
	}
}

func flat(level hclog.Level, message string, args []any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", strings.ToUpper(level.String()), message)
	for i := 0; i+1 < len(args); i += 2 {
		fmt.Fprintf(&b, " %v=%v", args[i], args[i+1])
	}
	return b.String()
}

// handshakeLine reads the first line from a driver's standard output, passes it on, and logs everything after it: a
// driver that prints by mistake must not block.
func handshakeLine(r io.Reader, to *io.PipeWriter, seen func(string), l *relog) {
	br := bufio.NewReaderSize(r, 4<<10)
	line, err := br.ReadSlice('\n')
	seen(strings.TrimSpace(string(line)))
	if len(line) > 0 {
		if line[len(line)-1] != '\n' {
			line = append(bytes.Clone(line), '\n')
		}
		to.Write(line) //nolint:errcheck // a pipe in memory; its reader may be gone
	}
	to.Close()
	if err == nil || errors.Is(err, bufio.ErrBufferFull) {
		l.drain(br)
	}
}
