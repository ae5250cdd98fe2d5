// SPDX-License-Identifier: Apache-2.0

// Package tarball turns tar archives into entries and chunks, and back. It reads what drivers export and what other
// programs write, takes all of it as hostile, and writes what drivers import and GNU tar and bsdtar unpack.
package tarball

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

const (
	// maxApparent bounds files with holes. Reading a hole costs as much as reading zeros, and anybody can make one.
	maxApparent = 64 << 30
	// streamBuffer joins small reads and writes of an archive.
	streamBuffer = 256 << 10
	// hole is the unit in which holes are found.
	hole = 4 << 10
	// maxHoles is when a file is taken as having no more holes.
	maxHoles = 1 << 16
)

// Reader makes entries and chunks of a tar stream.
type Reader struct {
	w      *chunks.Writer
	limits driver.TreeLimits // zero = none
	x      index.Index
	by     map[string]int // index in x.Entries
	gone   map[string]bool
	bytes  uint64
	count  uint64
	buf    []byte // a window of a file with holes
	dense  []byte // what is in it
}

// NewReader makes a reader whose chunks w stores. Limits that are zero are none.
func NewReader(w *chunks.Writer, limits driver.TreeLimits) *Reader {
	return &Reader{w: w, limits: limits, by: map[string]int{}, gone: map[string]bool{}}
}

// Read takes a whole archive.
func (g *Reader) Read(ctx context.Context, r io.Reader) error {
	end := &ending{r: bufio.NewReaderSize(r, streamBuffer)}
	tr := tar.NewReader(end)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		end.mark()
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if !end.zeros() {
				return errs.New(errs.ArchiveInvalid, "the archive ends before its end marker").WithHint("it was cut off; make it again")
			}
			_, err := io.Copy(io.Discard, end)
			return err
		}
		if err != nil {
			return invalid(err)
		}
		if err := g.member(ctx, h, tr); err != nil {
			var typed *errs.Error
			if errors.As(err, &typed) && typed.Code == errs.ArchiveInvalid || errors.Is(err, errs.ArchiveLimit) {
				return fmt.Errorf("member %q: %w", h.Name, err)
			}
			return err
		}
	}
}

func invalid(err error) error {
	var typed *errs.Error
	if errors.As(err, &typed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &errs.Error{Code: errs.ArchiveInvalid, Message: "the archive cannot be read", Err: err}
}

// ending remembers the last bytes of a stream: the reader of the archive takes one without an end marker for complete.
type ending struct {
	r    io.Reader
	last [512]byte
}

// Read reads on.
func (e *ending) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n >= len(e.last) {
		copy(e.last[:], p[n-len(e.last):n])
	} else if n > 0 {
		copy(e.last[:], e.last[n:])
		copy(e.last[len(e.last)-n:], p[:n])
	}
	return n, err
}

// mark lets [ending.zeros] tell a block of zeros that comes after it from the end of what came before: what fills the last
// block of a file is less than a block.
func (e *ending) mark() { e.last[len(e.last)-1] = 1 }

func (e *ending) zeros() bool { return e.last == [512]byte{} }

func bad(format string, args ...any) *errs.Error {
	return errs.New(errs.ArchiveInvalid, format, args...)
}

// clean gives the path of a member; empty is the top.
func clean(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return "", bad("its name is absolute")
	}
	var keep []string
	for c := range strings.SplitSeq(name, "/") {
		if c == ".." {
			return "", bad(`its name holds ".."`)
		}
		if c != "" && c != "." {
			keep = append(keep, c)
		}
	}
	p := strings.Join(keep, "/")
	if p != "" {
		if err := index.CheckPath(p); err != nil {
			return "", bad("%v", err)
		}
	}
	return p, nil
}

// Index gives what the archive held, in the order of the archive; the hashes hold after the writer's Barrier.
func (g *Reader) Index() *index.Index { return &g.x }

// Holds reports whether the archive had the path.
func (g *Reader) Holds(path string) bool {
	_, ok := g.by[path]
	return ok || g.gone[path]
}

