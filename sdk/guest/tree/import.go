// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"archive/tar"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// IDs finds users and groups by name.
type IDs interface {
	UserID(name string) (uint32, bool)
	GroupID(name string) (uint32, bool)
}

// ImportOptions are for [Import].
type ImportOptions struct {
	Limits         driver.TreeLimits // zero fields mean the driver.Default…
	Replace        bool              // take the place of what is there, once everything is unpacked
	Owner, Group   *uint32           // nil = the archive's, by name, else by number
	IDs            IDs               // nil = numbers only
	HostReferences bool              // see driver.ImportOptions
	// Decompress, when set, makes the tar stream from the input. What it gives is bounded by the limits too.
	Decompress func(io.Reader) (io.ReadCloser, error)
}

// smallFile is the size up to which the workers write files; the reader writes larger ones itself.
const smallFile = 64 << 10

// headerCost is what a member may cost besides its content, on average, in a compressed stream.
const headerCost = 8 << 10

// importer is one run. Its reader, the caller's goroutine, owns every field but those of the workers.
type importer struct {
	opts    ImportOptions
	own     [2]uint32 // the process's user and group
	root    bool      // the process may give files away
	in      *input
	tar     *tar.Reader
	dirs    dirs
	seed    maphash.Seed
	seen    map[uint64]struct{} // members that are no directories
	out     driver.ImportResult
	bytes   uint64
	members uint64
	work    *workers
}

// Import unpacks the tar stream r below the opened directory dir. When it fails, what was unpacked so far stays, unless
// Replace is set: then nothing has changed, or the error says so by MaybeApplied.
func Import(ctx context.Context, dir int, r io.Reader, opts ImportOptions) (driver.ImportResult, error) {
	limits := &opts.Limits
	for _, l := range []struct {
		v   *uint64
		def uint64
	}{
		{&limits.MaxInputBytes, driver.DefaultMaxInputBytes},
		{&limits.MaxExtractedBytes, driver.DefaultMaxExtractedBytes},
		{&limits.MaxMembers, driver.DefaultMaxMembers},
	} {
		if *l.v == 0 {
			*l.v = l.def
		}
	}
	if opts.Replace {
		return replace(ctx, dir, r, opts)
	}
	im, err := unpack(ctx, dir, r, opts)
	if err == nil {
		err = im.dirs.finish()
	}
	im.dirs.close()
	if err != nil {
		var e *errs.Error
		if err = beneath.Fail("files.import", "", err); errors.As(err, &e) && im.members > 0 {
			e.MaybeApplied = true
		}
		return driver.ImportResult{}, err
	}
	return im.out, nil
}

// unpack reads the whole stream and writes everything but what directories get last.
func unpack(ctx context.Context, dir int, r io.Reader, opts ImportOptions) (*importer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	im := &importer{
		opts: opts, own: [2]uint32{uint32(unix.Geteuid()), uint32(unix.Getegid())},
		seed: maphash.MakeSeed(), seen: map[uint64]struct{}{},
	}
	im.root = im.own[0] == 0
	im.dirs.init(dir)
	stream := &bounded{ctx: ctx, r: r, left: opts.Limits.MaxInputBytes, max: opts.Limits.MaxInputBytes, what: "bytes of input"}
	source := io.Reader(stream)
	if opts.Decompress != nil {
		plain, err := opts.Decompress(source)
		if err != nil {
			return im, err
		}
		defer func() { _ = plain.Close() }()
		// Besides the content there are headers: a stream of nothing else must end too.
		max := opts.Limits.MaxExtractedBytes + min(opts.Limits.MaxMembers, 1<<40)*headerCost
		if max < opts.Limits.MaxExtractedBytes {
			max = math.MaxUint64
		}
		source = &bounded{ctx: ctx, r: decompressed{plain, stream}, left: max, max: max, what: "bytes after decompression"}
	}
	im.in = newInput(source)
	im.tar = tar.NewReader(im.in)
	im.work = startWorkers(ctx, cancel)
	err := im.read(ctx)
	if err != nil {
		cancel(err)
	}
	if werr := im.work.wait(); werr != nil {
		err = werr // the reader only saw that something had failed
	}
	im.out.Members, im.out.Bytes = im.members-uint64(len(im.out.Skipped)), im.bytes
	return im, err
}

