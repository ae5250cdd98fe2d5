// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"iter"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/sdk/driver"
)

var _ driver.FileSystem = (*sandbox)(nil)

// as gives the user of a file operation that names none. Where the guest is the root of its namespace, what it makes
// has to belong to the commands' user.
func (s *sandbox) as(user string) string {
	if user != "" || s.want.Off || !machine.NeedsUsers(s.want.Accounts, s.want.RunAs) {
		return user
	}
	if s.want.RunAs != "" {
		return s.want.RunAs
	}
	return machine.User
}

// Stat describes files.
func (s *sandbox) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	c, err := s.guest(ctx)
	if err != nil {
		return nil, err
	}
	opts.User = s.as(opts.User)
	return c.Stat(ctx, paths, opts)
}

// List lists a directory.
func (s *sandbox) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	c, err := s.guest(ctx)
	if err != nil {
		return func(yield func(driver.FileInfo, error) bool) { yield(driver.FileInfo{}, err) }
	}
	opts.User = s.as(opts.User)
	return c.List(ctx, path, opts)
}

// Open reads a file.
func (s *sandbox) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	c, err := s.guest(ctx)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	opts.User = s.as(opts.User)
	return c.Open(ctx, path, opts)
}

// Write writes a file.
func (s *sandbox) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	c, err := s.guest(ctx)
	if err != nil {
		return driver.WriteResult{}, err
	}
	opts.User = s.as(opts.User)
	res, err := c.Write(ctx, path, opts, r)
	return res, s.fill(err)
}

// Mkdir makes a directory.
func (s *sandbox) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	c, err := s.guest(ctx)
	if err != nil {
		return err
	}
	return c.Mkdir(ctx, path, mode, parents, s.as(user))
}

// Remove removes a file or directory.
func (s *sandbox) Remove(ctx context.Context, path string, recursive bool, user string) error {
	c, err := s.guest(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.Remove(ctx, path, recursive, s.as(user)))
}

// Move renames.
func (s *sandbox) Move(ctx context.Context, from, to string, replace bool, user string) error {
	c, err := s.guest(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.Move(ctx, from, to, replace, s.as(user)))
}

// SetMeta changes mode, owner or time.
func (s *sandbox) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	c, err := s.guest(ctx)
	if err != nil {
		return err
	}
	return s.fill(c.SetMeta(ctx, path, change))
}
