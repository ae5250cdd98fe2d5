// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"bytes"
	"context"
	"errors"
)

// Swept says what a sweep did.
type Swept struct {
	Packs   int   `json:"packs"`   // that are gone
	Chunks  int   `json:"chunks"`  // that are gone with them
	Moved   int   `json:"moved"`   // chunks that were written again, because most around them was of no use
	Bytes   int64 `json:"bytes"`   // that are free again
	Packed  int64 `json:"packed"`  // bytes of packs after it
	Checked int   `json:"checked"` // packs that were looked at
}

// Sweep removes the chunks that are not in live. Packs that are half empty are written again, without the holes, and those
// that cannot be read stay. The caller must have the store for itself. With dry nothing is removed.
func (s *Store) Sweep(ctx context.Context, live map[Hash]struct{}, dry bool) (out Swept, err error) {
	if err := s.Load(ctx); err != nil {
		return out, err
	}
	used := make([]int64, len(s.packs)) // bytes in use, before compression
	raw := make([]int64, len(s.packs))
	move := map[uint32][]Hash{}
	chunks := make([]int, len(s.packs))
	for h, at := range s.places {
		if _, ok := live[h]; ok {
			used[at.pack] += int64(at.size)
			chunks[at.pack]++
		}
	}
	out.Checked = len(s.packs)
	var drop []uint32
	for i, p := range s.packs {
		for _, b := range p.blocks {
			raw[i] += int64(b.raw)
		}
		switch {
		case used[i] == 0 && chunks[i] == 0:
			drop = append(drop, uint32(i))
		case used[i]*2 < raw[i]:
			drop = append(drop, uint32(i))
			move[uint32(i)] = nil
		default:
			out.Packed += p.size
		}
	}
	for h, at := range s.places {
		if _, ok := move[at.pack]; !ok {
			continue
		}
		if _, ok := live[h]; ok {
			move[at.pack] = append(move[at.pack], h)
		}
	}
	for _, i := range drop {
		out.Bytes += s.packs[i].size
		out.Chunks += s.packs[i].chunks - len(move[i])
		out.Moved += len(move[i])
	}
	out.Packs = len(drop)
	if dry || len(drop) == 0 {
		return out, nil
	}
	stored, err := s.move(ctx, move)
	if err != nil {
		return out, err
	}
	out.Bytes -= stored
	out.Packed += stored
	for _, i := range drop {
		if err := s.objs.Delete(ctx, s.packs[i].name); err != nil {
			return out, err
		}
	}
	// Places changed: everything is found anew.
	s.mu.Lock()
	s.packs, s.names, s.places, s.bad = nil, map[string]int{}, map[Hash]place{}, nil
	s.mu.Unlock()
	return out, s.Load(ctx)
}

func (s *Store) move(ctx context.Context, move map[uint32][]Hash) (int64, error) {
	if len(move) == 0 {
		return 0, nil
	}
	w := s.NewWriter(ctx, WriterOptions{again: true})
	var sums []Hash
	for _, hashes := range move {
		sums = append(sums, make([]Hash, len(hashes))...)
	}
	n := 0
	for _, hashes := range move {
		for _, h := range hashes {
			b, err := s.Read(ctx, h)
			if err == nil {
				err = w.Write(bytes.NewReader(b), len(b), &sums[n])
			}
			if err != nil {
				w.Abort()
				return 0, err
			}
			n++
		}
	}
	stats, err := w.Close()
	return stats.Stored, err
}

// Verify reads every chunk. It goes on past what is damaged and gives all of it.
func (s *Store) Verify(ctx context.Context, progress func(done, total int64)) (bad []error, err error) {
	if err := s.Load(ctx); err != nil {
		return nil, err
	}
	byBlock := make([]map[uint32][]Hash, len(s.packs))
	for h, at := range s.places {
		if byBlock[at.pack] == nil {
			byBlock[at.pack] = map[uint32][]Hash{}
		}
		byBlock[at.pack][at.block] = append(byBlock[at.pack][at.block], h)
	}
	bad = append(bad, s.bad...)
	total, done := s.Size(), int64(0)
	for i, p := range s.packs {
		for n := range p.blocks {
			if ctx.Err() != nil {
				return bad, context.Cause(ctx)
			}
			hashes := byBlock[i][uint32(n)]
			if len(hashes) == 0 {
				continue
			}
			raw, err := s.read(ctx, p, uint32(n))
			if c, damaged := errors.AsType[*Corrupt](err); damaged {
				for _, h := range hashes {
					bad = append(bad, &Corrupt{Object: c.Object, Chunk: &h, Err: c.Err})
				}
				continue
			}
			if err != nil {
				return bad, err
			}
			for _, h := range hashes {
				if _, err := chunk(p, raw, h, s.places[h]); err != nil {
					bad = append(bad, err)
				}
			}
		}
		done += p.size
		if progress != nil {
			progress(done, total)
		}
	}
	return bad, nil
}