func (im *importer) read(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return beneath.Done(ctx)
		}
		im.in.next()
		h, err := im.tar.Next()
		if errors.Is(err, io.EOF) {
			if im.in.cut() {
				return errs.New(errs.ArchiveInvalid, "the archive ends before its end marker").
					WithHint("the stream was cut off; send it again")
			}
			return im.in.drain()
		}
		if err != nil {
			return im.broken("", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // its cost is bounded by the input limit
		}
		if im.members++; im.members > im.opts.Limits.MaxMembers {
			return limit("members", im.opts.Limits.MaxMembers, h.Name)
		}
		if err := im.member(ctx, h); err != nil {
			return memberError(h.Name, err)
		}
	}
}

// broken types what the tar reader said.
func (im *importer) broken(name string, err error) error {
	if im.in.failed != nil {
		return im.in.failed
	}
	e := errs.New(errs.ArchiveInvalid, "the archive cannot be read")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e = errs.New(errs.ArchiveInvalid, "the archive ends in the middle")
	}
	if name != "" {
		e = e.With("member", name)
	}
	e.Err = err
	return e
}

func limit(what string, max uint64, name string) error {
	return errs.New(errs.ArchiveLimit, "the archive holds more than %d %s", max, what).With("member", name).
		WithHint("raise the import's limit if the archive can be trusted")
}

// memberError names the member that err came from.
func memberError(name string, err error) error {
	var e *errs.Error
	if errors.As(err, &e) && e.Context["member"] != "" {
		return err
	}
	typed := beneath.Fail("files.import", name, err)
	if errors.As(typed, &e) {
		return e.With("member", name)
	}
	return typed
}

func invalid(format string, args ...any) error { return errs.New(errs.ArchiveInvalid, format, args...) }

// clean checks a name in the archive and takes it apart: the directory's path and the last component, which is empty
// for the top. Backslashes and drive letters are bytes like others.
func clean(name string) (dir, base string, err error) {
	if strings.HasPrefix(name, "/") {
		return "", "", invalid("the name is absolute")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", "", invalid("the name holds a NUL byte")
	}
	tidy := true
	for rest := name; rest != ""; {
		c, after, more := strings.Cut(rest, "/")
		if c == ".." {
			return "", "", invalid(`the name holds ".."`)
		}
		if c == "." || (c == "" && more) {
			tidy = false
		}
		rest = after
	}
	name = strings.TrimSuffix(name, "/")
	if !tidy {
		parts := strings.Split(name, "/")
		keep := parts[:0]
		for _, p := range parts {
			if p != "" && p != "." {
				keep = append(keep, p)
			}
		}
		name = strings.Join(keep, "/")
	}
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:], nil
	}
	return "", name, nil
}

func (im *importer) member(ctx context.Context, h *tar.Header) error {
	dir, base, err := clean(h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return im.directory(dir, base, h)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeChar, tar.TypeBlock:
		return im.skip(h, "device")
	case tar.TypeFifo:
		return im.skip(h, "FIFO")
	default:
		return im.skip(h, "member of unknown kind "+string(rune(h.Typeflag)))
	}
	if base == "" {
		return invalid("the top is not a directory")
	}
	parent, err := im.parent(dir)
	if err != nil {
		return err
	}
	if im.named(parent, base) || im.dirs.known[key{parent, base}] != nil {
		return errTwice
	}
	im.seen[maphash.Comparable(im.seed, key{parent, base})] = struct{}{}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return im.symlink(parent, base, h)
	case tar.TypeLink:
		return im.hardLink(ctx, parent, base, h)
	}
	return im.file(ctx, parent, base, h)
}

func join(dir, base string) string {
	if dir == "" {
		return base
	}
	return dir + "/" + base
}

