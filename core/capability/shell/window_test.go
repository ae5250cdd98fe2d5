// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The window against the obvious way: keep everything, cut at the end.
func TestWindowKeepsHeadAndTail(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		headMax, tailMax := 1+r.IntN(20), 1+r.IntN(20)
		w := newWindow(headMax, tailMax, time.Now)
		var all strings.Builder
		for range r.IntN(10) {
			s := strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(15))
			all.WriteString(s)
			_, _ = w.Write([]byte(s))
		}
		c := w.take(true)
		s := all.String()
		wantHead := s[:min(headMax, len(s))]
		rest := s[len(wantHead):]
		wantTail := rest[max(0, len(rest)-tailMax):]
		if c.head != wantHead || c.tail != wantTail || c.dropped != uint64(len(rest)-len(wantTail)) {
			t.Fatalf("head %d tail %d of %q: got %+v", headMax, tailMax, s, c)
		}
		if w.written() != uint64(len(s)) {
			t.Fatalf("%d bytes counted of %d", w.written(), len(s))
		}
	}
}

// A character that arrives in two parts is whole, wherever the polls fall.
func TestWindowKeepsCharactersWhole(t *testing.T) {
	text := "héllo 日本 🙂 end"
	for cut := range len(text) {
		w := newWindow(1<<10, 1<<10, time.Now)
		_, _ = w.Write([]byte(text[:cut]))
		a := w.take(false)
		_, _ = w.Write([]byte(text[cut:]))
		b := w.take(true)
		if got := a.head + a.tail + b.head + b.tail; got != text {
			t.Fatalf("cut at %d: %q", cut, got)
		}
	}
	w := newWindow(10, 10, time.Now)
	_, _ = w.Write([]byte("a\xff\xfeb\xe6"))
	if c := w.take(true); c.head != "a\uFFFDb\uFFFD" {
		t.Errorf("%q", c.head)
	}
}

func TestWindowCountsLines(t *testing.T) {
	w := newWindow(4, 4, time.Now)
	_, _ = w.Write([]byte("one\ntwo\nthree"))
	if c := w.take(true); c.lines != 3 {
		t.Errorf("%d lines", c.lines)
	}
}
