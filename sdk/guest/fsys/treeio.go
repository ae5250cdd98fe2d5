// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/accounts"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
	"github.com/berth-dev/berth/sdk/guest/tree"
)

// ids finds owners by name for an import.
type ids struct{ db *accounts.DB }

func (i ids) UserID(name string) (uint32, bool) {
	u, err := i.db.User(name)
	return u.UID, err == nil
}

func (i ids) GroupID(name string) (uint32, bool) {
	g, err := i.db.Group(name)
	return g, err == nil
}

func (f *FS) codec(name string) (Codec, error) {
	if name == "" {
		return nil, nil
	}
	c := f.opts.Codecs[name]
	if c == nil {
		return nil, errs.New(errs.Unsupported, "archives with %q compression are not offered here", name).
			With("feature", "tree.compression."+name)
	}
	return c, nil
}

// orTop lets an empty path mean the workspace.
func orTop(path string) string {
	if path == "" {
		return "."
	}
	return path
}

// Export writes the tree at opts.Path; see package tree for the format.
func (f *FS) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	return beneath.Fail("files.export", orTop(opts.Path), f.export(ctx, opts, w))
}

func (f *FS) export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	codec, err := f.codec(opts.Compression)
	if err != nil {
		return err
	}
	loc, err := f.find(orTop(opts.Path), true)
	if err != nil {
		return err
	}
	defer loc.Close()
	o := tree.ExportOptions{Exclude: opts.Exclude, Names: f.accounts}
	if codec == nil {
		return tree.Export(ctx, loc.Dir, loc.Name, w, o)
	}
	z, err := codec.NewWriter(w)
	if err != nil {
		return err
	}
	err = tree.Export(ctx, loc.Dir, loc.Name, z, o)
	if e := z.Close(); err == nil {
		err = e
	}
	return err
}

// Import unpacks an archive into the directory opts.Path; see package tree for the rules.
func (f *FS) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	res, err := f.importTree(ctx, opts, r)
	return res, beneath.Fail("files.import", orTop(opts.Path), err)
}

func (f *FS) importTree(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	var res driver.ImportResult
	o := tree.ImportOptions{Limits: opts.Limits, Replace: opts.Replace, IDs: ids{f.accounts}, HostReferences: opts.HostReferences}
	if opts.HostReferences && !f.opts.HostReferences {
		return res, errs.New(errs.Unsupported, "host references are not offered here").With("feature", "tree.host_refs")
	}
	codec, err := f.codec(opts.Compression)
	if err != nil {
		return res, err
	}
	if codec != nil {
		o.Decompress = codec.NewReader
	}
	if opts.Owner != "" {
		u, err := f.accounts.User(opts.Owner)
		if err != nil {
			return res, err
		}
		o.Owner = &u.UID
		if strings.Contains(opts.Owner, ":") {
			o.Group = &u.GID
		}
	}
	if opts.Group != "" {
		g, err := f.accounts.Group(opts.Group)
		if err != nil {
			return res, err
		}
		o.Group = &g
	}
	path := orTop(opts.Path)
	owned := func(loc *beneath.Loc) error {
		m := meta{uid: -1, gid: -1}
		if o.Owner != nil {
			m.uid = int(*o.Owner)
		}
		if o.Group != nil {
			m.gid = int(*o.Group)
		}
		return m.apply(loc.Dir, loc.Name, unix.S_IFDIR)
	}
	if err := f.mkdirAll(path, 0o755, owned); err != nil {
		return res, err
	}
	loc, err := f.find(path, true)
	if err != nil {
		return res, err
	}
	defer loc.Close()
	if err := writable(loc); err != nil {
		return res, err
	}
	dir, err := beneath.OpenDir(loc.Dir, loc.Name, false)
	if err != nil {
		return res, err
	}
	defer func() { _ = unix.Close(dir) }()
	return tree.Import(ctx, dir, r, o)
}

// moveAcross copies src beside dst, renames the copy and removes src. It runs with the caller's rights.
func (f *FS) moveAcross(ctx context.Context, src, dst *beneath.Loc, rename func(dir int, name string) error) error {
	temp := beneath.TempName()
	if err := unix.Mkdirat(dst.Dir, temp, 0o700); err != nil {
		return err
	}
	defer func() { _ = beneath.RemoveAll(context.WithoutCancel(ctx), dst.Dir, temp) }()
	dir, err := beneath.OpenDir(dst.Dir, temp, false)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	unsaved, err := copyTree(ctx, src, dir)
	if err != nil {
		return err
	}
	if unsaved != nil {
		return errs.New(errs.Unsupported, "it is on another file system, and %q cannot be copied there: %s", unsaved.Path, unsaved.Reason)
	}
	if src.Stat.IsDir() {
		err = rename(dst.Dir, temp)
	} else {
		err = rename(dir, src.Name)
	}
	if err != nil {
		return err
	}
	return beneath.RemoveAll(ctx, src.Dir, src.Name)
}

// copyTree copies src into the opened directory dir and gives the first thing that could not be copied.
func copyTree(ctx context.Context, src *beneath.Loc, dir int) (unsaved *driver.Skipped, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w := io.Pipe()
	// The calling goroutine may be on a thread with another user's rights, which reading must have. The other one only
	// unpacks into dir, which that user was able to make.
	imported := make(chan error, 1)
	go func() {
		limits := driver.TreeLimits{MaxInputBytes: ^uint64(0), MaxExtractedBytes: ^uint64(0), MaxMembers: ^uint64(0)}
		_, err := tree.Import(ctx, dir, r, tree.ImportOptions{Limits: limits})
		_ = r.CloseWithError(err)
		imported <- err
	}()
	err = tree.Export(ctx, src.Dir, src.Name, w, tree.ExportOptions{Skipped: func(s driver.Skipped) {
		if unsaved == nil {
			unsaved = &s
		}
	}})
	_ = w.CloseWithError(err)
	if e := <-imported; err == nil {
		err = e
	}
	return unsaved, err
}

// OpenHostFile opens a file that a host reference names (driver.PAXSource). No component of the path may be a link.
func OpenHostFile(path string) (*os.File, error) {
	fd, err := beneath.OpenHostFile(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
