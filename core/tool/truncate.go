// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"unicode/utf8"
)

// bytesPerToken is the usual estimate.
const bytesPerToken = 4

// Tokens estimates the tokens of so many bytes of text.
func Tokens(bytes uint64) uint64 { return (bytes + bytesPerToken - 1) / bytesPerToken }

// Truncated is text cut to a budget.
type Truncated struct {
	Text string
	// OriginalTokens is the estimate for the whole text; 0 when nothing was cut.
	OriginalTokens uint64
}

// Truncate keeps the head and the tail of a text of which dropped bytes are missing already between head and tail, so
// that the result is about maxTokens long, and says in the middle how much is gone. Cuts fall on character boundaries.
// lines is the number of lines of the whole text.
func Truncate(head, tail string, dropped, lines uint64, maxTokens int) Truncated {
	total := uint64(len(head)) + uint64(len(tail)) + dropped
	budget := uint64(maxTokens) * bytesPerToken
	if dropped == 0 && total <= budget {
		return Truncated{Text: head + tail}
	}
	out := Truncated{OriginalTokens: Tokens(total)}
	// The marker is part of the budget; its length hardly depends on the number in it.
	const marker = "\n…%d tokens truncated…\n"
	prefix := fmt.Sprintf("Total output lines: %d\n\n", lines)
	room := int64(budget) - int64(len(prefix)) - int64(len(fmt.Sprintf(marker, out.OriginalTokens)))
	if room < 0 {
		prefix, room = "", max(0, int64(budget)-int64(len(fmt.Sprintf(marker, out.OriginalTokens))))
	}
	if dropped == 0 {
		all := head + tail
		head, tail = all, all
	}
	h := cutHead(head, int(room/2))
	t := cutTail(tail, int(room-room/2))
	removed := total - uint64(len(h)) - uint64(len(t))
	out.Text = prefix + h + fmt.Sprintf(marker, Tokens(removed)) + t
	return out
}

func cutHead(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func cutTail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	at := len(s) - n
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}
