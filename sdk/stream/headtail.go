// SPDX-License-Identifier: Apache-2.0

package stream

import "fmt"

// HeadTail keeps the beginning and the end of what is written to it and counts the rest. It never blocks and never
// fails, so that a program which writes too much goes on. Not for use by several goroutines.
type HeadTail struct {
	Head, Tail int // bytes kept

	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring is written next
	total uint64
}

// Write keeps what belongs to the beginning or, for now, to the end.
func (h *HeadTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += uint64(n)
	if room := h.Head - len(h.head); room > 0 {
		k := min(room, len(p))
		h.head = append(h.head, p[:k]...)
		p = p[k:]
	}
	if len(p) >= h.Tail {
		p = p[len(p)-h.Tail:]
		h.tail, h.next = append(h.tail[:0], p...), 0
		return n, nil
	}
	if room := h.Tail - len(h.tail); room > 0 {
		k := min(room, len(p))
		h.tail = append(h.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(h.tail[h.next:], p)
		h.next = (h.next + k) % len(h.tail)
		p = p[k:]
	}
	return n, nil
}

// Result gives the beginning, the end, and how many bytes between them were dropped.
func (h *HeadTail) Result() (head, tail []byte, dropped uint64) {
	tail = append(append(make([]byte, 0, len(h.tail)), h.tail[h.next:]...), h.tail[:h.next]...)
	return h.head, tail, h.total - uint64(len(h.head)) - uint64(len(tail))
}

// String gives the beginning and the end, with a mark that counts what was dropped between them.
func (h *HeadTail) String() string {
	head, tail, dropped := h.Result()
	if dropped == 0 {
		return string(head) + string(tail)
	}
	return fmt.Sprintf("%s\n…%d bytes left out…\n%s", head, dropped, tail)
}

// Total is the number of bytes written.
func (h *HeadTail) Total() uint64 { return h.total }
