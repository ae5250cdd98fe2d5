// SPDX-License-Identifier: Apache-2.0

// Package zstd is the archive compression "zstd" for package fsys. It stands apart so that only programs which want it
// carry it: it adds about 500 KB.
package zstd

import (
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/sdk/errs"
)

// maxWindow bounds what a stream can make a reader allocate; it is what "zstd" itself uses up to level 19.
const maxWindow = 8 << 20

// Codec compresses fast rather than hard, with a bounded window.
type Codec struct{ Decoder }

// Decoder only reads: it is half as big, and what a guest carries. Its driver compresses what a guest exports.
type Decoder struct{}

// NewWriter says that there is none.
func (Decoder) NewWriter(io.Writer) (io.WriteCloser, error) {
	return nil, errs.New(errs.Unsupported, "the guest does not compress").With("feature", "tree.compression.zstd")
}

// NewReader reads a compressed stream.
func (Decoder) NewReader(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, errs.Wrap(errs.ArchiveInvalid, "read zstd stream", err)
	}
	return d.IOReadCloser(), nil
}

// NewWriter compresses a stream.
func (Codec) NewWriter(w io.Writer) (io.WriteCloser, error) {
	e, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "write zstd stream", err)
	}
	return e, nil
}
