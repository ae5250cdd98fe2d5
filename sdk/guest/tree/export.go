// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/ignore"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
	"github.com/berth-dev/berth/sdk/guest/tarfmt"
)

// Names gives users and groups their names; those without one are given as digits.
type Names interface {
	UserName(uid uint32) string
	GroupName(gid uint32) string
}

// ExportOptions are for [Export].
type ExportOptions struct {
	Exclude []string // patterns in the manner of gitignore
	Names   Names    // nil = numbers only
	// Skipped is told what the archive tells too; nil = nobody.
	Skipped func(driver.Skipped)
}

const (
	exportBuffer = 512 << 10
	// wholeFile is what is read before its header is written, so that the header is right even if the file changes.
	wholeFile = 128 << 10
	// sparseFrom is the size from which holes are looked for.
	sparseFrom = 64 << 10
	// settle is how long a file must not have changed for its version to be told: file systems take the time from a clock
	// that ticks every 10 ms at most, so that of two changes within a tick only the first shows.
	settle = 20 * time.Millisecond
)

type exporter struct {
	w       io.Writer
	opts    ExportOptions
	ignore  *ignore.Matcher
	buf     []byte // not yet written
	scratch []byte // a whole small file
	links   map[inode]string
	users   map[uint32]string
	groups  map[uint32]string
	waited  time.Duration // for files to settle
}

type inode struct{ dev, ino uint64 }

// Export writes name in the opened directory dir, and what is below it, as a tar stream. With an empty name dir itself
// is the top. The top directory is the member "./", and all names are relative to it; a top that is a file is the only
// member, under its own name.
func Export(ctx context.Context, dir int, name string, w io.Writer, opts ExportOptions) error {
	m, err := ignore.New(opts.Exclude)
	if err != nil {
		return err
	}
	x := &exporter{w: w, opts: opts, ignore: m, links: map[inode]string{}, users: map[uint32]string{}, groups: map[uint32]string{}}
	x.buf, x.scratch = make([]byte, 0, exportBuffer), make([]byte, wholeFile+1)
	if err := x.run(ctx, dir, name); err != nil {
		return beneath.Fail("files.export", name, err)
	}
	return nil
}

func (x *exporter) run(ctx context.Context, dir int, name string) error {
	var st beneath.Stat
	if err := beneath.StatAt(dir, name, &st); err != nil {
		return err
	}
	if !st.IsDir() {
		if err := x.member(ctx, dir, name, name); err != nil {
			return err
		}
		return x.finish()
	}
	fd, err := beneath.OpenDir(dir, name, false)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	x.buf = tarfmt.Append(x.buf, x.header(&st, tarfmt.Dir, "./"))
	err = beneath.Walk(ctx, fd, &beneath.Visitor{
		Sorted: true,
		Stay:   true,
		Keep: func(_ int, e beneath.Entry, path string) bool {
			return !beneath.IsTempName(e.Name) && !x.ignore.Match(path, e.Type() == unix.S_IFDIR)
		},
		Visit: func(dir int, e beneath.Entry, path string) error { return x.member(ctx, dir, e.Name, path) },
		Unreadable: func(_ int, _, path string, err error) error {
			if errors.Is(err, unix.EXDEV) {
				return x.skip(path, "mount point: what is mounted there is left out")
			}
			return x.skip(path, "unreadable directory: "+err.Error())
		},
	})
	if err != nil {
		return err
	}
	return x.finish()
}

func (x *exporter) finish() error {
	x.buf = append(x.buf, make([]byte, 2*tarfmt.BlockSize)...)
	return x.flush()
}

func (x *exporter) flush() error {
	_, err := x.w.Write(x.buf)
	x.buf = x.buf[:0]
	return err
}

// room makes sure that n more bytes fit into the buffer.
func (x *exporter) room(n int) error {
	if len(x.buf)+n > cap(x.buf) {
		return x.flush()
	}
	return nil
}

