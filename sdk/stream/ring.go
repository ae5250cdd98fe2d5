// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"io"
	"sort"
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	minWindow = 64 << 10
	minBlock  = 4 << 10
	maxBlock  = 256 << 10
	// keepSize is the least that Keep does not copy.
	keepSize = 16 << 10
	// maxSegments bounds a program that changes between its streams for every byte.
	maxSegments = 16 << 10
)

// Ring holds the output of one process between the process and whoever follows it.
//
// Offsets count all bytes of all streams. A writer waits while a follower is a whole window behind; without followers it
// never waits, and what is older than the retained bytes is dropped. So a process is slowed down by a slow reader but
// never stopped by an absent one, and a follower that comes back finds what it missed, or is told that it is gone.
type Ring struct {
	window, retain uint64

	mu       sync.Mutex
	changed  *sync.Cond
	segments []segment // by offset
	block    *block    // written to; may be nil
	size     int       // of the next block
	head     uint64    // offset of the next byte written
	written  uint64    // bytes ever written: head without the gaps
	held     uint64    // bytes in segments
	closed   bool
	readers  []*Follower
}

// segment is a run of bytes of one stream. Between two segments there may be a gap.
type segment struct {
	offset uint64
	before uint64 // bytes written before it
	stream int32
	block  *block
	lo, hi int
}

func (s segment) end() uint64 { return s.offset + uint64(s.hi-s.lo) }

type block struct {
	root mem.Buffer
	data []byte
	used int
	refs int // segments
}

// NewRing makes a ring whose first byte has an offset. It retains the given bytes for followers that come back.
func NewRing(offset, retain uint64) *Ring {
	r := &Ring{window: max(retain, minWindow, DefaultWindow), retain: retain, head: offset, size: minBlock}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// DefaultWindow is how far a follower may be behind when the ring retains less.
const DefaultWindow = 1 << 20

// Retain changes how much is retained for followers that come back.
func (r *Ring) Retain(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retain = n
	r.window = max(r.window, n)
	r.dropLocked()
}

// Write adds output of one of the streams. It fails with io.ErrClosedPipe after [Ring.Close].
func (r *Ring) Write(stream int32, p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := 0
	for done < len(p) {
		for !r.closed && r.fullLocked() {
			r.changed.Wait()
		}
		if r.closed {
			return done, io.ErrClosedPipe
		}
		done += r.appendLocked(stream, p[done:])
		r.dropLocked()
		r.changed.Broadcast()
	}
	return done, nil
}

// Keep is Write without a copy, unless output is retained for whoever may come back. The ring calls free once when it does
// not need p any more, also after an error.
func (r *Ring) Keep(stream int32, p []byte, free func()) error {
	r.mu.Lock()
	n := len(p)
	if r.retain > 0 || n < keepSize {
		r.mu.Unlock()
		defer free()
		_, err := r.Write(stream, p)
		return err
	}
	defer r.mu.Unlock()
	for !r.closed && r.fullLocked() {
		r.changed.Wait()
	}
	if r.closed {
		free()
		return io.ErrClosedPipe
	}
	b := &block{root: mem.NewBuffer(&p, lender(free)), data: p, used: n, refs: 1}
	r.segments = append(r.segments, segment{r.head, r.written, stream, b, 0, n})
	r.held += uint64(n)
	r.head += uint64(n)
	r.written += uint64(n)
	r.dropLocked()
	r.changed.Broadcast()
	return nil
}

// lender is the pool of one buffer.
type lender func()

// Get implements mem.BufferPool: there is no other buffer.
func (lender) Get(n int) *[]byte { return Pool().Get(n) }

// Put implements mem.BufferPool.
func (l lender) Put(*[]byte) { l() }

// fullLocked reports whether more output would have to push out what a follower has still to take.
func (r *Ring) fullLocked() bool {
	floor := r.floorLocked()
	if r.head-floor >= r.window && r.behindLocked(floor) >= r.window {
		return true
	}
	return len(r.segments) >= maxSegments && r.segments[0].end() > floor
}

// behindLocked is how many bytes there are from an offset on. Nobody can take, or acknowledge, what a gap has swallowed.
func (r *Ring) behindLocked(offset uint64) uint64 {
	i := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].end() > offset })
	if i == len(r.segments) {
		return 0
	}
	s := r.segments[i]
	return r.written - s.before - (max(offset, s.offset) - s.offset)
}

func (r *Ring) floorLocked() uint64 {
	floor := r.head
	for _, f := range r.readers {
		floor = min(floor, f.floor())
	}
	return floor
}

