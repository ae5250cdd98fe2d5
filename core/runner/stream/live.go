// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"
	"unicode/utf8"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/tool"
)

// Output turns the parts of a running call's output into events. A character that is split over two parts is held
// back until it is whole.
type Output struct {
	callID string
	send   func(event.Data)

	mu   sync.Mutex
	rest []byte // guarded by mu: the start of a character
}

// NewOutput makes one for a call.
func NewOutput(callID string, send func(event.Data)) *Output {
	return &Output{callID: callID, send: send}
}

// Add takes a part.
func (l *Output) Add(p tool.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := append(l.rest, p.Output...)
	whole := len(out) - splitTail(out)
	l.rest = append([]byte(nil), out[whole:]...)
	if whole > 0 || p.Note != "" {
		l.send(event.ToolOutput{CallID: l.callID, Text: string(out[:whole]), Note: p.Note})
	}
}

// End sends what was held back.
func (l *Output) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.send(event.ToolOutput{CallID: l.callID, Text: string(l.rest)})
		l.rest = nil
	}
}

// splitTail is the length of the unfinished character at the end of a text.
func splitTail(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