// skip says in the stream that something was left out.
func (x *exporter) skip(path, reason string) error {
	if x.opts.Skipped != nil {
		x.opts.Skipped(driver.Skipped{Path: path, Reason: reason})
	}
	x.buf = tarfmt.AppendRecords(x.buf, tarfmt.Global, []tarfmt.Record{{Key: driver.PAXSkippedPath, Value: path}, {Key: driver.PAXSkippedReason, Value: reason}})
	return x.room(exportBuffer / 2)
}

func (x *exporter) header(st *beneath.Stat, kind byte, name string) *tarfmt.Header {
	return &tarfmt.Header{
		Kind: kind, Name: name, Mode: st.Perm(), UID: st.UID, GID: st.GID, ModTime: st.ModTime(),
		User: x.name(x.users, st.UID, Names.UserName), Group: x.name(x.groups, st.GID, Names.GroupName),
	}
}

func (x *exporter) name(cache map[uint32]string, id uint32, lookup func(Names, uint32) string) string {
	if x.opts.Names == nil {
		return ""
	}
	n, ok := cache[id]
	if !ok {
		n = lookup(x.opts.Names, id)
		if n == strconv.FormatUint(uint64(id), 10) {
			n = "" // the number is in the header
		}
		cache[id] = n
	}
	return n
}

// member writes one file of any kind.
func (x *exporter) member(ctx context.Context, dir int, name, path string) error {
	if err := x.room(exportBuffer / 4); err != nil {
		return err
	}
	var st beneath.Stat
	if err := beneath.StatAt(dir, name, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil // gone meanwhile
		}
		return x.skip(path, "unreadable: "+err.Error())
	}
	id := inode{st.Dev, st.Ino}
	if first, ok := x.links[id]; ok && !st.IsDir() && st.Nlink > 1 {
		h := x.header(&st, tarfmt.HardLink, path)
		h.Target = first
		x.buf = tarfmt.Append(x.buf, h)
		return nil
	}
	switch st.Type() {
	case driver.TypeDirectory:
		x.buf = tarfmt.Append(x.buf, x.header(&st, tarfmt.Dir, path+"/"))
		return nil
	case driver.TypeSymlink:
		target, err := beneath.ReadLink(dir, name)
		if err != nil {
			return x.skip(path, "unreadable link: "+err.Error())
		}
		h := x.header(&st, tarfmt.Symlink, path)
		h.Target = target
		x.buf = tarfmt.Append(x.buf, h)
	case driver.TypeRegular:
		if ok, err := x.file(ctx, dir, name, path); !ok || err != nil {
			return err
		}
	case driver.TypeFIFO:
		return x.skip(path, "FIFO: only regular files, directories and links are saved")
	case driver.TypeSocket:
		return x.skip(path, "socket: only regular files, directories and links are saved")
	default:
		return x.skip(path, "device: only regular files, directories and links are saved")
	}
	if st.Nlink > 1 {
		x.links[id] = path
	}
	return nil
}

// file writes a regular file; false when it was left out.
func (x *exporter) file(ctx context.Context, dir int, name, path string) (bool, error) {
	fd, err := beneath.OpenAt(dir, name, unix.O_RDONLY, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, x.skip(path, "unreadable: "+err.Error())
	}
	defer func() { _ = unix.Close(fd) }()
	var st beneath.Stat
	if err := beneath.StatAt(fd, "", &st); err != nil || !st.IsRegular() {
		return false, x.skip(path, "changed into something else while it was read")
	}
	if st.Size > 1<<62 {
		return false, x.skip(path, "its size cannot be true")
	}
	h := x.header(&st, tarfmt.File, path)
	if x.settled(ctx, &st) {
		h.Records = []tarfmt.Record{{Key: driver.PAXVersion, Value: st.Version()}}
	}
	if st.Size <= wholeFile {
		return x.small(fd, h, int(st.Size))
	}
	h.Size = int64(st.Size)
	extents := []tarfmt.Extent{{Off: 0, Size: h.Size}}
	if st.Blocks*tarfmt.BlockSize < h.Size && st.Size >= sparseFrom {
		extents = findExtents(fd, h.Size)
	}
	pad := tarfmt.Padding(h.Size)
	if len(extents) == 1 && extents[0].Size == h.Size {
		x.buf = tarfmt.Append(x.buf, h)
	} else {
		pad, err = x.sparseHeader(h, extents)
		if err != nil {
			return false, err
		}
	}
	changed, err := x.extents(ctx, fd, extents)
	if err != nil {
		return false, err
	}
	x.buf = append(x.buf, make([]byte, pad)...)
	if changed != "" {
		return true, x.skip(path, changed)
	}
	return true, nil
}

