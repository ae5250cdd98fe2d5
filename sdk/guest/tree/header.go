// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const blockSize = 512

// Tar's kinds of member.
const (
	kindFile     = '0'
	kindHardLink = '1'
	kindLink     = '2'
	kindDir      = '5'
	kindExtended = 'x'
	kindGlobal   = 'g'
)

// header is a member to be written.
type header struct {
	kind         byte
	name, target string
	mode         uint32
	uid, gid     uint32
	uname, gname string
	size         int64
	mtime        time.Time
	records      []record // more PAX records
	fieldName    string   // what old readers see instead of name, which is told by a record of the caller's
}

type record struct{ key, value string }

// appendHeader appends the member's header, with a PAX header before it for what the old fields cannot hold.
func appendHeader(b []byte, h *header) []byte {
	recs := slices.Clone(h.records)
	text := func(key, value string, size int) string {
		fits := len(value) <= size
		switch {
		case fits && (ascii(value) || !utf8.ValidString(value)):
			return value
		case !utf8.ValidString(value):
			recs = append(recs, record{"hdrcharset", "BINARY"})
		}
		recs = append(recs, record{key, value})
		if !fits {
			return value[:size]
		}
		return value
	}
	number := func(key string, value, limit int64) int64 {
		if value >= 0 && value <= limit {
			return value
		}
		recs = append(recs, record{key, strconv.FormatInt(value, 10)})
		return 0
	}
	name := h.fieldName
	if name == "" {
		name = text("path", h.name, 100)
	}
	target := text("linkpath", h.target, 100)
	uname, gname := text("uname", h.uname, 31), text("gname", h.gname, 31)
	uid, gid := number("uid", int64(h.uid), 0o7777777), number("gid", int64(h.gid), 0o7777777)
	size := number("size", h.size, 0o77777777777)
	sec, nsec := h.mtime.Unix(), h.mtime.Nanosecond()
	if nsec != 0 || sec < 0 || sec > 0o77777777777 {
		recs = append(recs, record{"mtime", paxTime(sec, nsec)})
		sec = min(max(sec, 0), 0o77777777777)
	}
	if len(recs) > 0 {
		b = appendRecords(b, kindExtended, recs)
	}
	return appendBlock(b, name, h.mode, uid, gid, size, sec, h.kind, target, uname, gname)
}

// appendRecords appends a PAX header.
func appendRecords(b []byte, kind byte, recs []record) []byte {
	var body []byte
	for _, r := range recs {
		body = appendRecord(body, r)
	}
	name := "PaxHeaders.0/member"
	if kind == kindGlobal {
		name = "pax_global_header"
	}
	b = appendBlock(b, name, 0o644, 0, 0, int64(len(body)), 0, kind, "", "", "")
	return appendPadding(append(b, body...), len(body))
}

// appendRecord appends "length key=value\n"; the length counts its own digits.
func appendRecord(b []byte, r record) []byte {
	size := len(r.key) + len(r.value) + 3
	size += len(strconv.Itoa(size))
	if s := strconv.Itoa(size); len(s)+len(r.key)+len(r.value)+3 != size {
		size++
	}
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, ' ')
	b = append(b, r.key...)
	b = append(b, '=')
	b = append(b, r.value...)
	return append(b, '\n')
}

func appendBlock(b []byte, name string, mode uint32, uid, gid, size, mtime int64, kind byte, target, uname, gname string) []byte {
	start := len(b)
	b = append(b, make([]byte, blockSize)...)
	blk := b[start:]
	copy(blk[:100], name)
	octal(blk[100:108], int64(mode))
	octal(blk[108:116], uid)
	octal(blk[116:124], gid)
	octal(blk[124:136], size)
	octal(blk[136:148], mtime)
	blk[156] = kind
	copy(blk[157:257], target)
	copy(blk[257:], "ustar\x0000")
	copy(blk[265:296], uname)
	copy(blk[297:328], gname)
	octal(blk[329:337], 0)
	octal(blk[337:345], 0)
	copy(blk[148:156], "        ")
	var sum int64
	for _, c := range blk {
		sum += int64(c)
	}
	octal(blk[148:155], sum)
	return b
}

// octal fills a field with digits and a NUL.
func octal(field []byte, v int64) {
	for i := len(field) - 2; i >= 0; i-- {
		field[i] = byte('0' + v&7)
		v >>= 3
	}
}

func appendPadding(b []byte, size int) []byte {
	return append(b, make([]byte, padding(int64(size)))...)
}

func padding(size int64) int64 { return -size & (blockSize - 1) }

func paxTime(sec int64, nsec int) string {
	sign := ""
	if sec < 0 {
		sign, sec = "-", -sec
		if nsec != 0 {
			sec, nsec = sec-1, 1e9-nsec
		}
	}
	s := sign + strconv.FormatInt(sec, 10)
	if nsec == 0 {
		return s
	}
	return s + "." + strings.TrimRight(strconv.Itoa(1e9 + nsec)[1:], "0")
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
