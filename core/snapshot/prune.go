// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/sdk/errs"
)

// Remove forgets a snapshot and its names. Its space is free after the next [Repo.Sweep].
func (r *Repo) Remove(ctx context.Context, rec *Record) error {
	unlock, err := r.share(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	names, err := r.Names(ctx)
	if err != nil {
		return err
	}
	found, err := r.nameObjects(ctx)
	if err != nil {
		return err
	}
	for name, id := range names {
		if id == rec.ID {
			if err := r.deleteAll(ctx, found[name]); err != nil {
				return err
			}
		}
	}
	if err := r.objs.Delete(ctx, recordPrefix+rec.ID); err != nil {
		return err
	}
	if rec.Native != nil && r.native != nil {
		r.native(ctx, *rec.Native)
	}
	return nil
}

// Retention says which snapshots of a series are kept. Those with a name always are, and so is the newest.
type Retention struct {
	Keep   int           // the newest; 0 = all
	MaxAge time.Duration // 0 = any
}

// Prune forgets the snapshots of a series that retention does not keep.
func (r *Repo) Prune(ctx context.Context, series string, keep Retention) (gone []*Record, err error) {
	if keep == (Retention{}) {
		return nil, nil
	}
	recs, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	names, err := r.Names(ctx)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, id := range names {
		named[id] = true
	}
	n, now := 0, r.opts.Now()
	for _, rec := range recs {
		if rec.Series != series {
			continue
		}
		n++
		old := (keep.Keep > 0 && n > keep.Keep) || (keep.MaxAge > 0 && now.Sub(rec.Created) > keep.MaxAge)
		if n == 1 || !old || named[rec.ID] {
			continue
		}
		if err := r.Remove(ctx, rec); err != nil {
			return gone, err
		}
		gone = append(gone, rec)
	}
	return gone, nil
}

// Sweep removes what no snapshot needs. It waits until nobody else uses the store, so that what another process is writing,
// or has just found there and counts on, stays. With dry it only says what it would do.
func (r *Repo) Sweep(ctx context.Context, dry bool) (chunks.Swept, error) {
	locker, ok := r.objs.(objects.Locker)
	if !ok {
		return chunks.Swept{}, errs.New(errs.Unsupported, "%s cannot keep its users apart, so it cannot be swept", r.Where())
	}
	unlock, err := locker.Lock(ctx, true)
	if err != nil {
		return chunks.Swept{}, err
	}
	defer unlock()
	live, err := r.live(ctx)
	if err != nil {
		return chunks.Swept{}, fmt.Errorf("nothing was removed: %w", err)
	}
	out, err := r.chunks.Sweep(ctx, live, dry)
	if err != nil || dry {
		return out, err
	}
	if f, ok := r.objs.(interface{ Tidy(context.Context) error }); ok {
		return out, f.Tidy(ctx)
	}
	return out, nil
}

// live gives all chunks that snapshots need. Whatever cannot be read makes it fail: what it holds would be lost.
func (r *Repo) live(ctx context.Context) (map[chunks.Hash]struct{}, error) {
	recs, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.chunks.Load(ctx); err != nil {
		return nil, err
	}
	live := map[chunks.Hash]struct{}{}
	mark := func(hashes []chunks.Hash) {
		for _, h := range hashes {
			live[h] = struct{}{}
		}
	}
	for _, rec := range recs {
		root, err := r.root(ctx, rec)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", Short(rec.ID), err)
		}
		mark(rec.Root)
		for _, p := range root.Pages {
			mark(p.Chunks)
		}
		x, err := r.Load(ctx, rec)
		if err != nil {
			return nil, err
		}
		for i := range x.Entries {
			mark(x.Entries[i].Chunks)
		}
	}
	return live, nil
}

// Problem is something that is wrong with the store.
type Problem struct {
	Snapshot string `json:"snapshot,omitempty"` // empty = not one alone
	Text     string `json:"text"`
}

// Verify reads everything and gives what is damaged, and which snapshots and files suffer from it.
func (r *Repo) Verify(ctx context.Context, progress func(done, total int64)) ([]Problem, error) {
	unlock, err := r.share(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var out []Problem
	recs, err := r.List(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		for text := range strings.SplitSeq(err.Error(), "\n") {
			out = append(out, Problem{Text: text})
		}
	}
	bad, err := r.chunks.Verify(ctx, progress)
	if err != nil {
		return nil, err
	}
	damaged := map[chunks.Hash]bool{}
	for _, err := range bad {
		out = append(out, Problem{Text: err.Error()})
		if c, ok := errors.AsType[*chunks.Corrupt](err); ok && c.Chunk != nil {
			damaged[*c.Chunk] = true
		}
	}
	for _, rec := range recs {
		x, err := r.load(ctx, rec)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			out = append(out, Problem{rec.ID, err.Error()})
			continue
		}
		for i := range x.Entries {
			for _, h := range x.Entries[i].Chunks {
				if damaged[h] || !r.chunks.Has(h) {
					out = append(out, Problem{rec.ID, fmt.Sprintf("file %q needs chunk %s, which is damaged or missing", x.Entries[i].Path, h)})
					break
				}
			}
		}
	}
	names, err := r.Names(ctx)
	if err != nil {
		return nil, err
	}
	for name, id := range names {
		if _, err := r.Get(ctx, id); errors.Is(err, fs.ErrNotExist) {
			out = append(out, Problem{Text: fmt.Sprintf("the name %q belongs to snapshot %s, which is not there", name, id)})
		}
	}
	return out, nil
}

// Shared says how much of a snapshot's stored content other snapshots use too.
type Shared struct {
	Bytes  int64 `json:"bytes"`  // of its content, each chunk once
	Unique int64 `json:"unique"` // that no other snapshot uses
}

// Share measures each snapshot against the others.
func (r *Repo) Share(ctx context.Context, recs []*Record) (map[string]Shared, error) {
	unlock, err := r.share(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	type use struct {
		by   int // the only snapshot; -1 = several
		size int64
	}
	uses := map[chunks.Hash]use{}
	sums := make([]Shared, len(recs))
	for i, rec := range recs {
		x, err := r.Load(ctx, rec)
		if err != nil {
			return nil, err
		}
		mine := map[chunks.Hash]bool{}
		for j := range x.Entries {
			e, n := &x.Entries[j], 0
			for size := range e.Pieces {
				h := e.Chunks[n]
				n++
				if mine[h] {
					continue
				}
				mine[h] = true
				sums[i].Bytes += int64(size)
				if u, ok := uses[h]; ok && u.by != i {
					uses[h] = use{-1, u.size}
				} else {
					uses[h] = use{i, int64(size)}
				}
			}
		}
	}
	for _, u := range uses {
		if u.by >= 0 {
			sums[u.by].Unique += u.size
		}
	}
	out := map[string]Shared{}
	for i, rec := range recs {
		out[rec.ID] = sums[i]
	}
	return out, nil
}