func (r *Ring) appendLocked(stream int32, p []byte) int {
	if r.block == nil || r.block.used == len(r.block.data) {
		if b := r.block; b != nil && b.refs == 0 {
			b.root.Free()
		}
		for r.size < maxBlock && r.size < len(p) {
			r.size *= 4
		}
		buf := Pool().Get(r.size)
		r.block = &block{root: mem.NewBuffer(buf, Pool()), data: *buf}
		r.size = min(r.size*4, maxBlock)
	}
	b := r.block
	n := copy(b.data[b.used:], p)
	if k := len(r.segments); k > 0 && r.segments[k-1].stream == stream && r.segments[k-1].block == b &&
		r.segments[k-1].hi == b.used && r.segments[k-1].end() == r.head {
		r.segments[k-1].hi += n
	} else {
		r.segments = append(r.segments, segment{r.head, r.written, stream, b, b.used, b.used + n})
		b.refs++
	}
	r.held += uint64(n)
	b.used += n
	r.head += uint64(n)
	r.written += uint64(n)
	return n
}

// dropLocked lets go of what neither a follower nor the retention needs.
func (r *Ring) dropLocked() {
	floor := r.floorLocked()
	k := 0
	for ; k < len(r.segments); k++ {
		s := r.segments[k]
		n := uint64(s.hi - s.lo)
		if s.end() > floor || r.held-n < r.retain && len(r.segments)-k < maxSegments {
			break
		}
		r.held -= n
		r.unref(s.block)
	}
	clear(r.segments[:k])
	r.segments = r.segments[k:]
}

func (r *Ring) unref(b *block) {
	if b.refs--; b.refs == 0 && b != r.block {
		b.root.Free()
	}
}

// Skip says that output up to an offset is lost. It does nothing when that offset was reached already.
func (r *Ring) Skip(to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head = max(r.head, to)
	r.changed.Broadcast()
}

// Close says that there will be no more output. Followers read what there is.
func (r *Ring) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.changed.Broadcast()
}

// Release closes the ring and gives its buffers back. Nothing can be read any more.
func (r *Ring) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.retain = true, 0
	for _, s := range r.segments {
		r.unref(s.block)
	}
	if r.block != nil {
		r.block.root.Free()
	}
	r.block, r.segments, r.held = nil, nil, 0
	r.changed.Broadcast()
}

// Head is the offset after the last byte written.
func (r *Ring) Head() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.head
}

// Retained is how many bytes the ring holds.
func (r *Ring) Retained() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Follower reads a ring from an offset on.
type Follower struct {
	ring *Ring
	pos  uint64
	// acked is what the other side has for certain; it counts once acks is set.
	acked uint64
	acks  bool
	stop  func() bool
	ctx   context.Context //nolint:containedctx // a follower is one request
}

func (f *Follower) floor() uint64 {
	if f.acks {
		return min(f.acked, f.pos)
	}
	return f.pos
}

// Follow begins to read at an offset. The caller closes the follower. It ends when ctx does.
func (r *Ring) Follow(ctx context.Context, offset uint64) *Follower {
	f := &Follower{ring: r, pos: offset, ctx: ctx}
	r.mu.Lock()
	r.readers = append(r.readers, f)
	r.mu.Unlock()
	f.stop = context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})
	return f
}

// Piece is output of one stream.
type Piece struct {
	Offset uint64
	Stream int32
	Data   mem.BufferSlice // the caller frees it
	// Lost is the offset at which lost output began, when there is any before Offset; else it is equal to Offset.
	Lost uint64
}

// Next waits for output and gives as much of one stream as is there, up to limit bytes. It gives io.EOF when the ring was
// closed and everything was read. A Piece without Data says only that output was lost at the end.
func (f *Follower) Next(limit int) (Piece, error) {
	r := f.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if err := context.Cause(f.ctx); err != nil {
			return Piece{}, err
		}
		if p, ok := f.takeLocked(limit); ok {
			r.dropLocked()
			r.changed.Broadcast()
			return p, nil
		}
		if r.closed {
			return Piece{}, io.EOF
		}
		r.changed.Wait()
	}
}

func (f *Follower) takeLocked(limit int) (Piece, bool) {
	r := f.ring
	i := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].end() > f.pos })
	if i == len(r.segments) {
		if f.pos >= r.head {
			return Piece{}, false
		}
		p := Piece{Offset: r.head, Lost: f.pos}
		f.pos = r.head
		return p, true
	}
	first := r.segments[i]
	p := Piece{Offset: max(f.pos, first.offset), Stream: first.stream, Lost: f.pos}
	f.pos = p.Offset
	for ; i < len(r.segments) && limit > 0; i++ {
		s := r.segments[i]
		if s.stream != p.Stream || s.offset > f.pos {
			break
		}
		lo := s.lo + int(f.pos-s.offset)
		n := min(s.hi-lo, limit)
		p.Data = append(p.Data, s.block.root.Slice(lo, lo+n))
		f.pos += uint64(n)
		limit -= n
	}
	return p, true
}

// Ack says that the other side has everything before an offset. After the first call output that was not acknowledged
// is kept.
func (f *Follower) Ack(offset uint64) {
	r := f.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	f.acks = true
	f.acked = max(f.acked, offset)
	r.dropLocked()
	r.changed.Broadcast()
}

// Close ends the follower. It may be called again.
func (f *Follower) Close() {
	f.stop()
	r := f.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range r.readers {
		if o == f {
			r.readers = append(r.readers[:i], r.readers[i+1:]...)
			break
		}
	}
	r.dropLocked()
	r.changed.Broadcast()
}
