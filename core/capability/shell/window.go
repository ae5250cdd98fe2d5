// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"bytes"
	"sync"
	"time"
	"unicode/utf8"
)

// window holds what a process wrote since it was last looked at: the head and the tail, never more.
type window struct {
	headMax, tailMax int
	now              func() time.Time

	mu      sync.Mutex
	head    []byte        // guarded by mu
	tail    []byte        // guarded by mu; a ring once it is full
	at      int           // guarded by mu; the ring's oldest byte
	dropped uint64        // guarded by mu
	lines   uint64        // guarded by mu
	total   uint64        // guarded by mu; over the whole life
	last    time.Time     // guarded by mu; when something was written
	prompt  bool          // guarded by mu; the output does not end with a newline
	news    chan struct{} // guarded by mu; closed at the next write
}

func newWindow(headMax, tailMax int, now func() time.Time) *window {
	return &window{headMax: headMax, tailMax: tailMax, now: now, news: make(chan struct{})}
}

// Write never fails and never blocks.
func (w *window) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	w.total += uint64(n)
	w.lines += uint64(bytes.Count(p, []byte{'\n'}))
	w.prompt = p[n-1] != '\n'
	w.last = w.now()
	close(w.news)
	w.news = make(chan struct{})
	if room := w.headMax - len(w.head); room > 0 && len(w.tail) == 0 {
		k := min(room, len(p))
		w.head = append(w.head, p[:k]...)
		p = p[k:]
	}
	w.writeTail(p)
	return n, nil
}

func (w *window) writeTail(p []byte) {
	if over := len(p) - w.tailMax; over > 0 {
		w.dropped += uint64(over + len(w.tail))
		w.tail, w.at = append(w.tail[:0], p[over:]...), 0
		return
	}
	if room := w.tailMax - len(w.tail); room > 0 {
		k := min(room, len(p))
		w.tail = append(w.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(w.tail[w.at:], p)
		w.dropped += uint64(k)
		w.at = (w.at + k) % w.tailMax
		p = p[k:]
	}
}

// content is what take gives.
type content struct {
	head, tail     string
	dropped, lines uint64
}

// take empties the window. Unless the process has ended, a character that is not complete yet stays for the next time.
func (w *window) take(ended bool) content {
	w.mu.Lock()
	defer w.mu.Unlock()
	tail := append(append(make([]byte, 0, len(w.tail)), w.tail[w.at:]...), w.tail[:w.at]...)
	c := content{dropped: w.dropped, lines: w.lines}
	var rest []byte
	if !ended {
		if len(tail) > 0 {
			tail, rest = splitIncomplete(tail)
		} else {
			w.head, rest = splitIncomplete(w.head)
		}
	}
	if w.prompt && w.total > 0 && len(w.head)+len(tail) > 0 {
		c.lines++ // a last line without newline
	}
	c.head, c.tail = toText(w.head), toText(tail)
	w.head, w.tail, w.at, w.dropped, w.lines = append([]byte(nil), rest...), nil, 0, 0, 0
	return c
}

// splitIncomplete cuts off the beginning of a character at the end of b.
func splitIncomplete(b []byte) (whole, rest []byte) {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if i := len(b) - n; utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i], b[i:]
			}
			break
		}
	}
	return b, nil
}

func toText(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// wait gives a channel that is closed at the next write, when the last write was, and whether it left a prompt.
func (w *window) wait() (news <-chan struct{}, last time.Time, prompt bool, pending bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.news, w.last, w.prompt, len(w.head) > 0
}

func (w *window) written() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}