func (g *Reader) leave(path, reason string) {
	g.x.Left = append(g.x.Left, index.Left{Path: path, Reason: reason})
}

func (g *Reader) member(ctx context.Context, h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		if p, ok := h.PAXRecords[driver.PAXSkippedPath]; ok {
			g.leave(p, h.PAXRecords[driver.PAXSkippedReason])
		}
		return nil
	}
	if g.count++; g.limits.MaxMembers > 0 && g.count > g.limits.MaxMembers {
		return tooMuch("members", g.limits.MaxMembers)
	}
	path, err := clean(h.Name)
	if err != nil {
		return err
	}
	e := index.Entry{Path: path, Mode: uint32(h.Mode) & 0o7777, User: h.Uname, Group: h.Gname, ModTime: h.ModTime}
	if h.Uid < 0 || h.Uid > math.MaxUint32 || h.Gid < 0 || h.Gid > math.MaxUint32 {
		return bad("its owner is %d:%d", h.Uid, h.Gid)
	}
	e.UID, e.GID = uint32(h.Uid), uint32(h.Gid)
	if v := h.PAXRecords[driver.PAXVersion]; v != "" {
		e.Seen = Seen(v)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		e.Kind = index.Dir
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		e.Kind = index.File
	case tar.TypeSymlink:
		e.Kind, e.Target = index.Symlink, h.Linkname
	case tar.TypeLink:
		return g.hardLink(&e, h.Linkname)
	case tar.TypeFifo:
		g.leave(path, "FIFO: only regular files, directories and links are saved")
		return nil
	case tar.TypeChar, tar.TypeBlock:
		g.leave(path, "device: only regular files, directories and links are saved")
		return nil
	default:
		g.leave(path, fmt.Sprintf("member of unknown kind %q", h.Typeflag))
		return nil
	}
	if e.Kind == index.File {
		if g.bytes += uint64(h.Size); g.limits.MaxExtractedBytes > 0 && g.bytes > g.limits.MaxExtractedBytes {
			return tooMuch("bytes", g.limits.MaxExtractedBytes)
		}
		sparse := isSparse(h)
		if sparse && h.Size > maxApparent {
			g.gone[path] = true
			g.leave(path, fmt.Sprintf("a file with holes of %d bytes: more than %d are not read", h.Size, int64(maxApparent)))
			return nil
		}
		e.Size = h.Size
		if sparse {
			err = g.holes(ctx, &e, r)
		} else {
			err = g.file(ctx, &e, r)
		}
		if err != nil {
			return err
		}
	}
	return g.add(&e)
}

func tooMuch(what string, most uint64) error {
	return errs.New(errs.ArchiveLimit, "the archive holds more than %d %s", most, what).WithHint("raise the limit if the archive can be trusted")
}

func (g *Reader) add(e *index.Entry) error {
	if at, twice := g.by[e.Path]; twice {
		if old := &g.x.Entries[at]; e.Kind != index.Dir || old.Kind != index.Dir {
			return bad("the archive holds the name twice")
		}
		g.x.Entries[at] = *e
		return nil
	}
	if e.Path == "" && e.Kind != index.Dir {
		return bad("the top is not a directory")
	}
	g.by[e.Path] = len(g.x.Entries)
	g.x.Entries = append(g.x.Entries, *e)
	return nil
}

func (g *Reader) hardLink(e *index.Entry, target string) error {
	to, err := clean(target)
	if err != nil || to == "" {
		return bad("the hard link leads outside: %q", target)
	}
	if g.gone[to] {
		g.gone[e.Path] = true
		g.leave(e.Path, fmt.Sprintf("a hard link to %q, which is left out", to))
		return nil
	}
	at, ok := g.by[to]
	if !ok {
		return bad("the target of the hard link, %q, is not there before it", target)
	}
	first := &g.x.Entries[at]
	switch first.Kind {
	case index.HardLink:
		to = first.Target
		first = &g.x.Entries[g.by[to]]
	case index.Dir:
		return bad("the target of the hard link, %q, is a directory", target)
	case index.File, index.Symlink:
	}
	first.Linked = true
	// It is the same file: what an archive says of it here does not count.
	link := index.Entry{Path: e.Path, Kind: index.HardLink, Target: to}
	link.Mode, link.UID, link.GID, link.User, link.Group, link.ModTime = first.Mode, first.UID, first.GID, first.User, first.Group, first.ModTime
	return g.add(&link)
}

