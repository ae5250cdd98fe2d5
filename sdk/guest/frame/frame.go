// SPDX-License-Identifier: Apache-2.0

// Package frame turns a stream of bytes into frames and finds them again after a cut or garbage.
//
// A frame is a header of 28 bytes and a payload of at most [MaxPayload]:
//
//	 0  magic     4 bytes
//	 4  type      1 byte
//	 5  flags     1 byte
//	 6  check     2 bytes, over the rest of the header: garbage is told from a header without waiting for its payload
//	 8  stream    4 bytes
//	12  sequence  4 bytes
//	16  length    4 bytes
//	20  checksum  4 bytes, CRC-32C of the payload, started from a seed
//	24  reserved  4 bytes, zero
//
// Numbers are big-endian. The seed is known to the two ends of one conversation only, so that what another conversation
// left in a shared stream (a terminal, the standard input of a container) is not taken for a frame. The checksum finds
// accidents; it is no defence against somebody who can write into the stream. Where there are no accidents, on a socket
// within one machine, it is that of an empty payload, see [Check].
package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
)

const (
	// HeaderSize is the length of a header.
	HeaderSize = 28
	// MaxPayload bounds a payload; a header that says more is garbage.
	MaxPayload = 256 << 10
)

var (
	magic = [4]byte{0xb7, 'b', 0x1f, 'g'}
	// made when it is needed: the process that only makes the confinement never does.
	table = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })
)

// Type is the kind of a frame. Types below [FirstSealed] are checked with seed 0: they make the conversation.
type Type uint8

// FirstSealed is the first type that is checked with the conversation's seed.
const FirstSealed Type = 8

// Frame is one frame. Payload belongs to whoever gave it, see [Decoder.Next].
type Frame struct {
	Type     Type
	Flags    uint8
	Stream   uint32
	Sequence uint32
	Payload  []byte
	Owned    bool // Payload is what [Decoder.Large] gave
}

// Check says how the frames from [FirstSealed] on are checked. The zero value is for handshakes.
type Check struct {
	Seed uint32
	// Plain leaves payloads unchecked. Headers never are.
	Plain bool
}

// sum is the checksum of a payload.
func (c Check) sum(t Type, p []byte) uint32 {
	switch {
	case t < FirstSealed:
		return crc32.Update(0, table(), p)
	case c.Plain:
		return c.Seed
	}
	return crc32.Update(c.Seed, table(), p)
}

// Seal fills the header in the first HeaderSize bytes of b; the rest of b is the payload. f.Payload is ignored.
func Seal(b []byte, f Frame, check Check) {
	p := b[HeaderSize:]
	if len(p) > MaxPayload {
		panic(fmt.Sprintf("frame: payload of %d bytes", len(p)))
	}
	copy(b, magic[:])
	b[4], b[5] = byte(f.Type), f.Flags
	binary.BigEndian.PutUint32(b[8:], f.Stream)
	binary.BigEndian.PutUint32(b[12:], f.Sequence)
	binary.BigEndian.PutUint32(b[16:], uint32(len(p)))
	binary.BigEndian.PutUint32(b[20:], check.sum(f.Type, p))
	binary.BigEndian.PutUint32(b[24:], 0)
	binary.BigEndian.PutUint16(b[6:], headerCheck(b))
}

// Reseal seals again, for another check, what [Seal] has sealed.
func Reseal(b []byte, check Check) {
	f, _, _, _ := parse(b)
	Seal(b, f, check)
}

// Append appends f, sealed, to b.
func Append(b []byte, f Frame, check Check) []byte {
	n := len(b)
	b = append(b, make([]byte, HeaderSize)...)
	b = append(b, f.Payload...)
	Seal(b[n:], f, check)
	return b
}

// headerCheck folds a CRC of the header without its magic and check fields to 16 bits.
func headerCheck(h []byte) uint16 {
	c := crc32.Update(0, table(), h[4:6])
	c = crc32.Update(c, table(), h[8:HeaderSize])
	return uint16(c) ^ uint16(c>>16)
}

// parse reads a header; ok is false for what cannot be one. sum is what the payload's checksum must be.
func parse(h []byte) (f Frame, length int, sum uint32, ok bool) {
	if [4]byte(h[:4]) != magic || binary.BigEndian.Uint16(h[6:]) != headerCheck(h) {
		return Frame{}, 0, 0, false
	}
	n := binary.BigEndian.Uint32(h[16:])
	if n > MaxPayload {
		return Frame{}, 0, 0, false
	}
	return Frame{
		Type:     Type(h[4]),
		Flags:    h[5],
		Stream:   binary.BigEndian.Uint32(h[8:]),
		Sequence: binary.BigEndian.Uint32(h[12:]),
	}, int(n), binary.BigEndian.Uint32(h[20:]), true
}
