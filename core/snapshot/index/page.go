// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/berth-dev/berth/core/snapshot/chunks"
)

// Entries on a page: on average 128, and never more bytes than one chunk but for a single entry.
const (
	minPage  = 32
	maxPage  = 1024
	pageSize = 192 << 10
)

// Flags of an entry.
const (
	flagOwner  = 1 << iota // other owner than the entry before it
	flagLinked             // hard links follow
	flagSparse
	flagSeen
)

// Encoder makes pages.
type Encoder struct {
	Page func(page []byte) error // takes a page; it must not keep the bytes

	check checker
	buf   []byte
	n     int
	last  Entry
}

// Add appends an entry; they come in the order of [Compare].
func (x *Encoder) Add(e *Entry) error {
	if err := x.check.next(e); err != nil {
		return err
	}
	x.append(e)
	x.n++
	if x.n >= maxPage || len(x.buf) >= pageSize || (x.n >= minPage && boundary(e.Path)) {
		return x.Close()
	}
	return nil
}

// Close ends the last page.
func (x *Encoder) Close() error {
	if x.n == 0 {
		return nil
	}
	err := x.Page(x.buf)
	x.buf, x.n, x.last = x.buf[:0], 0, Entry{}
	return err
}

func boundary(path string) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))                 // never fails
	return h.Sum64()*0x9e3779b97f4a7c15>>57 == 0 // the multiplication brings all of the hash to the top
}

