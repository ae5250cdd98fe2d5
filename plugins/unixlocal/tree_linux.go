// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/archive"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/fsys"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

var _ driver.TreeIO = (*sandbox)(nil)

// Import unpacks an archive. Into a workspace that nothing has run in yet it is done by this process, which reads host
// files itself; with a template's key the result is kept and the workspace becomes a layer over it. Otherwise the guest
// does it.
func (s *sandbox) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	key := opts.Template
	opts.Template = ""
	res, done, err := s.importHere(ctx, key, opts, r)
	if err != nil {
		return res, err
	}
	if done {
		return res, s.fill(ctx)
	}
	s.touch()
	c, err := s.guest(ctx)
	if err != nil {
		return res, err
	}
	if opts.Owner == "" {
		opts.Owner, opts.Group = s.owner()
	}
	if res, err = s.importThere(ctx, c, opts, r); err != nil {
		return res, err
	}
	return res, s.fill(ctx)
}

// owner is who unpacked files belong to when nobody says, inside.
func (s *sandbox) owner() (user, group string) {
	if s.want.Off {
		return "", ""
	}
	if machine.NeedsUsers(s.want.Accounts, s.want.RunAs) {
		return s.runAs(), ""
	}
	place := s.want.Setup.Identity
	return itoa(place.UID), itoa(place.GID)
}

// importHere imports on the host's side. done is false when the guest has to do it.
func (s *sandbox) importHere(ctx context.Context, key string, opts driver.ImportOptions, r io.Reader) (res driver.ImportResult, done bool, err error) {
	defer s.hold()()
	root := s.want.Inside().Root
	switch {
	case s.destroyed, s.stopped, s.touched, s.want.Overlay != nil, opts.Owner != "", opts.Group != "",
		machine.NeedsUsers(s.want.Accounts, s.want.RunAs), s.grantsInside(root), !within(opts.Path, root):
		return res, false, nil
	}
	if key != "" && key == s.key && s.client == nil && isRoot(opts.Path, root) {
		res, err = s.importTemplate(ctx, key, opts, r)
		return res, true, err
	}
	res, err = s.importInto(ctx, filepath.Join(s.want.Files, "work"), opts, r)
	return res, true, err
}

// grantsInside says whether something of the host is mounted in the workspace, which this process would not see.
func (s *sandbox) grantsInside(root string) bool {
	for _, g := range s.want.Grants {
		if strings.HasPrefix(path.Clean(g.Path)+"/", root+"/") {
			return true
		}
	}
	return false
}

// within says whether a path is written as one in the workspace. Others may lead to what is granted, which only the guest sees.
func within(p, root string) bool {
	if !path.IsAbs(p) {
		p = path.Join(root, p)
	}
	return strings.HasPrefix(path.Clean(p)+"/", strings.TrimSuffix(root, "/")+"/")
}

func isRoot(p, root string) bool { return p == "" || path.Clean(p) == "." || path.Clean(p) == root }

// importInto imports into a directory of the host, for the sandbox's user.
func (s *sandbox) importInto(ctx context.Context, dir string, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	f, err := fsys.Open(dir, fsys.Options{
		Visible: s.want.Inside().Root, HostReferences: true, Codecs: map[string]fsys.Codec{"zstd": zstd.Codec{}},
	})
	if err != nil {
		return driver.ImportResult{}, err
	}
	uid, gid := machine.Owner(s.want.Setup, s.want.Off)
	opts.Owner, opts.Group = itoa(uid), itoa(gid)
	res, err := f.Import(ctx, opts, r)
	if e := f.Close(); err == nil && e != nil {
		err = errs.Wrap(errs.Internal, "close the workspace", e)
	}
	return res, err
}

// importTemplate materialises the workspace as a template.
func (s *sandbox) importTemplate(ctx context.Context, key string, opts driver.ImportOptions, r io.Reader) (res driver.ImportResult, err error) {
	uid, gid := machine.Owner(s.want.Setup, s.want.Off)
	t, err := s.d.templates.Build(ctx, s.templateName(key), key, func(tree string) (uint64, uint64, error) {
		if err := store.Own(tree, uid, gid); err != nil {
			return 0, 0, err
		}
		res, err = s.importInto(ctx, tree, opts, r)
		return res.Members, res.Bytes, err
	})
	if err != nil {
		return res, err
	}
	if err := s.layOver(t); err != nil {
		return res, err
	}
	go s.d.trimTemplates() //nolint:gosec // it outlives the request
	return res, s.x.Save()
}

// trimTemplates keeps the templates within their bound; one at a time is enough.
func (d *local) trimTemplates() {
	if !d.trim.TryLock() {
		return
	}
	defer d.trim.Unlock()
	if err := d.templates.Trim(context.Background(), d.store.NeedsTemplate); err != nil {
		d.log.Warn("templates were not trimmed", "error", err)
	}
}

// importThere has the guest import.
func (s *sandbox) importThere(ctx context.Context, c *client.Client, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	if !opts.HostReferences {
		return c.Import(ctx, opts, r)
	}
	opts.HostReferences = false
	// The members that name files of this machine are only seen here.
	if opts.Compression == "zstd" {
		z, err := zstd.Codec{}.NewReader(r)
		if err != nil {
			return driver.ImportResult{}, errs.Wrap(errs.ArchiveInvalid, "files.import", err)
		}
		defer z.Close()
		// What comes out is bounded by what may be extracted.
		opts.Compression, r = "", z
		if limit := opts.Limits.MaxInputBytes; limit != 0 {
			opts.Limits.MaxInputBytes = max(limit, cmp.Or(opts.Limits.MaxExtractedBytes, driver.DefaultMaxExtractedBytes)*2)
		}
	}
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := archive.Expand(ctx, pw, r)
		_ = pw.CloseWithError(err) // it always works
		sent <- err
	}()
	res, err := c.Import(ctx, opts, pr)
	_ = pr.CloseWithError(errors.New("the import has ended")) // it always works
	if e := <-sent; e != nil && err != nil {
		if _, ok := errors.AsType[*errs.Error](e); ok {
			return res, e
		}
	}
	return res, err
}
