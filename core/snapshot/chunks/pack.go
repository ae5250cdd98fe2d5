// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/berth-dev/berth/core/snapshot/objects"
)

// A pack is its blocks, the footer, the footer's length in four bytes and the magic. The footer is a number of blocks,
// and for each its codec, its stored size and the number of its chunks with their sizes and hashes.
const (
	magic      = "brthpak1"
	tailSize   = 4 + len(magic)
	tailGuess  = 32 << 10 // what is read of a pack at first, to find its footer
	maxFooter  = 64 << 20
	codecRaw   = 0
	codecZstd  = 1
	codecCount = 2
)

// located is a chunk of a pack.
type located struct {
	hash             Hash
	block, off, size uint32
}

// appendFooter describes a pack's blocks.
func appendFooter(b []byte, blocks []block, chunks []located) []byte {
	b = binary.AppendUvarint(b, uint64(len(blocks)))
	for i, bl := range blocks {
		n := 0
		for n < len(chunks) && chunks[n].block == uint32(i) {
			n++
		}
		b = append(b, bl.codec)
		b = binary.AppendUvarint(b, uint64(bl.stored))
		b = binary.AppendUvarint(b, uint64(n))
		for _, c := range chunks[:n] {
			b = binary.AppendUvarint(b, uint64(c.size))
			b = append(b, c.hash[:]...)
		}
		chunks = chunks[n:]
	}
	return b
}

// seal ends a pack and gives its name.
func seal(b []byte, blocks []block, chunks []located) (sealed []byte, name string) {
	start := len(b)
	b = appendFooter(b, blocks, chunks)
	name = footerName(b[start:])
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)-start))
	return append(b, magic...), name
}

func footerName(footer []byte) string {
	sum := sha256.Sum256(footer)
	return prefix + hex.EncodeToString(sum[:])
}

var errFooter = errors.New("its footer makes no sense")

// parseFooter reads what appendFooter wrote; the blocks fill data bytes.
func parseFooter(b []byte, data int64) (blocks []block, chunks []located, err error) {
	number := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > most {
			err, b = errFooter, nil
			return 0
		}
		b = b[n:]
		return v
	}
	count := number(uint64(len(b)))
	var off int64
	for i := uint64(0); i < count && err == nil; i++ {
		if len(b) == 0 || b[0] >= codecCount {
			return nil, nil, errFooter
		}
		bl := block{codec: b[0], off: off}
		b = b[1:]
		bl.stored = uint32(number(MaxChunk))
		n := number(uint64(len(b)) / (sha256.Size + 1))
		for range n {
			c := located{block: uint32(i), off: bl.raw, size: uint32(number(MaxChunk))}
			if err != nil || copy(c.hash[:], b) < len(c.hash) {
				return nil, nil, errFooter
			}
			b = b[len(c.hash):]
			if bl.raw += c.size; bl.raw > MaxChunk {
				return nil, nil, errFooter
			}
			chunks = append(chunks, c)
		}
		if bl.codec == codecRaw && bl.raw != bl.stored {
			return nil, nil, errFooter
		}
		off += int64(bl.stored)
		blocks = append(blocks, bl)
	}
	if err == nil && (len(b) > 0 || off != data) {
		err = errFooter
	}
	if err != nil {
		return nil, nil, err
	}
	return blocks, chunks, nil
}

// readFooter finds out what is in a pack.
func readFooter(ctx context.Context, objs objects.Store, info objects.Info) (*pack, []located, error) {
	bad := func(err error) (*pack, []located, error) {
		return nil, nil, &Corrupt{Object: info.Name, Err: err}
	}
	guess := min(info.Size, tailGuess)
	b, err := objects.Read(ctx, objs, info.Name, info.Size-guess, guess, guess)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bad(err)
	case err != nil:
		return nil, nil, err
	case len(b) < tailSize || !bytes.HasSuffix(b, []byte(magic)):
		return bad(errors.New("it has no end mark; it was cut off"))
	}
	size := int64(binary.LittleEndian.Uint32(b[len(b)-tailSize:]))
	data := info.Size - int64(tailSize) - size
	if data < 0 || size > maxFooter {
		return bad(errFooter)
	}
	footer := b[:len(b)-tailSize]
	if size <= int64(len(footer)) {
		footer = footer[int64(len(footer))-size:]
	} else if footer, err = objects.Read(ctx, objs, info.Name, data, size, size); err != nil {
		return nil, nil, err
	}
	if name := footerName(footer); name != info.Name {
		return bad(fmt.Errorf("its footer has the hash %s", name[len(prefix):]))
	}
	blocks, chunks, err := parseFooter(footer, data)
	if err != nil {
		return bad(err)
	}
	return &pack{name: info.Name, size: info.Size, blocks: blocks}, chunks, nil
}

// gone makes an error of a pack that is listed and not there any more.
func gone(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Corrupt{Object: name, Err: err}
	}
	return err
}
