// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// Writer stores chunks. Hashing, compressing and storing overlap; the memory is bounded. A Writer is used by one
// goroutine.
type Writer struct {
	s    *Store
	opts WriterOptions

	g      *errgroup.Group
	ctx    context.Context //nolint:containedctx // of the one use of a writer
	free   chan *batch
	full   chan *batch
	frames chan frame
	cur    *batch
	closed bool

	mu    sync.Mutex
	mine  map[Hash]struct{} // guarded by mu; stored by this writer, or to be
	stats Stats             // guarded by mu
}

// WriterOptions are for [Store.NewWriter].
type WriterOptions struct {
	Plain bool // do not compress
	// HashOnly stores nothing.
	HashOnly bool
	// again stores also what another pack has.
	again bool
}

// Stats say what a writer did.
type Stats struct {
	Chunks, Bytes       int64 // all that were written, before compression
	NewChunks, NewBytes int64 // what was not there before
	Stored              int64 // bytes of the new packs
	Packs               int
}

// batch is chunks on their way: one large, or some small ones.
type batch struct {
	data  []byte
	parts []part
}

type part struct {
	size int
	hash *Hash
}

// frame is a compressed block.
type frame struct {
	data   []byte
	raw    int
	codec  byte
	chunks []located
}

// NewWriter makes a writer. Its Close must be called.
func (s *Store) NewWriter(ctx context.Context, opts WriterOptions) *Writer {
	workers := min(runtime.GOMAXPROCS(0), 4)
	w := &Writer{s: s, opts: opts, full: make(chan *batch, workers), frames: make(chan frame, workers), mine: map[Hash]struct{}{}}
	w.free = make(chan *batch, 2*workers+2)
	for range cap(w.free) {
		w.free <- &batch{data: make([]byte, 0, MaxChunk)}
	}
	w.g, w.ctx = errgroup.WithContext(ctx)
	var busy sync.WaitGroup
	for range workers {
		busy.Add(1)
		w.g.Go(func() error {
			defer busy.Done()
			return w.work()
		})
	}
	go func() {
		busy.Wait()
		close(w.frames)
	}()
	packs := make(chan sealed, 1)
	empty := make(chan []byte, 3)
	for range cap(empty) {
		empty <- nil
	}
	w.g.Go(func() error {
		defer close(packs)
		return w.assemble(packs, empty)
	})
	w.g.Go(func() error { return w.store(packs, empty) })
	return w
}

