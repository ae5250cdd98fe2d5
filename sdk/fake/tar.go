// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// Export writes a tree as tar.
func (h *handle) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	if err := h.supported(opts.Compression, false); err != nil {
		return err
	}
	if opts.Compression == "zstd" {
		z, err := (zstd.Codec{}).NewWriter(w)
		if err != nil {
			return err
		}
		opts.Compression = ""
		return errors.Join(h.Export(ctx, opts, z), z.Close())
	}
	end, err := h.d.faults.begin(ctx, "tree.export")
	if err != nil {
		return err
	}
	copied := h.s.fs.clone()
	view := &handle{d: h.d, s: &Sandbox{id: h.s.id, root: h.s.root, grants: h.s.grants, fs: copied}}
	copied.mu.Lock()
	at, err := view.inside(opts.Path, true)
	copied.mu.Unlock()
	if err != nil {
		return err
	}
	if at.node == nil {
		return missing(opts.Path)
	}
	tw := tar.NewWriter(w)
	for _, info := range view.below(at, "", driver.ListOptions{Recursive: true, Exclude: opts.Exclude}, nil) {
		if err := ctxError(ctx, "tree.export"); err != nil {
			return err
		}
		n := at.node
		for part := range strings.SplitSeq(info.Path, "/") {
			n = n.Children[part]
		}
		hdr := &tar.Header{
			Name: info.Path, Mode: int64(info.Mode), Uname: info.User, Gname: info.Group, ModTime: info.ModTime,
			Format: tar.FormatPAX, Typeflag: tar.TypeReg, Size: int64(len(n.Data)),
		}
		switch n.Kind { //nolint:exhaustive // the others are files
		case driver.TypeDirectory:
			hdr.Typeflag, hdr.Name, hdr.Size = tar.TypeDir, info.Path+"/", 0
		case driver.TypeSymlink:
			hdr.Typeflag, hdr.Linkname, hdr.Size = tar.TypeSymlink, n.Target, 0
		}
		if err := tw.WriteHeader(hdr); err != nil {
			return errs.Wrap(errs.Canceled, "write archive", err)
		}
		if _, err := tw.Write(n.Data); err != nil {
			return errs.Wrap(errs.Canceled, "write archive", err)
		}
	}
	return end(errs.Wrap(errs.Canceled, "write archive", tw.Close()))
}

// Import unpacks a tar stream.
func (h *handle) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (out driver.ImportResult, err error) {
	end, err := h.d.faults.begin(ctx, "tree.import")
	if err != nil {
		return out, err
	}
	if err := h.supported(opts.Compression, opts.HostReferences); err != nil {
		return out, err
	}
	base := opts.Path
	if !path.IsAbs(base) {
		base = path.Join(h.s.root, base)
	}
	if err := h.prepare(base, opts.Replace); err != nil {
		return out, err
	}
	limits := bounds(opts.Limits)
	counted := &countingReader{r: r}
	plain := io.Reader(counted)
	if opts.Compression == "zstd" {
		z, err := (zstd.Codec{}).NewReader(counted)
		if err != nil {
			return out, err
		}
		defer z.Close()
		plain = z
	}
	tr := tar.NewReader(plain)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			h.s.keepTemplate(h.d.backend, opts.Template)
			h.s.record()
			return out, end(nil)
		}
		if err != nil {
			return out, errs.Wrap(errs.ArchiveInvalid, "read archive", err)
		}
		if err := ctxError(ctx, "tree.import"); err != nil {
			return out, err
		}
		out.Members++
		out.Bytes += uint64(hdr.Size)
		if out.Members > limits.MaxMembers || out.Bytes > limits.MaxExtractedBytes || counted.n > limits.MaxInputBytes {
			return out, errs.New(errs.ArchiveLimit, "the archive is larger than allowed").With("path", hdr.Name)
		}
		if err := h.member(base, opts, hdr, tr, &out); err != nil {
			return out, err
		}
	}
}

func (h *handle) prepare(base string, replace bool) error {
	h.s.fs.mu.Lock()
	defer h.s.fs.mu.Unlock()
	at, err := h.inside(base, true)
	if err != nil && errs.CodeOf(err) != errs.FileNotFound {
		return err
	}
	if err == nil && at.node != nil {
		if at.node.Kind != driver.TypeDirectory {
			return fileError(errs.NotDirectory, base, "not a directory")
		}
		if replace {
			at.node.Children = map[string]*node{}
		}
		return nil
	}
	return h.s.fs.putLocked(base, directory(), true)
}

