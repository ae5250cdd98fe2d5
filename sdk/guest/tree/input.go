// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/tarfmt"
)

const inputBuffer = 128 << 10

// input is the archive's stream: bounded, cancellable, and aware of how it ended. The tar reader takes a stream without
// an end marker for a complete one; a connection that broke at the wrong moment would pass unseen.
type input struct {
	buf    *bufio.Reader
	ended  bool
	zero   bool // the last block was all zeros
	failed error
}

func newInput(r io.Reader) *input { return &input{buf: bufio.NewReaderSize(r, inputBuffer)} }

// Read fills p when it is at most a block, as all headers are.
func (in *input) Read(p []byte) (n int, err error) {
	if len(p) > tarfmt.BlockSize {
		n, err = in.buf.Read(p)
	} else {
		n, err = io.ReadFull(in.buf, p)
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil // the bytes first; the next call tells the end, or what else stopped the stream
		}
		in.zero = in.zero && n == 0 || n == tarfmt.BlockSize && allZero(p)
	}
	if errors.Is(err, io.EOF) {
		in.ended = true
	} else if err != nil {
		in.failed = err
	}
	return n, err
}

// next gets ready for a header.
func (in *input) next() { in.zero = false }

// cut reports whether the stream ended without an end marker: there must have been a block of zeros where the next
// header was to come.
func (in *input) cut() bool { return in.ended && !in.zero }

// drain reads what follows the end marker, so that the writer on the other side can finish.
func (in *input) drain() error {
	_, err := io.Copy(io.Discard, in.buf)
	return err
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// bounded fails once more than max bytes were read.
type bounded struct {
	ctx       context.Context //nolint:containedctx // of the one import
	r         io.Reader
	left, max uint64
	what      string
	failed    error // what r said, but for its end
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if b.left == 0 {
		// The limit itself is allowed: only one byte more is too much.
		var one [1]byte
		if n, err := b.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, errs.New(errs.ArchiveLimit, "the archive holds more than %d %s", b.max, b.what).
			WithHint("raise the import's limit if the archive can be trusted")
	}
	if uint64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= uint64(max(n, 0))
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

// decompressed tells errors of the compression from those of the stream below it.
type decompressed struct {
	io.Reader
	below *bounded
}

func (d decompressed) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	var typed *errs.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &typed) || d.below.failed != nil {
		return n, err
	}
	typed = errs.New(errs.ArchiveInvalid, "the archive cannot be decompressed")
	typed.Err = err
	return n, typed
}
