// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// copyBuffer is the piece in which content is read and written.
const copyBuffer = 256 << 10

// file writes a regular file, or hands it to the workers.
func (im *importer) file(ctx context.Context, parent *node, base string, h *tar.Header) error {
	j := job{dir: parent, name: base, member: h.Name, attrs: im.attrs(h)}
	size := uint64(max(h.Size, 0))
	if src, ok := h.PAXRecords[driver.PAXSource]; ok {
		if !im.opts.HostReferences {
			return invalid("the member names a file of the host, and host references are not allowed here")
		}
		if h.Size != 0 {
			return invalid("the member names a file of the host and has a content too")
		}
		if !strings.HasPrefix(src, "/") {
			return invalid("the host reference %q is not absolute", src)
		}
		id, err := parseSourceID(h.PAXRecords[driver.PAXSourceID])
		if err != nil {
			return err
		}
		j.source, j.id, size = src, id, id.size
	}
	if size > im.opts.Limits.MaxExtractedBytes-im.bytes {
		return limit("bytes", im.opts.Limits.MaxExtractedBytes, h.Name)
	}
	im.bytes += size
	switch {
	case j.source != "":
		return im.work.add(ctx, j, 0, nil)
	case size <= smallFile:
		return im.work.add(ctx, j, int(size), func(b []byte) error {
			if _, err := io.ReadFull(im.tar, b); err != nil {
				return im.broken(h.Name, err)
			}
			return nil
		})
	}
	return j.write(func(fd int) error { return im.stream(ctx, fd, h, isSparse(h)) })
}

func isSparse(h *tar.Header) bool {
	return h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.realsize"] != "" || h.PAXRecords["GNU.sparse.size"] != ""
}

// stream copies the member's content to fd. What the archive kept as holes stays holes.
func (im *importer) stream(ctx context.Context, fd int, h *tar.Header, sparse bool) error {
	buf := im.work.buffer()
	left, hole := h.Size, int64(0)
	for left > 0 {
		if ctx.Err() != nil {
			return beneath.Done(ctx)
		}
		b := buf[:min(int64(len(buf)), left)]
		if sparse {
			b = b[:min(len(b), 32<<10)]
		}
		if _, err := io.ReadFull(im.tar, b); err != nil {
			return im.broken(h.Name, err)
		}
		left -= int64(len(b))
		if sparse && allZero(b) {
			hole += int64(len(b))
			continue
		}
		if hole > 0 {
			if _, err := unix.Seek(fd, hole, io.SeekCurrent); err != nil {
				return err
			}
			hole = 0
		}
		if err := beneath.WriteAll(fd, b); err != nil {
			return err
		}
	}
	if hole > 0 {
		return unix.Ftruncate(fd, h.Size)
	}
	return nil
}

// job is a regular file to be written.
type job struct {
	dir    *node
	name   string
	member string
	attrs  attrs
	data   []byte
	source string // host file, instead of data
	id     sourceID
}

// write makes the file; content fills it. A file that exists is replaced by a rename, and nothing is left of a file
// that could not be completed.
func (j *job) write(content func(fd int) error) error {
	dir, name, temp := j.dir.fd, j.name, ""
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	mode := j.attrs.mode&0o777 | 0o600
	if j.attrs.chown {
		mode = 0o600
	}
	fd, err := beneath.OpenAt(dir, name, flags, mode)
	if errors.Is(err, unix.EEXIST) {
		var st beneath.Stat
		if beneath.StatAt(dir, name, &st) == nil && st.IsDir() {
			return unix.EISDIR
		}
		temp = beneath.TempName()
		name = temp
		fd, err = beneath.OpenAt(dir, name, flags, mode)
	}
	if err != nil {
		return err
	}
	err = content(fd)
	if err == nil {
		err = j.attrs.set(fd, dir, name)
	}
	if e := unix.Close(fd); err == nil && !errors.Is(e, unix.EINTR) {
		err = e
	}
	if err == nil && temp != "" {
		err = unix.Renameat(dir, temp, dir, j.name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, name, 0)
	}
	return err
}