func (h *handle) member(base string, opts driver.ImportOptions, hdr *tar.Header, r io.Reader, out *driver.ImportResult) error {
	name := strings.TrimSuffix(hdr.Name, "/")
	clean := path.Clean(name)
	if clean == "." {
		return nil
	}
	if path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") {
		return errs.New(errs.ArchiveInvalid, "the member %q leads out of the directory", hdr.Name).With("path", hdr.Name)
	}
	n := &node{Mode: uint32(hdr.Mode) & 0o7777, User: hdr.Uname, Group: hdr.Gname, Time: hdr.ModTime}
	if opts.Owner != "" {
		n.User = opts.Owner
	}
	if opts.Group != "" {
		n.Group = opts.Group
	}
	if n.Time.IsZero() {
		n.Time = time.Now()
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
		data, err := content(hdr, r, opts.HostReferences)
		if err != nil {
			return err
		}
		n.Kind, n.Data = driver.TypeRegular, data
	case tar.TypeDir:
		n.Kind, n.Children = driver.TypeDirectory, map[string]*node{}
	case tar.TypeSymlink:
		n.Kind, n.Target = driver.TypeSymlink, hdr.Linkname
	default:
		out.Skipped = append(out.Skipped, driver.Skipped{Path: clean, Reason: "not a file, directory or symbolic link"})
		return nil
	}
	h.s.fs.mu.Lock()
	defer h.s.fs.mu.Unlock()
	target := path.Join(base, clean)
	// A link on the way that leads elsewhere is a hostile archive.
	parent, err := h.s.fs.findLocked(path.Dir(target), true)
	if err == nil && parent.path != path.Dir(target) {
		return errs.New(errs.ArchiveInvalid, "the member %q goes through a link", hdr.Name).With("path", hdr.Name)
	}
	if n.Kind == driver.TypeDirectory {
		if at, err := h.s.fs.findLocked(target, false); err == nil && at.node != nil && at.node.Kind == driver.TypeDirectory {
			n.Children = at.node.Children
		}
	}
	return h.s.fs.putLocked(target, n, true)
}

// supported refuses what the driver does not claim.
func (h *handle) supported(compression string, hostReferences bool) error {
	if compression != "" && (compression != "zstd" || !h.d.can(driver.TreeZstd)) {
		return errs.New(errs.Unsupported, "compression %q", compression).With("feature", string(driver.TreeZstd))
	}
	if hostReferences && !h.d.can(driver.TreeHostRefs) {
		return errs.New(errs.Unsupported, "archives that name host files").With("feature", string(driver.TreeHostRefs))
	}
	return nil
}

// content is what a member carries, or what the host file holds that it names.
func content(hdr *tar.Header, r io.Reader, hostReferences bool) ([]byte, error) {
	source, named := hdr.PAXRecords[driver.PAXSource]
	if !named {
		data, err := io.ReadAll(r)
		return data, errs.Wrap(errs.ArchiveInvalid, "read archive", err)
	}
	if !hostReferences || hdr.Size != 0 || !path.IsAbs(source) {
		return nil, errs.New(errs.ArchiveInvalid, "the member %q names a host file", hdr.Name).With("path", hdr.Name)
	}
	var st unix.Stat_t
	err := unix.Lstat(source, &st)
	if real, rerr := filepath.EvalSymlinks(source); err == nil && (rerr != nil || real != path.Clean(source)) {
		err = errors.New("a link is on the way")
	}
	if err == nil && fmt.Sprintf("%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano()) != hdr.PAXRecords[driver.PAXSourceID] {
		err = errors.New("it is another file by now")
	}
	if err != nil {
		return nil, errs.Wrap(errs.VersionMismatch, "read host file "+source, err)
	}
	data, err := os.ReadFile(source)
	return data, errs.Wrap(errs.VersionMismatch, "read host file", err)
}

// keepTemplate keeps the workspace under its key, if this import has filled it.
func (s *Sandbox) keepTemplate(b *Backend, key string) {
	if key == "" || key != s.key {
		return
	}
	s.fs.mu.Lock()
	defer s.fs.mu.Unlock()
	at, err := s.fs.findLocked(s.root, true)
	if err != nil || at.node == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.templates == nil {
		b.templates = map[string]*node{}
	}
	b.templates[key] = at.node.clone()
}

// template gives a workspace of its own from what is kept under a key; nil = nothing is.
func (b *Backend) template(key string) *node {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.templates[key]; n != nil {
		return n.clone()
	}
	return nil
}

func bounds(l driver.TreeLimits) driver.TreeLimits {
	if l.MaxInputBytes == 0 {
		l.MaxInputBytes = driver.DefaultMaxInputBytes
	}
	if l.MaxExtractedBytes == 0 {
		l.MaxExtractedBytes = driver.DefaultMaxExtractedBytes
	}
	if l.MaxMembers == 0 {
		l.MaxMembers = driver.DefaultMaxMembers
	}
	return l
}

type countingReader struct {
	r io.Reader
	n uint64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += uint64(n)
	return n, err
}
