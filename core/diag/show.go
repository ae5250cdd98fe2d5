// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/apparentlymart/go-textseg/v17/textseg"
	"golang.org/x/text/width"
)

// Printable makes text safe for a terminal and keeps it on one line: tabs become one space, other control characters
// and those that change the direction of text become a visible stand-in.
func Printable(s string) string {
	if printable(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case r == '\r' || r == '\uFEFF':
			return -1
		case hidden(r):
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

func printable(s string) bool {
	for _, r := range s {
		if r == '\uFEFF' || hidden(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// hidden reports whether r would move the cursor, change colours or reorder the line.
func hidden(r rune) bool {
	switch {
	case unicode.IsControl(r):
		return true
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x2028, r == 0x2029:
		return true
	}
	return false
}

// cell is a grapheme cluster of a line as it is shown.
type cell struct {
	text  string
	width int
	start int // byte offset in the line
}

func cells(line string) []cell {
	var out []cell
	raw := []byte(line)
	for at := 0; at < len(line); {
		n, _, err := textseg.ScanGraphemeClusters(raw[at:], true)
		if err != nil || n <= 0 {
			n = 1
		}
		text := Printable(line[at : at+n])
		if text != "" {
			out = append(out, cell{text: text, width: clusterWidth(text), start: at})
		}
		at += n
	}
	return out
}

func clusterWidth(s string) int {
	r, _ := utf8.DecodeRuneInString(s)
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) {
		return 0
	}
	if strings.ContainsRune(s, '\uFE0F') {
		return 2
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
