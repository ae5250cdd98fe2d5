// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// inside makes a path absolute and makes sure that it leads into the workspace or a granted path.
func (h *handle) inside(p string, follow bool) (place, error) {
	if strings.Contains(p, "\x00") {
		return place{}, fileError(errs.InvalidArgument, p, "the path has a NUL byte")
	}
	if len(path.Base(p)) > maxName {
		return place{}, fileError(errs.InvalidArgument, p, "the name is too long")
	}
	abs := p
	if !path.IsAbs(p) {
		abs = path.Join(h.s.root, p)
	}
	at, err := h.s.fs.findLocked(abs, follow)
	if err != nil && at.path == "" {
		return at, err
	}
	for _, root := range h.s.roots() {
		if at.path == root || strings.HasPrefix(at.path, root+"/") || root == "/" {
			return at, err
		}
	}
	return at, fileError(errs.PathEscapes, p, "the path leads out of the workspace")
}

func (h *handle) describe(at place, as string) driver.FileInfo {
	n := at.node
	return driver.FileInfo{
		Path: as, Type: n.Kind, Size: uint64(len(n.Data)), Mode: n.Mode, User: n.User, Group: n.Group, Nlink: 1,
		ModTime: n.Time, Target: n.Target, Version: strconv.FormatUint(n.Gen, 10),
	}
}

// lock runs f on the file system, as one operation.
func (h *handle) lock(ctx context.Context, op string, f func() error) error {
	end, err := h.d.faults.begin(ctx, op)
	if err != nil {
		return err
	}
	h.s.fs.mu.Lock()
	err = f()
	h.s.fs.mu.Unlock()
	if err == nil {
		h.s.record()
	}
	return end(err)
}

func missing(p string) error { return fileError(errs.FileNotFound, p, "no such file or directory") }

// Stat describes files.
func (h *handle) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	out := make([]driver.StatResult, len(paths))
	err := h.lock(ctx, "files.stat", func() error {
		for i, p := range paths {
			at, err := h.inside(p, opts.Follow)
			if err == nil && at.node == nil {
				err = missing(p)
			}
			if err != nil {
				out[i].Err = err
				continue
			}
			out[i].Info = h.describe(at, p)
		}
		return nil
	})
	return out, err
}

// List lists a directory in the order of names.
func (h *handle) List(ctx context.Context, p string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		var all []driver.FileInfo
		err := h.lock(ctx, "files.list", func() error {
			at, err := h.inside(p, true)
			switch {
			case err != nil:
				return err
			case at.node == nil:
				return missing(p)
			case at.node.Kind != driver.TypeDirectory:
				return fileError(errs.NotDirectory, p, "not a directory")
			}
			all = h.below(at, "", opts, nil)
			return nil
		})
		if err != nil {
			yield(driver.FileInfo{}, err)
			return
		}
		for _, info := range all {
			if !yield(info, ctxError(ctx, "files.list")) {
				return
			}
		}
	}
}

func (h *handle) below(at place, prefix string, opts driver.ListOptions, out []driver.FileInfo) []driver.FileInfo {
	for _, name := range at.node.names() {
		rel := path.Join(prefix, name)
		if excluded(rel, opts.Exclude) {
			continue
		}
		if opts.Limit > 0 && len(out) >= opts.Limit {
			return out
		}
		child := place{path: path.Join(at.path, name), dir: at.node, name: name, node: at.node.Children[name]}
		out = append(out, h.describe(child, rel))
		if opts.Recursive && child.node.Kind == driver.TypeDirectory {
			out = h.below(child, rel, opts, out)
		}
	}
	return out
}

// excluded knows the simple patterns: a name at any depth, or a path from the listed directory.
func excluded(rel string, patterns []string) bool {
	for _, p := range patterns {
		p = strings.TrimSuffix(p, "/")
		subject := path.Base(rel)
		if strings.Contains(p, "/") {
			subject = rel
		}
		if ok, err := path.Match(strings.TrimPrefix(p, "/"), subject); err == nil && ok {
			return true
		}
	}
	return false
}

