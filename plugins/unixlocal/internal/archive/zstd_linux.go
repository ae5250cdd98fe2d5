// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// Zstd compresses in the manner of zstd.
type Zstd struct{}

// NewReader decompresses.
func (Zstd) NewReader(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// NewWriter compresses.
func (Zstd) NewWriter(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
}
