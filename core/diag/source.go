// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Files are the sources, by the file names that ranges use.
type Files map[string]*hcl.File

var bom = []byte("\xEF\xBB\xBF")

// Source checks that a file can be parsed without harm, its encoding, size and depth, and drops a byte order mark.
// Without the error the bytes can be parsed.
func Source(filename string, src []byte) ([]byte, *Diagnostic) {
	return SourceAs(filename, src, SyntaxOf(filename))
}

// SourceAs is Source for a syntax that the name of the file does not tell.
func SourceAs(filename string, src []byte, syntax Syntax) ([]byte, *Diagnostic) {
	if len(src) > MostSource {
		return nil, Errorf(UnexpectedToken, hcl.Range{Filename: filename}, "file is larger than %d MiB", MostSource>>20)
	}
	clean := bytes.TrimPrefix(src, bom)
	if !utf8.Valid(clean) {
		return nil, notUTF8(filename, src, clean)
	}
	if d := checkDepth(filename, clean, syntax); d != nil {
		return nil, d
	}
	return clean, nil
}

func notUTF8(filename string, src, rest []byte) *Diagnostic {
	at := 0
	for at < len(rest) {
		r, n := utf8.DecodeRune(rest[at:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		at += n
	}
	d := Errorf(Encoding, byteRange(filename, rest, at, at+1), "file is not UTF-8").
		Labelf("byte 0x%02X at offset %d", rest[at], at+len(src)-len(rest))
	if bytes.HasPrefix(src, []byte{0xFF, 0xFE}) || bytes.HasPrefix(src, []byte{0xFE, 0xFF}) {
		return d.Helpf("this looks like UTF-16; save the file as UTF-8")
	}
	return d.Helpf("save the file as UTF-8")
}

func lineStart(src []byte, at int) int { return bytes.LastIndexByte(src[:at], '\n') + 1 }

// line gives a line of a file without its end, and the offset of its first byte.
func (f Files) line(filename string, number int) (text string, start int, ok bool) {
	file := f[filename]
	if file == nil || number < 1 {
		return "", 0, false
	}
	src := file.Bytes
	for n := 1; n < number; n++ {
		i := bytes.IndexByte(src[start:], '\n')
		if i < 0 {
			return "", 0, false
		}
		start += i + 1
	}
	end := len(src)
	if i := bytes.IndexByte(src[start:], '\n'); i >= 0 {
		end = start + i
	}
	return strings.TrimSuffix(string(src[start:end]), "\r"), start, true
}

// bytesOf gives the source text of a range; "" when the file is not at hand.
func (f Files) bytesOf(r hcl.Range) string {
	file := f[r.Filename]
	if file == nil || r.Start.Byte < 0 || r.End.Byte > len(file.Bytes) || r.Start.Byte > r.End.Byte {
		return ""
	}
	return string(file.Bytes[r.Start.Byte:r.End.Byte])
}

// block describes the outermost block around a position, such as `agent "coder"`.
func (f Files) block(r hcl.Range) string {
	file := f[r.Filename]
	if file == nil {
		return ""
	}
	if _, native := file.Body.(*hclsyntax.Body); !native {
		return ""
	}
	b := file.OutermostBlockAtPos(r.Start)
	if b == nil {
		return ""
	}
	var out strings.Builder
	out.WriteString(b.Type)
	for _, l := range b.Labels {
		out.WriteString(` "` + Printable(l) + `"`)
	}
	return out.String()
}

// excerpt is the part of a line that is shown.
type excerpt struct {
	text  string
	pad   int // columns before the carets
	marks int // number of carets
}

const ellipsis = "…"

// excerpt cuts the first line of r so that it takes at most columns, with the subject in it.
func (f Files) excerpt(r hcl.Range, columns int) (excerpt, bool) {
	line, start, ok := f.line(r.Filename, r.Start.Line)
	if !ok {
		return excerpt{}, false
	}
	from := clamp(r.Start.Byte-start, len(line))
	to := len(line)
	if r.End.Line == r.Start.Line {
		to = clamp(r.End.Byte-start, len(line))
	}
	cutLeft, cutRight := false, false
	if most := 8 * columns; len(line) > 2*most {
		a, b := max(0, from-most), min(len(line), from+most)
		for a > 0 && !utf8.RuneStart(line[a]) {
			a--
		}
		for b < len(line) && !utf8.RuneStart(line[b]) {
			b++
		}
		cutLeft, cutRight = a > 0, b < len(line)
		line, from, to = line[a:b], from-a, min(to, b)-a
	}
	return cut(cells(strings.TrimRight(line, " \t")), from, to, columns, cutLeft, cutRight), true
}

func clamp(n, most int) int { return max(0, min(n, most)) }

func cut(cs []cell, from, to, columns int, cutLeft, cutRight bool) excerpt {
	total, pad, end := 0, -1, -1
	for _, c := range cs {
		if pad < 0 && c.start >= from {
			pad = total
		}
		if end < 0 && c.start >= to {
			end = total
		}
		total += c.width
	}
	if pad < 0 {
		pad = total
	}
	if end < 0 {
		end = total
	}
	end = max(end, pad+1)

	// The window [left, right) of columns that are kept.
	left, right := 0, total
	if total > columns || cutLeft || cutRight {
		if end > columns-1 || cutLeft {
			left = max(0, min(pad-columns/3, total-columns+1))
		}
		room := columns
		if left > 0 || cutLeft {
			room--
		}
		if right = total; total-left > room || cutRight {
			right = min(total, left+room-1)
		}
	}
	cutLeft, cutRight = cutLeft || left > 0, cutRight || right < total

	var b strings.Builder
	out := excerpt{}
	shown := 0
	if cutLeft {
		b.WriteString(ellipsis)
		shown++
	}
	at := 0
	skew := shown - left
	for _, c := range cs {
		switch {
		case at < left:
			// A wide cell may stick out of the window's left edge.
			skew -= max(0, at+c.width-left)
		case at+c.width <= right:
			b.WriteString(c.text)
			shown += c.width
		}
		at += c.width
	}
	if cutRight {
		b.WriteString(ellipsis)
	}
	out.text = b.String()
	out.pad = max(0, pad+skew)
	out.marks = max(1, min(end, max(right, pad+1))-pad)
	return out
}
