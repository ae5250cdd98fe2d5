// SPDX-License-Identifier: Apache-2.0

//go:build linux

package output

import (
	"context"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

const (
	// minBuffer is what is held between a process and its readers even when less is to be kept afterwards.
	minBuffer = 512 << 10
	// maxChunk bounds one read, and is the grain in which memory is taken and given back.
	maxChunk = 256 << 10
	minChunk = 2 << 10
	// runCost is what a change from one stream to the other counts, so that alternating bytes stay bounded too.
	runCost = 16
)

// The streams of output.
const (
	Stdout uint8 = 1
	Stderr uint8 = 2
)

// Output is what a process has written, by offset over both streams in order of arrival.
//
// Its oldest part is dropped when more than keep is held and no reader that keeps up still needs it. While such a reader
// is there and the buffer is full, the writer waits, and so does the process. A reader that took nothing for stall is
// waited for no longer and will find a gap.
type Output struct {
	keep  int
	limit int
	stall time.Duration

	mu      sync.Mutex
	changed *sync.Cond // anything below
	chunks  [][]byte   // contiguous; chunks[0][0] has offset base
	base    uint64
	start   uint64 // first offset that is kept
	end     uint64
	runs    []run // oldest first; the last ends at end
	closed  bool
	spare   []byte // a dropped chunk of full size, for the next
	readers map[*Reader]struct{}
	last    time.Time // of the last append
}

// run is a stretch of one stream.
type run struct {
	end    uint64
	stream uint8
}

// New keeps the last keep bytes; stall is how long a reader that takes nothing is waited for.
func New(keep uint64, stall time.Duration) *Output {
	o := &Output{keep: int(min(keep, 1<<30)), stall: stall, readers: map[*Reader]struct{}{}}
	o.limit = max(o.keep, minBuffer)
	o.changed = sync.NewCond(&o.mu)
	return o
}

// floorLocked is the lowest offset that a reader who keeps up still needs.
func (o *Output) floorLocked() uint64 {
	floor := o.end
	for r := range o.readers {
		if !r.lagging {
			floor = min(floor, r.pos)
		}
	}
	return floor
}

// heldLocked is what counts towards keep and limit of the part from offset on.
func (o *Output) heldLocked(from uint64) int { return int(o.end-from) + runCost*len(o.runs) }

// Wait waits until the writer may append.
func (o *Output) Wait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.heldLocked(o.floorLocked()) >= o.limit {
		// Some reader holds the writer up: for how long at most?
		var next time.Duration
		for r := range o.readers {
			if r.lagging || o.heldLocked(r.pos) < o.limit {
				continue
			}
			if left := o.stall - time.Since(r.moved); left <= 0 {
				r.lagging = true
			} else if next == 0 || left < next {
				next = left
			}
		}
		if next == 0 {
			continue
		}
		t := time.AfterFunc(next, o.wake)
		o.changed.Wait()
		t.Stop()
	}
}

// wake lets every waiter look again. It takes the lock, so that it cannot come between a waiter's look and its wait.
func (o *Output) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.Broadcast()
}

// Fill lets read write into the buffer. It gives what read gave. When the output is closed, what is read is thrown away.
func (o *Output) Fill(stream uint8, read func([]byte) (int, error)) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		if o.spare == nil {
			o.spare = make([]byte, minChunk)
		}
		return read(o.spare[:cap(o.spare)])
	}
	room := o.tailLocked()
	n, err := read(room)
	if n <= 0 {
		return n, err
	}
	for r := range o.readers {
		if r.pos == o.end {
			r.moved = time.Now() // it had everything until now
		}
	}
	last := len(o.chunks) - 1
	o.chunks[last] = o.chunks[last][:len(o.chunks[last])+n]
	o.end += uint64(n)
	if k := len(o.runs); k > 0 && o.runs[k-1].stream == stream {
		o.runs[k-1].end = o.end
	} else {
		o.runs = append(o.runs, run{o.end, stream})
	}
	o.last = time.Now()
	o.dropLocked()
	if len(o.readers) > 0 {
		o.changed.Broadcast()
	}
	return n, err
}

