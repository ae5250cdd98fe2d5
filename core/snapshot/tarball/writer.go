// SPDX-License-Identifier: Apache-2.0

package tarball

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/sdk/guest/tarfmt"
)

// Write writes an index, with the chunks from a store, as a tar stream. Each chunk is checked before it is written; after
// an error the stream has no end mark.
func Write(ctx context.Context, store *chunks.Store, x *index.Index, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, stop := iter.Pull2(store.Stream(ctx, func(yield func(chunks.Hash) bool) {
		for i := range x.Entries {
			for _, h := range x.Entries[i].Chunks {
				if !yield(h) {
					return
				}
			}
		}
	}))
	defer stop()
	a := &archiver{w: bufio.NewWriterSize(w, streamBuffer), next: next}
	for i := range x.Entries {
		if i%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e := &x.Entries[i]; !e.Implied() {
			if err := a.entry(e); err != nil {
				return fmt.Errorf("%q: %w", e.Path, err)
			}
		}
	}
	if _, err := a.w.Write(make([]byte, 2*tarfmt.BlockSize)); err != nil {
		return err
	}
	return a.w.Flush()
}

// archiver writes entries.
type archiver struct {
	w    *bufio.Writer
	next func() ([]byte, error, bool)
	buf  []byte
}

func (a *archiver) entry(e *index.Entry) error {
	h := tarfmt.Header{Name: e.Path, Target: e.Target, Mode: e.Mode, UID: e.UID, GID: e.GID, User: e.User, Group: e.Group, ModTime: e.ModTime}
	switch e.Kind {
	case index.Dir:
		h.Kind, h.Name = tarfmt.Dir, e.Path+"/"
		if e.Path == "" {
			h.Name = "./"
		}
	case index.Symlink:
		h.Kind = tarfmt.Symlink
	case index.HardLink:
		h.Kind = tarfmt.HardLink
	case index.File:
		h.Kind, h.Size = tarfmt.File, e.Size
		return a.file(&h, e)
	}
	return a.header(tarfmt.Append(a.buf[:0], &h))
}

func (a *archiver) header(b []byte) error {
	a.buf = b
	_, err := a.w.Write(b)
	return err
}

func (a *archiver) file(h *tarfmt.Header, e *index.Entry) error {
	if e.Sparse == nil {
		if err := a.header(tarfmt.Append(a.buf[:0], h)); err != nil {
			return err
		}
		for size := range e.Pieces {
			b, err := a.chunk(size)
			if err != nil {
				return err
			}
			if _, err := a.w.Write(b); err != nil {
				return err
			}
		}
		_, err := a.w.Write(zero[:tarfmt.Padding(e.Size)])
		return err
	}
	shown := fewer(e.Sparse)
	b, stored := tarfmt.AppendSparse(a.buf[:0], *h, shown)
	if err := a.header(b); err != nil {
		return err
	}
	if err := a.sparse(e, shown); err != nil {
		return err
	}
	_, err := a.w.Write(zero[:tarfmt.Padding(stored)])
	return err
}

// sparse writes the data of a file with holes, and zeros where the map that is shown has no hole.
func (a *archiver) sparse(e *index.Entry, shown []tarfmt.Extent) error {
	var have []byte // of the window's chunk, what was not yet written
	sizes, stop := iter.Pull(e.Pieces)
	defer stop()
	at := 0
	for _, s := range shown {
		pos := s.Off
		for ; at < len(e.Sparse) && e.Sparse[at].Off < s.Off+s.Size; at++ {
			x := e.Sparse[at]
			if err := a.zeros(x.Off - pos); err != nil {
				return err
			}
			for left := x.Size; left > 0; {
				if len(have) == 0 {
					size, ok := sizes()
					if !ok {
						return errors.New("its chunks end too early")
					}
					b, err := a.chunk(size)
					if err != nil {
						return err
					}
					have = b
				}
				n := min(left, int64(len(have)))
				if _, err := a.w.Write(have[:n]); err != nil {
					return err
				}
				have, left = have[n:], left-n
			}
			pos = x.Off + x.Size
		}
		if err := a.zeros(s.Off + s.Size - pos); err != nil {
			return err
		}
	}
	return nil
}

func (a *archiver) zeros(n int64) error {
	for n > 0 {
		k := min(n, hole)
		if _, err := a.w.Write(zero[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// chunk gives the next chunk, which must be of that size.
func (a *archiver) chunk(size int) ([]byte, error) {
	b, err, ok := a.next()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errors.New("its chunks end too early")
	case len(b) != size:
		return nil, fmt.Errorf("a chunk has %d bytes, not %d", len(b), size)
	}
	return b, nil
}

// fewer closes the smallest holes until readers of archives can hold the map.
func fewer(in []index.Extent) []tarfmt.Extent {
	for gap := int64(0); ; gap = max(2*gap, hole) {
		out := make([]tarfmt.Extent, 0, min(len(in), tarfmt.MaxExtents))
		for _, x := range in {
			if n := len(out); n > 0 && x.Off-(out[n-1].Off+out[n-1].Size) <= gap {
				out[n-1].Size = x.Off + x.Size - out[n-1].Off
				continue
			}
			out = append(out, tarfmt.Extent{Off: x.Off, Size: x.Size})
		}
		if len(out) <= tarfmt.MaxExtents {
			return out
		}
	}
}
