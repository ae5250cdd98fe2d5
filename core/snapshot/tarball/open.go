// SPDX-License-Identifier: Apache-2.0

package tarball

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/sdk/driver"
)

const (
	zstdMagic = "\x28\xb5\x2f\xfd"
	gzipMagic = "\x1f\x8b"
	xzMagic   = "\xfd7zXZ"
	bzipMagic = "BZh"
)

// headerCost is what a member may cost besides its content.
const headerCost = 8 << 10

// Open finds out what an archive is compressed with.
func Open(in io.Reader, limits driver.TreeLimits) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(&bounded{r: in, left: limits.MaxInputBytes, most: limits.MaxInputBytes, what: "bytes"}, streamBuffer)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	is := func(magic string) bool { return bytes.HasPrefix(head, []byte(magic)) }
	switch {
	case len(head) == 0:
		return nil, nil, bad("the archive is empty")
	case is(gzipMagic):
		return nil, nil, bad("the archive is compressed with gzip; plain and zstd archives are read").WithHint("pipe it through gzip -d")
	case is(xzMagic):
		return nil, nil, bad("the archive is compressed with xz; plain and zstd archives are read").WithHint("pipe it through xz -d")
	case is(bzipMagic):
		return nil, nil, bad("the archive is compressed with bzip2; plain and zstd archives are read").WithHint("pipe it through bzip2 -d")
	case !is(zstdMagic):
		return b, func() {}, nil
	}
	z, err := zstd.NewReader(b, zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, nil, err
	}
	most := limits.MaxExtractedBytes + min(limits.MaxMembers, 1<<40)*headerCost
	if most < limits.MaxExtractedBytes {
		most = ^uint64(0)
	}
	return &bounded{r: z, left: most, most: most, what: "bytes after decompression"}, z.Close, nil
}

// bounded fails once more than most bytes were read.
type bounded struct {
	r          io.Reader
	left, most uint64
	what       string
}

// Read reads on.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		var one [1]byte // the bound itself is allowed
		n, err := b.r.Read(one[:])
		if n > 0 {
			return 0, tooMuch(b.what, b.most)
		}
		return 0, err
	}
	n, err := b.r.Read(p[:min(uint64(len(p)), b.left)])
	b.left -= uint64(n)
	return n, err
}