// tailLocked is the free part of the last chunk, or a new one.
func (o *Output) tailLocked() []byte {
	if k := len(o.chunks); k > 0 {
		if c := o.chunks[k-1]; len(c) < cap(c) {
			return c[len(c):cap(c)]
		}
	}
	size := minChunk
	for size < maxChunk && uint64(size) < 2*(o.end-o.base) {
		size *= 2
	}
	c := o.spare[:0]
	o.spare = nil
	if cap(c) < size {
		c = make([]byte, 0, size)
	}
	o.chunks = append(o.chunks, c)
	return c[:cap(c)]
}

// dropLocked forgets what need not be kept.
func (o *Output) dropLocked() {
	floor := o.floorLocked()
	over := o.heldLocked(o.start) - o.keep
	if over <= 0 || o.start >= floor {
		return
	}
	o.start = min(o.start+uint64(over), floor)
	i := 0
	for i < len(o.runs) && o.runs[i].end <= o.start {
		i++
	}
	o.runs = o.runs[i:]
	for len(o.chunks) > 0 && o.base+uint64(len(o.chunks[0])) <= o.start && len(o.chunks[0]) == cap(o.chunks[0]) {
		o.base += uint64(len(o.chunks[0]))
		if cap(o.chunks[0]) == maxChunk {
			o.spare = o.chunks[0]
		}
		o.chunks[0] = nil
		o.chunks = o.chunks[1:]
	}
}

// Close says that there will be no more. What a background process writes later is read and thrown away.
func (o *Output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Broadcast()
}

// Total is how much was written, and when last.
func (o *Output) Total() (uint64, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end, o.last
}

// Reader reads output from an offset. It is for one goroutine.
type Reader struct {
	o *Output

	// Guarded by o.mu.
	pos     uint64
	moved   time.Time
	lagging bool
}

// Reader starts at an offset. One past the end waits for it.
func (o *Output) Reader(from uint64) *Reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &Reader{o: o, pos: from, moved: time.Now()}
	if from > o.end {
		r.pos = o.end
	}
	o.readers[r] = struct{}{}
	return r
}

// Close lets the process go on without this reader.
func (r *Reader) Close() {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	delete(r.o.readers, r)
	r.o.dropLocked()
	r.o.changed.Broadcast()
}

// Wait waits until there is something to read or the output has ended, which is io.EOF.
func (r *Reader) Wait(ctx context.Context) error {
	o := r.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.pos < o.end {
		return nil
	}
	stop := context.AfterFunc(ctx, o.wake)
	defer stop()
	for r.pos >= o.end && !o.closed {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o.changed.Wait()
	}
	if r.pos >= o.end {
		return io.EOF
	}
	return nil
}

// Next copies what is there, of one stream, into p. A gap comes alone, before what follows it. Both are zero when there
// is nothing to read.
func (r *Reader) Next(p []byte) (n int, stream uint8, gap driver.Gap) {
	o := r.o
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		r.moved, r.lagging = time.Now(), false
		o.dropLocked()
		o.changed.Broadcast()
	}()
	if r.pos < o.start {
		gap = driver.Gap{From: r.pos, To: o.start}
		r.pos = o.start
		return 0, 0, gap
	}
	i := sort.Search(len(o.runs), func(i int) bool { return o.runs[i].end > r.pos })
	if i == len(o.runs) {
		return 0, 0, gap
	}
	n = o.copyLocked(p[:min(uint64(len(p)), o.runs[i].end-r.pos)], r.pos)
	r.pos += uint64(n)
	return n, o.runs[i].stream, gap
}

func (o *Output) copyLocked(p []byte, from uint64) int {
	n := 0
	at := o.base
	for _, c := range o.chunks {
		if next := at + uint64(len(c)); from < next && n < len(p) {
			m := copy(p[n:], c[from-at:])
			n += m
			from += uint64(m)
		}
		at += uint64(len(c))
	}
	return n
}

// Available is how many bytes Next could give at most.
func (r *Reader) Available() int {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	return int(r.o.end - r.pos)
}