// Open reads a file.
func (h *handle) Open(ctx context.Context, p string, opts driver.ReadOptions) (info driver.FileInfo, rc io.ReadCloser, err error) {
	err = h.lock(ctx, "files.open", func() error {
		at, err := h.regular(p)
		if err != nil {
			return err
		}
		info = h.describe(at, p)
		if opts.IfVersion != "" && opts.IfVersion != info.Version {
			return fileError(errs.VersionMismatch, p, "the file has changed")
		}
		data := at.node.Data
		data = data[min(opts.Offset, uint64(len(data))):]
		if opts.Length > 0 {
			data = data[:min(opts.Length, uint64(len(data)))]
		}
		rc = &fileReader{h: h, ctx: ctx, r: bytes.NewReader(data)}
		return nil
	})
	return info, rc, err
}

func (h *handle) regular(p string) (place, error) {
	at, err := h.inside(p, true)
	switch {
	case err != nil:
		return at, err
	case at.node == nil:
		return at, missing(p)
	case at.node.Kind == driver.TypeDirectory:
		return at, fileError(errs.IsDirectory, p, "is a directory")
	case at.node.Kind != driver.TypeRegular:
		return at, fileError(errs.NotRegular, p, "not a regular file")
	}
	return at, nil
}

type fileReader struct {
	h   *handle
	ctx context.Context //nolint:containedctx // of the one call that Open began
	r   *bytes.Reader
}

// Read is a call of its own to faults: files.read.
func (r *fileReader) Read(p []byte) (int, error) {
	if _, err := r.h.d.faults.begin(r.ctx, "files.read"); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func (r *fileReader) Close() error { return nil }

// Write writes a file.
func (h *handle) Write(ctx context.Context, p string, opts driver.WriteOptions, r io.Reader) (out driver.WriteResult, err error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return out, errs.Wrap(errs.Canceled, "read what is to be written", err)
	}
	if err := h.s.user(opts.User); err != nil {
		return out, err
	}
	sum := sha256.Sum256(data)
	err = h.lock(ctx, "files.write", func() error {
		at, err := h.inside(p, true)
		if err != nil && !(opts.Parents && errs.CodeOf(err) == errs.FileNotFound) {
			return err
		}
		target := at.path
		if err != nil {
			if target = p; !path.IsAbs(p) {
				target = path.Join(h.s.root, p)
			}
			at.node = nil
		}
		n := &node{Kind: driver.TypeRegular, Mode: 0o644, User: "root", Group: "root", Time: time.Now()}
		if have := at.node; have != nil {
			switch {
			case have.Kind == driver.TypeDirectory:
				return fileError(errs.IsDirectory, p, "is a directory")
			case opts.Exclusive:
				return fileError(errs.FileExists, p, "the file exists")
			case opts.IfVersion != "" && strconv.FormatUint(have.Gen, 10) != opts.IfVersion:
				return fileError(errs.VersionMismatch, p, "the file has changed")
			}
			n.Mode, n.User, n.Group = have.Mode, have.User, have.Group
			if opts.Append {
				data = append(slices.Clip(have.Data), data...)
			}
		} else if opts.IfVersion != "" {
			return missing(p)
		}
		if opts.Mode != 0 {
			n.Mode = opts.Mode
		}
		if opts.User != "" {
			n.User = opts.User
		}
		if !opts.ModTime.IsZero() {
			n.Time = opts.ModTime
		}
		n.Data = data
		if err := h.s.fs.putLocked(target, n, opts.Parents); err != nil {
			return err
		}
		out = driver.WriteResult{Info: h.describe(place{node: n}, p), SHA256: sum}
		return nil
	})
	return out, err
}

// Mkdir makes a directory.
func (h *handle) Mkdir(ctx context.Context, p string, mode uint32, parents bool, user string) error {
	if err := h.s.user(user); err != nil {
		return err
	}
	return h.lock(ctx, "files.mkdir", func() error {
		at, err := h.inside(p, true)
		if err != nil && !(parents && errs.CodeOf(err) == errs.FileNotFound) {
			return err
		}
		if err == nil && at.node != nil {
			if parents && at.node.Kind == driver.TypeDirectory {
				return nil
			}
			return fileError(errs.FileExists, p, "it exists")
		}
		d := directory()
		if mode != 0 {
			d.Mode = mode
		}
		if user != "" {
			d.User = user
		}
		target := p
		if !path.IsAbs(p) {
			target = path.Join(h.s.root, p)
		}
		return h.s.fs.putLocked(target, d, parents)
	})
}

