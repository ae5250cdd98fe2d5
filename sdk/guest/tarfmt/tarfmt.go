// SPDX-License-Identifier: Apache-2.0

// Package tarfmt writes the headers of tar members, in the PAX format with GNU's sparse files (1.0), for names of any bytes.
// The standard library reads all of that and writes neither sparse files nor, in one member, what does not fit together by
// its rules. Content is the caller's.
package tarfmt

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// BlockSize is tar's unit.
const BlockSize = 512

// Tar's kinds of member.
const (
	File     = '0'
	HardLink = '1'
	Symlink  = '2'
	Dir      = '5'
	extended = 'x'
	Global   = 'g'
)

// Header is a member to be written.
type Header struct {
	Kind         byte
	Name, Target string // of a directory, Name ends in a slash
	Mode         uint32
	UID, GID     uint32
	User, Group  string // empty = only the number is known
	Size         int64  // of what follows the header
	ModTime      time.Time
	Records      []Record // more PAX records

	fieldName string // what old readers see instead of Name, which a record tells
}

// Record is one PAX record.
type Record struct{ Key, Value string }

// Extent is a stretch of data in a file with holes.
type Extent struct{ Off, Size int64 }

// MaxExtents is how many stretches a file may have: readers bound the map, Go's at one MiB.
const MaxExtents = 20_000

// AppendSparse appends the header and the map of a file with holes, whose size is h.Size. The data of the extents follows,
// and what [Padding] tells for stored bytes.
func AppendSparse(b []byte, h Header, extents []Extent) (out []byte, stored int64) {
	if n := len(extents); n == 0 || extents[n-1].Off+extents[n-1].Size < h.Size {
		extents = append(slices.Clone(extents), Extent{h.Size, 0})
	}
	m := append(strconv.AppendInt(nil, int64(len(extents)), 10), '\n')
	for _, e := range extents {
		m = append(strconv.AppendInt(m, e.Off, 10), '\n')
		m = append(strconv.AppendInt(m, e.Size, 10), '\n')
		stored += e.Size
	}
	m = appendPadding(m, len(m))
	h.Records = append(slices.Clone(h.Records),
		Record{"GNU.sparse.major", "1"}, Record{"GNU.sparse.minor", "0"},
		Record{"GNU.sparse.name", h.Name}, Record{"GNU.sparse.realsize", strconv.FormatInt(h.Size, 10)})
	h.fieldName = "GNUSparseFile.0/member"
	h.Size = int64(len(m)) + stored
	return append(Append(b, &h), m...), h.Size
}

// Append appends the member's header, with a PAX header before it for what the old fields cannot hold.
func Append(b []byte, h *Header) []byte {
	recs := slices.Clone(h.Records)
	text := func(key, value string, size int) string {
		fits := len(value) <= size
		switch {
		case fits && (ascii(value) || !utf8.ValidString(value)):
			return value
		case !utf8.ValidString(value):
			recs = append(recs, Record{"hdrcharset", "BINARY"})
		}
		recs = append(recs, Record{key, value})
		if !fits {
			return value[:size]
		}
		return value
	}
	number := func(key string, value, limit int64) int64 {
		if value >= 0 && value <= limit {
			return value
		}
		recs = append(recs, Record{key, strconv.FormatInt(value, 10)})
		return 0
	}
	name := h.fieldName
	if name == "" {
		name = text("path", h.Name, 100)
	}
	target := text("linkpath", h.Target, 100)
	uname, gname := text("uname", h.User, 31), text("gname", h.Group, 31)
	uid, gid := number("uid", int64(h.UID), 0o7777777), number("gid", int64(h.GID), 0o7777777)
	size := number("size", h.Size, 0o77777777777)
	sec, nsec := h.ModTime.Unix(), h.ModTime.Nanosecond()
	if nsec != 0 || sec < 0 || sec > 0o77777777777 {
		recs = append(recs, Record{"mtime", paxTime(sec, nsec)})
		sec = min(max(sec, 0), 0o77777777777)
	}
	if len(recs) > 0 {
		b = AppendRecords(b, extended, recs)
	}
	return appendBlock(b, name, h.Mode, uid, gid, size, sec, h.Kind, target, uname, gname)
}

// AppendRecords appends a PAX header; with [Global] it belongs to no member.
func AppendRecords(b []byte, kind byte, recs []Record) []byte {
	var body []byte
	for _, r := range recs {
		body = appendRecord(body, r)
	}
	name := "PaxHeaders.0/member"
	if kind == Global {
		name = "pax_global_header"
	}
	b = appendBlock(b, name, 0o644, 0, 0, int64(len(body)), 0, kind, "", "", "")
	return appendPadding(append(b, body...), len(body))
}

// appendRecord appends "length key=value\n"; the length counts its own digits.
func appendRecord(b []byte, r Record) []byte {
	size := len(r.Key) + len(r.Value) + 3
	size += len(strconv.Itoa(size))
	if s := strconv.Itoa(size); len(s)+len(r.Key)+len(r.Value)+3 != size {
		size++
	}
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, ' ')
	b = append(b, r.Key...)
	b = append(b, '=')
	b = append(b, r.Value...)
	return append(b, '\n')
}

func appendBlock(b []byte, name string, mode uint32, uid, gid, size, mtime int64, kind byte, target, uname, gname string) []byte {
	start := len(b)
	b = append(b, make([]byte, BlockSize)...)
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
	return append(b, make([]byte, Padding(int64(size)))...)
}

// Padding is how much fills the last block after size bytes.
func Padding(size int64) int64 { return -size & (BlockSize - 1) }

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