func (a *attrs) set(fd, dir int, name string) error {
	if a.chown {
		if err := unix.Fchown(fd, int(a.uid), int(a.gid)); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := unix.Fchmod(fd, a.mode); err != nil {
		return err
	}
	return beneath.SetTimes(fd, dir, name, a.mtime)
}

// run writes the file of a worker's job.
func (j *job) run(ctx context.Context, c *copier) error {
	return j.write(func(fd int) error {
		if j.source == "" {
			return beneath.WriteAll(fd, j.data)
		}
		return c.hostFile(ctx, fd, j)
	})
}

// sourceID is the identity that the core saw.
type sourceID struct {
	dev, ino, size uint64
	mtime          int64
}

func parseSourceID(s string) (sourceID, error) {
	var id sourceID
	if n, err := fmt.Sscanf(s, "%d:%d:%d:%d", &id.dev, &id.ino, &id.size, &id.mtime); err != nil || n != 4 || strings.ContainsAny(s, " \n") {
		return id, invalid("the host reference has no valid %s: %q", driver.PAXSourceID, s)
	}
	return id, nil
}

func (id *sourceID) is(st *beneath.Stat) bool {
	return st.IsRegular() && st.Dev == id.dev && st.Ino == id.ino && st.Size == id.size && st.Mtime.Nano() == id.mtime
}

// copier copies host files by the best way that has worked so far.
type copier struct {
	noClone, noRange bool
	buf              []byte
}

func (c *copier) hostFile(ctx context.Context, dst int, j *job) error {
	src, err := beneath.OpenHostFile(j.source)
	if err != nil {
		return changed(j.source, err)
	}
	defer func() { _ = unix.Close(src) }()
	var st beneath.Stat
	if err := beneath.StatAt(src, "", &st); err != nil || !j.id.is(&st) {
		return changed(j.source, err)
	}
	if err := c.copy(ctx, dst, src, int64(st.Size)); err != nil {
		return err
	}
	if err := beneath.StatAt(src, "", &st); err != nil || !j.id.is(&st) {
		return changed(j.source, err)
	}
	return nil
}

func changed(source string, err error) error {
	e := errs.New(errs.VersionMismatch, "the host file %q is not the one that was listed", source).
		WithHint("it was changed, moved or removed meanwhile; start again")
	e.Err = err
	return e
}

// copy copies exactly size bytes.
func (c *copier) copy(ctx context.Context, dst, src int, size int64) error {
	if size > smallFile && !c.noClone {
		if beneath.Clone(dst, src) == nil {
			return nil
		}
		c.noClone = true
	}
	left := size
	for left > smallFile && !c.noRange {
		if ctx.Err() != nil {
			return beneath.Done(ctx)
		}
		n, err := beneath.CopyRange(dst, src, int(min(left, 16<<20)))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
			return err
		}
		if err != nil || n == 0 {
			c.noRange = true
			break
		}
		left -= int64(n)
	}
	for left > 0 {
		if ctx.Err() != nil {
			return beneath.Done(ctx)
		}
		n, err := unix.Read(src, c.buf[:min(int64(len(c.buf)), left)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		if err := beneath.WriteAll(dst, c.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

// copyAcross stands in for a hard link where there can be none.
func copyAcross(ctx context.Context, fromDir int, from string, toDir int, to string, a attrs) error {
	src, err := beneath.OpenAt(fromDir, from, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(src) }()
	var st beneath.Stat
	if err := beneath.StatAt(src, "", &st); err != nil {
		return err
	}
	if !st.IsRegular() {
		return unix.EINVAL
	}
	c := copier{buf: make([]byte, copyBuffer)}
	j := job{dir: &node{fd: toDir}, name: to, attrs: a}
	return j.write(func(fd int) error { return c.copy(ctx, fd, src, int64(st.Size)) })
}