// settled reports whether the version of a file that is read now will show every later change. A file that has just been
// written is waited for, but only so long in all.
func (x *exporter) settled(ctx context.Context, st *beneath.Stat) bool {
	changed := time.Unix(0, max(st.Ctime.Nano(), st.Mtime.Nano()))
	for {
		left := settle - time.Since(changed)
		if left <= 0 {
			return true
		}
		if left > 2*settle-x.waited {
			return false
		}
		x.waited += left
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return false
		}
	}
}

// small reads the whole file and then writes a header that fits.
func (x *exporter) small(fd int, h *tarfmt.Header, size int) (bool, error) {
	b := x.scratch[: 0 : size+1]
	for len(b) < cap(b) {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, x.skip(h.Name, "unreadable: "+err.Error())
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	grown := len(b) > size
	b = b[:min(len(b), size)]
	h.Size = int64(len(b))
	x.buf = append(tarfmt.Append(x.buf, h), b...)
	x.buf = append(x.buf, make([]byte, tarfmt.Padding(int64(len(b))))...)
	if grown {
		return true, x.skip(h.Name, "grew while it was read: the new end is left out")
	}
	return true, nil
}

// extents writes the data and gives a reason when the file was not what it had been.
func (x *exporter) extents(ctx context.Context, fd int, extents []tarfmt.Extent) (changed string, err error) {
	for _, e := range extents {
		off, left := e.Off, e.Size
		for left > 0 {
			if ctx.Err() != nil {
				return "", beneath.Done(ctx)
			}
			if err := x.room(64 << 10); err != nil {
				return "", err
			}
			free := x.buf[len(x.buf):cap(x.buf)]
			free = free[:min(int64(len(free)), left)]
			n := 0
			if changed == "" {
				n, err = unix.Pread(fd, free, off)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if err != nil {
					changed = "unreadable in part, zeros stand for the rest: " + err.Error()
				} else if n == 0 {
					changed = "shrank while it was read, zeros stand for the rest"
				}
			}
			if changed != "" {
				clear(free)
				n = len(free)
			}
			x.buf = x.buf[:len(x.buf)+n]
			off += int64(n)
			left -= int64(n)
		}
	}
	return changed, nil
}

// sparseHeader writes the header of a sparse file with its map, and gives the size of the padding.
func (x *exporter) sparseHeader(h *tarfmt.Header, extents []tarfmt.Extent) (pad int64, err error) {
	var stored int64
	x.buf, stored = tarfmt.AppendSparse(x.buf, *h, extents)
	return tarfmt.Padding(stored), x.room(exportBuffer / 2)
}

// findExtents lists where the file has data; the whole file when that cannot be told.
func findExtents(fd int, size int64) []tarfmt.Extent {
	whole := []tarfmt.Extent{{Off: 0, Size: size}}
	var out []tarfmt.Extent
	for off := int64(0); off < size; {
		start, end, err := beneath.DataAfter(fd, off)
		if errors.Is(err, unix.ENXIO) || (err == nil && start >= size) {
			break
		}
		if err != nil || end <= start || len(out) >= tarfmt.MaxExtents {
			return whole
		}
		out = append(out, tarfmt.Extent{Off: start, Size: min(end, size) - start})
		off = end
	}
	return out
}
