// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"io"
	"iter"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// as gives the user of a file operation that names none: what the guest makes has to belong to the commands' user.
func (s *Guest) as(user string) string { return cmp.Or(user, s.record.User) }

// Stat describes files.
func (s *Guest) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	c, err := s.live(ctx)
	if err != nil {
		return nil, err
	}
	opts.User = s.as(opts.User)
	return c.Stat(ctx, paths, opts)
}

// List lists a directory.
func (s *Guest) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	c, err := s.live(ctx)
	if err != nil {
		return func(yield func(driver.FileInfo, error) bool) { yield(driver.FileInfo{}, err) }
	}
	opts.User = s.as(opts.User)
	return c.List(ctx, path, opts)
}

// Open reads a file.
func (s *Guest) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	c, err := s.live(ctx)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	opts.User = s.as(opts.User)
	return c.Open(ctx, path, opts)
}

// Write writes a file.
func (s *Guest) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	c, err := s.live(ctx)
	if err != nil {
		return driver.WriteResult{}, err
	}
	opts.User = s.as(opts.User)
	res, err := c.Write(ctx, path, opts, r)
	return res, s.fill(err)
}

// Mkdir makes a directory.
func (s *Guest) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.Mkdir(ctx, path, mode, parents, s.as(user)))
}

// Remove removes a file or directory.
func (s *Guest) Remove(ctx context.Context, path string, recursive bool, user string) error {
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.Remove(ctx, path, recursive, s.as(user)))
}

// Move renames.
func (s *Guest) Move(ctx context.Context, from, to string, replace bool, user string) error {
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.Move(ctx, from, to, replace, s.as(user)))
}

// SetMeta changes mode, owner or time.
func (s *Guest) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.SetMeta(ctx, path, change))
}

// Import unpacks an archive. Everything belongs to the commands' user unless the caller says whom.
func (s *Guest) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	c, err := s.live(ctx)
	if err != nil {
		return driver.ImportResult{}, err
	}
	if opts.HostReferences {
		return driver.ImportResult{}, errs.New(errs.Unsupported, "the container does not see this machine's files").With("feature", string(driver.TreeHostRefs))
	}
	if opts.Owner == "" && s.record.User != "" {
		opts.Owner = withGroup(s.record.User)
	}
	opts.Template = ""
	res, err := c.Import(ctx, opts, r)
	return res, s.fill(err)
}

// Export writes a tree.
func (s *Guest) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	c, err := s.live(ctx)
	if err != nil {
		return err
	}
	if opts.Compression != "zstd" {
		return c.Export(ctx, opts, w)
	}
	opts.Compression = ""
	z, err := zstd.Codec{}.NewWriter(w)
	if err != nil {
		return err
	}
	err = c.Export(ctx, opts, z)
	if e := z.Close(); err == nil && e != nil {
		err = errs.Wrap(errs.Internal, "files.export", e)
	}
	return err
}
