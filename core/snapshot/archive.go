// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/tarball"
	"github.com/berth-dev/berth/sdk/driver"
)

// Export writes a snapshot as a tar archive, which is compressed with zstd when compress is set. What the snapshot's names
// and holes need is written as GNU tar and bsdtar read it.
func (r *Repo) Export(ctx context.Context, rec *Record, w io.Writer, compress bool) error {
	unlock, err := r.share(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	x, err := r.Load(ctx, rec)
	if err != nil {
		return err
	}
	if !compress {
		return tarball.Write(ctx, r.chunks, x, w)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
	if err != nil {
		return err
	}
	return errors.Join(tarball.Write(ctx, r.chunks, x, z), z.Close())
}

// ImportOptions are for [Repo.Import].
type ImportOptions struct {
	Limits driver.TreeLimits // zero = the driver package's defaults
	Series string
	Labels map[string]string
}

// Import makes a snapshot of a tar archive, plain or compressed with zstd, whoever made it. It is taken as hostile.
func (r *Repo) Import(ctx context.Context, in io.Reader, o ImportOptions) (*Record, *Index, error) {
	limits := o.Limits
	for _, l := range []struct {
		v     *uint64
		usual uint64
	}{
		{&limits.MaxInputBytes, driver.DefaultMaxInputBytes},
		{&limits.MaxExtractedBytes, driver.DefaultMaxExtractedBytes},
		{&limits.MaxMembers, driver.DefaultMaxMembers},
	} {
		if *l.v == 0 {
			*l.v = l.usual
		}
	}
	plain, done, err := tarball.Open(in, limits)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	unlock, err := r.share(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if err := r.chunks.Load(ctx); err != nil {
		return nil, nil, err
	}
	w := r.chunks.NewWriter(ctx, chunks.WriterOptions{Plain: r.opts.Plain})
	g := tarball.NewReader(w, limits)
	err = g.Read(ctx, plain)
	if err == nil {
		err = w.Barrier()
	}
	if err == nil {
		err = g.Index().Order()
	}
	if err != nil {
		w.Abort()
		return nil, nil, fmt.Errorf("import: %w", err)
	}
	rec := &Record{Created: r.opts.Now().UTC(), Series: o.Series, Labels: o.Labels}
	if err := r.finish(ctx, w, g.Index(), rec); err != nil {
		return nil, nil, fmt.Errorf("import: %w", err)
	}
	return rec, g.Index(), nil
}