func isSparse(h *tar.Header) bool {
	return h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.realsize"] != "" || h.PAXRecords["GNU.sparse.size"] != ""
}

// file takes the content of a file.
func (g *Reader) file(ctx context.Context, e *index.Entry, r io.Reader) error {
	if e.Size == 0 {
		return nil
	}
	e.Chunks = make([]chunks.Hash, 0, min((e.Size+chunks.MaxChunk-1)/chunks.MaxChunk, 1<<16))
	if int64(cap(e.Chunks))*chunks.MaxChunk < e.Size {
		return g.large(ctx, e, r)
	}
	n := 0
	e.Chunks = e.Chunks[:cap(e.Chunks)]
	for size := range e.Pieces {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := g.w.Write(r, size, &e.Chunks[n]); err != nil {
			return invalid(err)
		}
		n++
	}
	return nil
}

// large takes a file whose size may be a lie: what is kept of it grows with what has come.
func (g *Reader) large(ctx context.Context, e *index.Entry, r io.Reader) error {
	var hashes []*chunks.Hash
	for size := range e.Pieces {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h := new(chunks.Hash)
		hashes = append(hashes, h)
		if err := g.w.Write(r, size, h); err != nil {
			return invalid(err)
		}
	}
	if err := g.w.Barrier(); err != nil {
		return err
	}
	e.Chunks = e.Chunks[:0]
	for _, h := range hashes {
		e.Chunks = append(e.Chunks, *h)
	}
	return nil
}

// holes takes the content of a file with holes; where zeros are does not matter to anybody, so they are holes too.
func (g *Reader) holes(ctx context.Context, e *index.Entry, r io.Reader) error {
	if g.buf == nil {
		g.buf, g.dense = make([]byte, chunks.MaxChunk), make([]byte, 0, chunks.MaxChunk)
	}
	e.Sparse = []index.Extent{}
	var hashes []*chunks.Hash
	for off := int64(0); off < e.Size; off += chunks.MaxChunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b := g.buf[:min(chunks.MaxChunk, e.Size-off)]
		if _, err := io.ReadFull(r, b); err != nil {
			return invalid(err)
		}
		g.dense = g.dense[:0]
		for at := 0; at < len(b); at += hole {
			piece := b[at:min(at+hole, len(b))]
			if len(e.Sparse) < maxHoles && zeros(piece) {
				continue
			}
			g.dense = append(g.dense, piece...)
			from, size := off+int64(at), int64(len(piece))
			if n := len(e.Sparse); n > 0 && e.Sparse[n-1].Off+e.Sparse[n-1].Size == from {
				e.Sparse[n-1].Size += size
			} else {
				e.Sparse = append(e.Sparse, index.Extent{Off: from, Size: size})
			}
		}
		if len(g.dense) > 0 {
			h := new(chunks.Hash)
			hashes = append(hashes, h)
			if err := g.w.Write(bytes.NewReader(g.dense), len(g.dense), h); err != nil {
				return err
			}
		}
	}
	if err := g.w.Barrier(); err != nil {
		return err
	}
	for _, h := range hashes {
		e.Chunks = append(e.Chunks, *h)
	}
	return nil
}

var zero [hole]byte

func zeros(b []byte) bool { return bytes.Equal(b, zero[:len(b)]) }

// Seen stands for a version.
func Seen(version string) uint64 {
	sum := sha256.Sum256([]byte(version))
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}
