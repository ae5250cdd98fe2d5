// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(4*MaxChunk), zstd.WithDecoderMaxWindow(4*MaxChunk))
})

// read gives a block, decompressed and not yet checked.
func (s *Store) read(ctx context.Context, p *pack, n uint32) ([]byte, error) {
	key := blockKey{p.name, n}
	if b := s.recent.get(key); b != nil {
		return b, nil
	}
	bl := p.blocks[n]
	stored := make([]byte, bl.stored)
	r, err := s.objs.Open(ctx, p.name, bl.off, int64(bl.stored))
	if err != nil {
		return nil, gone(p.name, err)
	}
	_, err = io.ReadFull(r, stored)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, gone(p.name, err)
	}
	raw := stored
	if bl.codec == codecZstd {
		dec, err := decoder()
		if err != nil {
			return nil, err
		}
		if raw, err = dec.DecodeAll(stored, make([]byte, 0, bl.raw)); err != nil {
			return nil, &Corrupt{Object: p.name, Err: fmt.Errorf("the block at byte %d cannot be decompressed: %w", bl.off, err)}
		}
	}
	if len(raw) != int(bl.raw) {
		return nil, &Corrupt{Object: p.name, Err: fmt.Errorf("the block at byte %d has %d bytes, not %d", bl.off, len(raw), bl.raw)}
	}
	s.recent.put(key, raw)
	return raw, nil
}

// chunk cuts a chunk out of its block and checks it.
func chunk(p *pack, raw []byte, h Hash, at place) ([]byte, error) {
	b := raw[at.off : at.off+at.size]
	if got := Sum(b); got != h {
		return nil, &Corrupt{Object: p.name, Chunk: &h, Err: fmt.Errorf("its content has the hash %s", got)}
	}
	return b, nil
}

// Read gives one chunk.
func (s *Store) Read(ctx context.Context, h Hash) ([]byte, error) {
	p, at, ok := s.find(h)
	if !ok {
		return nil, s.missing(h)
	}
	raw, err := s.read(ctx, p, at.block)
	if err != nil {
		return nil, err
	}
	return chunk(p, raw, h, at)
}

// ReadAll gives the chunks one after the other, at most most bytes.
func (s *Store) ReadAll(ctx context.Context, hashes []Hash, most int) ([]byte, error) {
	var out []byte
	for _, h := range hashes {
		b, err := s.Read(ctx, h)
		if err != nil {
			return nil, err
		}
		if len(out)+len(b) > most {
			return nil, fmt.Errorf("there are more than %d bytes", most)
		}
		out = append(out, b...)
	}
	return out, nil
}

// task is one block of a stream, and what is wanted of it.
type task struct {
	pack  *pack
	block uint32
	hash  []Hash
	at    []place
	err   error
	out   [][]byte
	done  chan struct{}
}

// Stream gives chunks in order, reading ahead. The first error is the last thing that it gives. The sequence is drawn
// from another goroutine.
func (s *Store) Stream(ctx context.Context, hashes iter.Seq[Hash]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		workers := min(runtime.GOMAXPROCS(0), 4)
		ordered, work := make(chan *task, 2*workers), make(chan *task, 2*workers)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for t := range work {
					s.perform(ctx, t)
				}
			})
		}
		wg.Go(func() {
			defer close(ordered)
			defer close(work)
			s.plan(ctx, hashes, ordered, work)
		})
		defer wg.Wait()
		defer cancel(errors.New("nobody reads on"))
		for t := range ordered {
			<-t.done
			for _, b := range t.out {
				if !yield(b, nil) {
					return
				}
			}
			if t.err != nil {
				yield(nil, t.err)
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
		}
	}
}

// plan puts chunks that follow each other in one block into one task.
func (s *Store) plan(ctx context.Context, hashes iter.Seq[Hash], ordered, work chan<- *task) {
	var t *task
	send := func() bool {
		if t == nil {
			return true
		}
		now := t
		t = nil
		for _, ch := range []chan<- *task{work, ordered} {
			select {
			case ch <- now:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	for h := range hashes {
		p, at, ok := s.find(h)
		if t != nil && (!ok || t.pack != p || t.block != at.block) && !send() {
			return
		}
		if t == nil {
			t = &task{pack: p, block: at.block, done: make(chan struct{})}
		}
		if !ok {
			t.err = s.missing(h)
			break
		}
		t.hash, t.at = append(t.hash, h), append(t.at, at)
	}
	send()
}

func (s *Store) perform(ctx context.Context, t *task) {
	defer close(t.done)
	if t.err != nil {
		return
	}
	raw, err := s.read(ctx, t.pack, t.block)
	if err != nil {
		t.err = err
		return
	}
	for i, h := range t.hash {
		b, err := chunk(t.pack, raw, h, t.at[i])
		if err != nil {
			t.err = err
			return
		}
		t.out = append(t.out, b)
	}
}

// blockCache remembers the blocks that were read last: files that share one are often read one after the other.
type blockCache struct {
	mu     sync.Mutex
	keys   []blockKey // guarded by mu; the oldest first
	blocks [][]byte   // guarded by mu
}

type blockKey struct {
	pack  string
	block uint32
}

const cachedBlocks = 16

func (c *blockCache) get(k blockKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.keys, k); i >= 0 {
		return c.blocks[i]
	}
	return nil
}

func (c *blockCache) put(k blockKey, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) == cachedBlocks {
		c.keys, c.blocks = slices.Delete(c.keys, 0, 1), slices.Delete(c.blocks, 0, 1)
	}
	c.keys, c.blocks = append(c.keys, k), append(c.blocks, b)
}