func (im *importer) skip(h *tar.Header, what string) error {
	im.out.Skipped = append(im.out.Skipped, driver.Skipped{Path: h.Name, Reason: what + ": only regular files, directories and links are unpacked"})
	if isSparse(h) {
		return nil // reading its holes could take for ever; the next header is found without
	}
	if _, err := io.Copy(io.Discard, im.tar); err != nil {
		return im.broken(h.Name, err)
	}
	return nil
}

var errTwice = errs.New(errs.ArchiveInvalid, "the archive holds the name twice")

// named reports whether the archive had a file of that name.
func (im *importer) named(parent *node, name string) bool {
	_, dup := im.seen[maphash.Comparable(im.seed, key{parent, name})]
	return dup
}

// parent finds or makes the directory path, and opens it.
func (im *importer) parent(path string) (*node, error) {
	n, err := im.dirs.find(im, path)
	if err != nil {
		return nil, err
	}
	return n, im.dirs.open(n)
}

func (im *importer) directory(dir, base string, h *tar.Header) error {
	n := im.dirs.top
	if base != "" {
		parent, err := im.parent(dir)
		if err != nil {
			return err
		}
		if im.named(parent, base) {
			return errTwice
		}
		if n = im.dirs.known[key{parent, base}]; n == nil {
			if n, err = im.dirs.make(im, parent, base, true); err != nil {
				return err
			}
		}
	}
	a := im.attrs(h)
	n.attrs = &a
	return nil
}

func (im *importer) symlink(parent *node, base string, h *tar.Header) error {
	if h.Linkname == "" {
		return invalid("the link has no target")
	}
	name, err := place(parent.fd, base, func(name string) error { return unix.Symlinkat(h.Linkname, parent.fd, name) })
	if err != nil {
		return err
	}
	a := im.attrs(h)
	if a.chown {
		if err := chown(parent.fd, name, &a); err != nil {
			return err
		}
	}
	return beneath.SetTimes(-1, parent.fd, name, a.mtime)
}

// place makes a file that is complete at once: under its name, or under another one and then renamed over a file that
// exists.
func place(dir int, name string, create func(name string) error) (string, error) {
	err := create(name)
	if !errors.Is(err, unix.EEXIST) {
		return name, err
	}
	temp := beneath.TempName()
	if err := create(temp); err != nil {
		return "", err
	}
	if err := unix.Renameat(dir, temp, dir, name); err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
		return "", err
	}
	// Two names of one file: rename does nothing then.
	_ = unix.Unlinkat(dir, temp, 0)
	return name, nil
}

func (im *importer) hardLink(ctx context.Context, parent *node, base string, h *tar.Header) error {
	dir, target, err := clean(h.Linkname)
	if err != nil || target == "" {
		return invalid("the hard link leads outside: %q", h.Linkname)
	}
	// The target must be complete before it gets a second name.
	parent.pin()
	defer parent.unpin()
	if err := im.work.drain(ctx); err != nil {
		return err
	}
	from, err := im.existing(dir)
	if err != nil {
		return err
	}
	var st beneath.Stat
	if err := beneath.StatAt(from.fd, target, &st); errors.Is(err, unix.ENOENT) {
		return invalid("the target of the hard link, %q, is not there", h.Linkname)
	} else if err != nil {
		return err
	}
	if st.IsDir() || (!st.IsRegular() && !st.IsLink()) {
		return invalid("the target of the hard link, %q, is no file", h.Linkname)
	}
	_, err = place(parent.fd, base, func(name string) error {
		return unix.Linkat(from.fd, target, parent.fd, name, 0)
	})
	if st.IsRegular() && (errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP)) {
		im.bytes += st.Size
		if im.bytes > im.opts.Limits.MaxExtractedBytes {
			return limit("bytes", im.opts.Limits.MaxExtractedBytes, h.Name)
		}
		return copyAcross(ctx, from.fd, target, parent.fd, base, im.attrs(h))
	}
	return err
}

// existing finds a directory without making it.
func (im *importer) existing(path string) (*node, error) {
	n, err := im.dirs.lookup(path)
	if err != nil {
		return nil, invalid("the target of the hard link is below something that is no directory: %v", err)
	}
	return n, im.dirs.open(n)
}