// Write reads exactly size bytes, at most [MaxChunk], as one chunk. Its hash is in *hash once Close has returned.
func (w *Writer) Write(r io.Reader, size int, hash *Hash) error {
	if w.cur != nil && len(w.cur.data)+size > MaxChunk {
		if err := w.submit(); err != nil {
			return err
		}
	}
	if w.cur == nil {
		select {
		case w.cur = <-w.free:
		case <-w.ctx.Done():
			return w.failure()
		}
	}
	at := len(w.cur.data)
	w.cur.data = w.cur.data[:at+size]
	if _, err := io.ReadFull(r, w.cur.data[at:]); err != nil {
		w.cur.data = w.cur.data[:at]
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	w.cur.parts = append(w.cur.parts, part{size, hash})
	return nil
}

// WriteAll writes b in chunks and gives their hashes, which hold once Close has returned.
func (w *Writer) WriteAll(b []byte) ([]Hash, error) {
	hashes := make([]Hash, (len(b)+MaxChunk-1)/MaxChunk)
	for i := range hashes {
		n := min(len(b), MaxChunk)
		if err := w.Write(bytes.NewReader(b[:n]), n, &hashes[i]); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	return hashes, nil
}

func (w *Writer) submit() error {
	select {
	case w.full <- w.cur:
		w.cur = nil
		return nil
	case <-w.ctx.Done():
		return w.failure()
	}
}

// failure waits for what ended the work.
func (w *Writer) failure() error {
	if err := w.end(); err != nil {
		return err
	}
	return context.Cause(w.ctx)
}

func (w *Writer) end() error {
	if !w.closed {
		w.closed = true
		close(w.full)
	}
	return w.g.Wait()
}

// Close stores what is left. When it returns nil everything is stored, durably.
func (w *Writer) Close() (Stats, error) {
	if w.cur != nil && !w.closed {
		if err := w.submit(); err != nil {
			return Stats{}, err
		}
	}
	if err := w.end(); err != nil {
		return Stats{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats, nil
}

// Abort ends a writer whose chunks are not wanted any more. What is stored already stays until the store is swept.
func (w *Writer) Abort() { _ = w.end() } // the caller has an error of its own

// Barrier waits until the hashes of all that was written are known.
func (w *Writer) Barrier() error {
	if w.cur != nil {
		if err := w.submit(); err != nil {
			return err
		}
	}
	idle := make([]*batch, 0, cap(w.free))
	for range cap(w.free) { // all are back when no work is left
		select {
		case b := <-w.free:
			idle = append(idle, b)
		case <-w.ctx.Done():
			return w.failure()
		}
	}
	for _, b := range idle {
		w.free <- b
	}
	return nil
}

// work hashes, drops what is there already and compresses the rest.
func (w *Writer) work() error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(MaxChunk), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	defer func() { _ = enc.Close() }() // only EncodeAll was used
	for b := range w.full {
		f := w.block(b)
		if len(f.chunks) > 0 && !w.opts.HashOnly {
			f.raw = len(b.data)
			if !w.opts.Plain && compressible(b.data) {
				f.data, f.codec = enc.EncodeAll(b.data, nil), codecZstd
			}
			if f.codec == codecRaw || len(f.data) >= len(b.data) {
				f.data, f.codec = bytes.Clone(b.data), codecRaw
			}
			select {
			case w.frames <- f:
			case <-w.ctx.Done():
				return context.Cause(w.ctx)
			}
		}
		b.data, b.parts = b.data[:0], b.parts[:0]
		w.free <- b // there is room for every batch
	}
	return nil
}

// block leaves in b what is new.
func (w *Writer) block(b *batch) (f frame) {
	at, keep := 0, 0
	for _, p := range b.parts {
		chunk := b.data[at : at+p.size]
		at += p.size
		h := Sum(chunk)
		*p.hash = h
		if !w.claim(h, p.size) {
			continue
		}
		copy(b.data[keep:], chunk)
		f.chunks = append(f.chunks, located{hash: h, off: uint32(keep), size: uint32(p.size)})
		keep += p.size
	}
	b.data = b.data[:keep]
	return f
}

// claim reports whether this writer is to store the chunk.
func (w *Writer) claim(h Hash, size int) bool {
	known := !w.opts.again && w.s.Has(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Chunks++
	w.stats.Bytes += int64(size)
	if !known {
		_, known = w.mine[h]
	}
	if known {
		return false
	}
	w.mine[h] = struct{}{}
	w.stats.NewChunks++
	w.stats.NewBytes += int64(size)
	return true
}

// compressible looks at three samples: encoding random data only to throw the result away costs as much as hashing it.
func compressible(b []byte) bool {
	const sample = 4 << 10
	if len(b) < 4*sample {
		return true
	}
	for _, at := range []int{0, len(b)/2 - sample/2, len(b) - sample} {
		if compress.Estimate(b[at:at+sample]) > 0.02 {
			return true
		}
	}
	return false
}

// sealed is a pack that is ready to be stored.
type sealed struct {
	pack   *pack
	chunks []located
	data   []byte
}

// assemble makes packs of blocks.
func (w *Writer) assemble(packs chan<- sealed, empty <-chan []byte) error {
	var s sealed
	send := func() error {
		var name string
		s.data, name = seal(s.data, s.pack.blocks, s.chunks)
		s.pack.name, s.pack.size = name, int64(len(s.data))
		select {
		case packs <- s:
			s = sealed{}
			return nil
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
	for f := range w.frames {
		if s.pack == nil {
			select {
			case s.data = <-empty:
				s.pack = &pack{}
			case <-w.ctx.Done():
				return context.Cause(w.ctx)
			}
			if s.data == nil {
				s.data = make([]byte, 0, packSize+2*MaxChunk) // the system gives pages as they are touched
			}
		}
		for _, c := range f.chunks {
			c.block = uint32(len(s.pack.blocks))
			s.chunks = append(s.chunks, c)
		}
		s.pack.blocks = append(s.pack.blocks, block{off: int64(len(s.data)), stored: uint32(len(f.data)), raw: uint32(f.raw), codec: f.codec})
		s.data = append(s.data, f.data...)
		if len(s.data) >= packSize {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if s.pack != nil && w.ctx.Err() == nil {
		return send()
	}
	return nil
}

// store puts packs into the object store.
func (w *Writer) store(packs <-chan sealed, empty chan<- []byte) error {
	for s := range packs {
		if _, err := w.s.objs.Put(w.ctx, s.pack.name, s.data); err != nil {
			return fmt.Errorf("store %d bytes in %s: %w", len(s.data), w.s.objs.Where(), err)
		}
		w.s.add(s.pack, s.chunks)
		w.mu.Lock()
		w.stats.Packs++
		w.stats.Stored += int64(len(s.data))
		w.mu.Unlock()
		empty <- s.data[:0] // there is room for every buffer
	}
	return nil
}
