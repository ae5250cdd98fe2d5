// SPDX-License-Identifier: Apache-2.0

package show

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

func oneLine(s string) string { return printable(strings.Join(strings.Fields(s), " ")) }

// Lines makes each line of a text printable.
func Lines(s string) string {
	all := strings.Split(s, "\n")
	for i, l := range all {
		all[i] = printable(l)
	}
	return strings.Join(all, "\n")
}

const tabStop = 8

// printable is what a terminal would show of a line, without anything that steers it: no escape sequences, no control or
// direction characters, tabs as spaces. Of a line that was written over, as progress bars do, it is the last state.
func printable(line string) string {
	line = strings.TrimRight(line, "\r\n")
	if i := strings.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:]
	}
	var b strings.Builder
	col := 0
	for line != "" {
		r, n := utf8.DecodeRuneInString(line)
		switch {
		case r == '\x1b':
			line = line[escape(line):]
			continue
		case r == '\t':
			gap := tabStop - col%tabStop
			b.WriteString(strings.Repeat(" ", gap))
			col += gap
		case r == utf8.RuneError && n == 1:
			b.WriteRune(utf8.RuneError)
			col++
		case unicode.IsPrint(r), r == zeroWidthJoiner:
			b.WriteRune(r)
			col += runeWidth(r)
		}
		line = line[n:]
	}
	return b.String()
}

const zeroWidthJoiner = '\u200d'

// escape is the length of the escape sequence that s begins with.
func escape(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[': // parameters, then one letter
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				return i
			}
		}
		return len(s)
	case ']', 'P', 'X', '^', '_': // a string, until BEL or ESC \
		if i := strings.IndexAny(s[2:], "\a\x1b"); i >= 0 {
			i += 2
			if s[i] == '\x1b' && i+1 < len(s) && s[i+1] == '\\' {
				i++
			}
			return i + 1
		}
		return len(s)
	case '(', ')', '*', '+', '#', '%', ' ':
		return min(3, len(s))
	}
	return 2
}

// runeWidth is how many columns a printable character takes.
func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	case width.Neutral, width.EastAsianAmbiguous, width.EastAsianNarrow, width.EastAsianHalfwidth:
	}
	return 1
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return printable(s[strings.LastIndexByte(s, '\n')+1:])
}

// clip cuts a printable text to n columns.
func clip(s string, n int) string {
	col, cut := 0, 0
	for i, r := range s {
		w := runeWidth(r)
		if col+w <= n-1 {
			cut = i + utf8.RuneLen(r)
		}
		if col += w; col > n {
			if n < 1 {
				return ""
			}
			return s[:cut] + "…"
		}
	}
	return s
}