// Remove removes a file or a tree.
func (h *handle) Remove(ctx context.Context, p string, recursive bool, _ string) error {
	return h.lock(ctx, "files.remove", func() error {
		at, err := h.inside(p, false)
		switch {
		case recursive && errs.CodeOf(err) == errs.FileNotFound:
			return nil
		case err != nil:
			return err
		case at.path == h.s.root || at.dir == nil:
			return fileError(errs.InvalidArgument, p, "the workspace root cannot be removed")
		case at.node == nil && recursive:
			return nil
		case at.node == nil:
			return missing(p)
		case len(at.node.Children) > 0 && !recursive:
			return fileError(errs.DirectoryNotEmpty, p, "the directory is not empty")
		}
		delete(at.dir.Children, at.name)
		h.s.fs.touchLocked(nil, driver.FileRemoved, at.path)
		return nil
	})
}

// Move renames.
func (h *handle) Move(ctx context.Context, from, to string, replace bool, _ string) error {
	return h.lock(ctx, "files.move", func() error {
		src, err := h.inside(from, false)
		if err != nil {
			return err
		}
		if src.node == nil {
			return missing(from)
		}
		dst, err := h.inside(to, false)
		switch {
		case err != nil:
			return err
		case src.dir == nil || dst.dir == nil || src.path == h.s.root:
			return fileError(errs.InvalidArgument, from, "the workspace root cannot be moved")
		case strings.HasPrefix(dst.path+"/", src.path+"/") && src.path != dst.path:
			return fileError(errs.InvalidArgument, to, "a directory cannot move into itself")
		case dst.node != nil && !replace:
			return fileError(errs.FileExists, to, "it exists")
		case dst.node != nil && len(dst.node.Children) > 0:
			return fileError(errs.DirectoryNotEmpty, to, "the directory is not empty")
		}
		delete(src.dir.Children, src.name)
		dst.dir.Children[dst.name] = src.node
		h.s.fs.touchLocked(nil, driver.FileRemoved, src.path)
		h.s.fs.touchLocked(src.node, driver.FileCreated, dst.path)
		return nil
	})
}

// SetMeta changes mode, owner and time.
func (h *handle) SetMeta(ctx context.Context, p string, c driver.MetaChange) error {
	return h.lock(ctx, "files.set_meta", func() error {
		at, err := h.inside(p, true)
		if err != nil {
			return err
		}
		if at.node == nil {
			return missing(p)
		}
		h.change(at.node, c)
		h.s.fs.touchLocked(at.node, driver.FileChanged, at.path)
		return nil
	})
}

func (h *handle) change(n *node, c driver.MetaChange) {
	if c.Mode != nil {
		n.Mode = *c.Mode & 0o7777
	}
	if c.Owner != nil {
		n.User = *c.Owner
	}
	if c.Group != nil {
		n.Group = *c.Group
	}
	if !c.ModTime.IsZero() {
		n.Time = c.ModTime
	}
	if c.Recursive {
		for _, child := range n.Children {
			h.change(child, c)
		}
	}
}

// WatchFiles reports changes below a path.
func (h *handle) WatchFiles(ctx context.Context, p string, recursive bool, _ string, report func(driver.FileEvent)) error {
	if _, err := h.d.faults.begin(ctx, "watch_files"); err != nil {
		return err
	}
	events := make(chan event, 1024)
	h.s.fs.mu.Lock()
	at, err := h.inside(p, true)
	h.s.fs.mu.Unlock()
	if err != nil {
		return err
	}
	defer h.s.fs.subscribe(events)()
	for {
		select {
		case e := <-events:
			rel, ok := strings.CutPrefix(e.path, strings.TrimSuffix(at.path, "/")+"/")
			if ok && (recursive || !strings.Contains(rel, "/")) {
				report(driver.FileEvent{Kind: e.kind, Path: rel})
			}
		case <-h.d.faults.gone:
			return errCrashed
		case <-ctx.Done():
			return nil
		}
	}
}