func (x *Encoder) append(e *Entry) {
	b := x.buf
	flags := byte(0)
	if e.UID != x.last.UID || e.GID != x.last.GID || e.User != x.last.User || e.Group != x.last.Group || x.n == 0 {
		flags |= flagOwner
	}
	if e.Linked {
		flags |= flagLinked
	}
	if e.Sparse != nil {
		flags |= flagSparse
	}
	if e.Seen != 0 {
		flags |= flagSeen
	}
	b = append(b, byte(e.Kind), flags)
	shared := 0
	for shared < min(len(e.Path), len(x.last.Path)) && e.Path[shared] == x.last.Path[shared] {
		shared++
	}
	b = binary.AppendUvarint(b, uint64(shared))
	b = appendText(b, e.Path[shared:])
	b = binary.AppendUvarint(b, uint64(e.Mode))
	if flags&flagOwner != 0 {
		b = binary.AppendUvarint(b, uint64(e.UID))
		b = binary.AppendUvarint(b, uint64(e.GID))
		b = appendText(appendText(b, e.User), e.Group)
	}
	b = binary.AppendVarint(b, e.ModTime.Unix())
	b = binary.AppendUvarint(b, uint64(e.ModTime.Nanosecond()))
	if flags&flagSeen != 0 {
		b = binary.LittleEndian.AppendUint64(b, e.Seen)
	}
	switch e.Kind {
	case Symlink, HardLink:
		b = appendText(b, e.Target)
	case File:
		b = binary.AppendUvarint(b, uint64(e.Size))
		if e.Sparse != nil {
			b = binary.AppendUvarint(b, uint64(len(e.Sparse)))
			at := int64(0)
			for _, s := range e.Sparse {
				b = binary.AppendUvarint(b, uint64(s.Off-at))
				b = binary.AppendUvarint(b, uint64(s.Size))
				at = s.Off + s.Size
			}
		}
		b = binary.AppendUvarint(b, uint64(len(e.Chunks)))
		for i := range e.Chunks {
			b = append(b, e.Chunks[i][:]...)
		}
	case Dir:
	}
	x.buf, x.last = b, *e
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decoder reads pages, one after the other.
type Decoder struct{ check checker }

var errPage = errors.New("the page makes no sense")

// Page gives the entries of the next page. They share nothing with b.
func (d *Decoder) Page(b []byte, yield func(*Entry) error) error {
	r := reader{b: b}
	var last Entry
	for len(r.b) > 0 {
		e := Entry{}
		r.entry(&e, &last)
		if r.bad {
			return errPage
		}
		if err := d.check.next(&e); err != nil {
			return err
		}
		last = e
		if err := yield(&e); err != nil {
			return err
		}
	}
	return nil
}

// reader takes bytes apart; after something bad it gives zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() {
	r.b, r.bad = nil, true
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string { return string(r.bytes(r.number(math.MaxInt32))) }

func (r *reader) entry(e, last *Entry) {
	e.Kind = Kind(r.byte())
	flags := r.byte()
	if e.Kind < Dir || e.Kind > HardLink || flags >= flagSeen<<1 {
		r.fail()
		return
	}
	shared := r.number(uint64(len(last.Path)))
	e.Path = last.Path[:shared] + r.text()
	e.Mode = uint32(r.number(0o7777))
	if flags&flagOwner != 0 {
		e.UID, e.GID = uint32(r.number(math.MaxUint32)), uint32(r.number(math.MaxUint32))
		e.User, e.Group = r.text(), r.text()
	} else {
		e.UID, e.GID, e.User, e.Group = last.UID, last.GID, last.User, last.Group
	}
	sec := r.signed()
	e.ModTime = time.Unix(sec, int64(r.number(999_999_999)))
	e.Linked = flags&flagLinked != 0
	if flags&flagSeen != 0 {
		if b := r.bytes(8); b != nil {
			e.Seen = binary.LittleEndian.Uint64(b)
		}
	}
	switch e.Kind {
	case Symlink, HardLink:
		e.Target = r.text()
	case File:
		e.Size = int64(r.number(1 << 62))
		if flags&flagSparse != 0 {
			r.sparse(e)
		}
		n := r.number(uint64(len(r.b)) / uint64(len(chunks.Hash{})))
		if n > 0 {
			e.Chunks = make([]chunks.Hash, n)
			for i := range e.Chunks {
				copy(e.Chunks[i][:], r.bytes(uint64(len(e.Chunks[i]))))
			}
		}
	case Dir:
	}
}

func (r *reader) sparse(e *Entry) {
	n := r.number(maxExtents)
	e.Sparse = make([]Extent, 0, min(n, uint64(len(r.b)/2)))
	at := int64(0)
	for range n {
		x := Extent{Off: at + int64(r.number(1<<61)), Size: int64(r.number(1 << 61))}
		if r.bad || x.Off < at || x.Off+x.Size < x.Off {
			r.fail()
			return
		}
		at = x.Off + x.Size
		e.Sparse = append(e.Sparse, x)
	}
}

// Root is the top of an index.
type Root struct {
	Pages   []Page
	Entries int64
	Bytes   int64 // of all files, holes included
	Left    []Left
}

// Page is a page of an index.
type Page struct {
	Entries int
	Chunks  []chunks.Hash // more than one only when an entry is that large
}

const rootMagic = "berth index 1\n"

// Append encodes the root.
func (t *Root) Append(b []byte) []byte {
	b = append(b, rootMagic...)
	b = binary.AppendUvarint(b, uint64(t.Entries))
	b = binary.AppendUvarint(b, uint64(t.Bytes))
	b = binary.AppendUvarint(b, uint64(len(t.Pages)))
	for _, p := range t.Pages {
		b = binary.AppendUvarint(b, uint64(p.Entries))
		b = binary.AppendUvarint(b, uint64(len(p.Chunks)))
		for i := range p.Chunks {
			b = append(b, p.Chunks[i][:]...)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(t.Left)))
	for _, l := range t.Left {
		b = appendText(appendText(b, l.Path), l.Reason)
	}
	return b
}

// ParseRoot reads what [Root.Append] wrote.
func ParseRoot(b []byte) (*Root, error) {
	r := reader{b: b}
	if string(r.bytes(uint64(len(rootMagic)))) != rootMagic {
		return nil, errors.New("this is no index that this version of berth can read")
	}
	t := &Root{Entries: int64(r.number(1 << 40)), Bytes: int64(r.number(math.MaxInt64))}
	total := int64(0)
	for range r.number(uint64(len(r.b))) {
		p := Page{Entries: int(r.number(maxPage))}
		n := r.number(uint64(len(r.b)) / uint64(len(chunks.Hash{})))
		for range n {
			var h chunks.Hash
			copy(h[:], r.bytes(uint64(len(h))))
			p.Chunks = append(p.Chunks, h)
		}
		total += int64(p.Entries)
		t.Pages = append(t.Pages, p)
	}
	for range r.number(uint64(len(r.b))) {
		t.Left = append(t.Left, Left{Path: r.text(), Reason: r.text()})
	}
	if r.bad || len(r.b) > 0 {
		return nil, errors.New("the index makes no sense")
	}
	if total != t.Entries {
		return nil, fmt.Errorf("the index has %d entries on its pages, not %d", total, t.Entries)
	}
	return t, nil
}
