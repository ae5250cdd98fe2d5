// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"io"
)

// firstBuffer is what a decoder starts with: an idle conversation of small frames never needs more.
const firstBuffer = 8 << 10

// Decoder reads frames. It is for one goroutine.
type Decoder struct {
	// Large gives room for a payload of n bytes, which is read straight into it and belongs to whoever gets the frame.
	// When it is nil or gives nil, the payload comes in the decoder's own buffer.
	Large func(n int) []byte

	r          io.Reader
	check      Check
	buf        []byte
	start, end int // the unread part of buf
	got        int // by straight
	skipped    uint64
	err        error
}

// NewDecoder reads from r.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: r, buf: make([]byte, firstBuffer)}
}

// SetCheck says how the frames are checked that come next.
func (d *Decoder) SetCheck(check Check) { d.check = check }

// Skipped counts the bytes that belonged to no frame.
func (d *Decoder) Skipped() uint64 { return d.skipped }

// Next gives the next whole frame. What cannot be part of one is skipped. The payload is valid until the next call,
// or owned.
// The error is the reader's; what was left of a frame cut off by it counts as skipped.
func (d *Decoder) Next() (Frame, error) {
	for {
		d.sync()
		if d.end-d.start < HeaderSize {
			if err := d.fill(HeaderSize); err != nil {
				d.skip(d.end - d.start)
				return Frame{}, err
			}
			continue
		}
		f, n, sum, ok := parse(d.buf[d.start:d.end])
		if !ok {
			d.skip(1)
			continue
		}
		if total := HeaderSize + n; d.end-d.start < total {
			if own := d.large(n); own != nil {
				if d.straight(own) && d.check.sum(f.Type, own) == sum {
					d.start, d.end = 0, 0
					f.Payload, f.Owned = own, true
					return f, nil
				}
				d.takeBack(own)
				d.skip(1)
				continue
			}
			if err := d.fill(total); err != nil {
				// The stream ended inside of this frame, or inside of what looked like one: a whole frame may be behind it.
				d.skip(1)
				continue
			}
		}
		p := d.buf[d.start+HeaderSize : d.start+HeaderSize+n]
		if d.check.sum(f.Type, p) != sum {
			// The header was whole and its payload is not: bytes were lost on the way. The next frame may begin inside.
			d.skip(1)
			continue
		}
		d.start += HeaderSize + n
		f.Payload = p
		return f, nil
	}
}

func (d *Decoder) large(n int) []byte {
	if d.Large == nil {
		return nil
	}
	return d.Large(n)
}

// straight reads into p the payload whose header is at hand. It tells whether all of it came; what did is in got.
func (d *Decoder) straight(p []byte) bool {
	n := copy(p, d.buf[d.start+HeaderSize:d.end])
	for n < len(p) && d.err == nil {
		var m int
		m, d.err = d.r.Read(p[n:])
		n += m
	}
	d.got = n
	return n == len(p)
}

// takeBack puts what straight has read behind its header again: a frame may begin in it.
func (d *Decoder) takeBack(p []byte) {
	d.room(HeaderSize + len(p))
	d.end = HeaderSize + copy(d.buf[HeaderSize:], p[:d.got])
}

// sync skips to the next place where a magic may begin.
func (d *Decoder) sync() {
	b := d.buf[d.start:d.end]
	for len(b) > 0 {
		i := bytes.IndexByte(b, magic[0])
		if i < 0 {
			d.skip(len(b))
			return
		}
		d.skip(i)
		b = b[i:]
		if n := min(len(b), len(magic)); bytes.Equal(b[:n], magic[:n]) {
			return
		}
		d.skip(1)
		b = b[1:]
	}
}

func (d *Decoder) skip(n int) {
	d.start += n
	d.skipped += uint64(n)
}

// fill reads until n bytes are there. It reads as much as the buffer takes, so that small frames share a read.
func (d *Decoder) fill(n int) error {
	if d.err != nil {
		return d.err
	}
	if d.start+n > len(d.buf) || d.start == d.end {
		d.room(n)
	}
	for d.end-d.start < n {
		m, err := d.r.Read(d.buf[d.end:])
		d.end += m
		if err != nil && d.end-d.start < n {
			d.err = err
			return err
		}
		if err != nil {
			d.err = err
		}
	}
	return nil
}

// room moves the unread part to the front and grows the buffer to hold n bytes.
func (d *Decoder) room(n int) {
	to := d.buf
	if n > len(to) {
		size := len(to)
		for size < n {
			size *= 2
		}
		to = make([]byte, size)
	}
	copy(to, d.buf[d.start:d.end])
	d.buf, d.end, d.start = to, d.end-d.start, 0
}
