// SPDX-License-Identifier: Apache-2.0

package emul

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/ignore"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// Export writes a tree as tar, in PAX format whatever the sandbox's tar writes.
func (e *Emulator) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	t, err := e.use(ctx, driver.TreeNative, "tar", "readlink")
	if err != nil {
		return err
	}
	exclude, err := ignore.New(opts.Exclude)
	if err != nil {
		return err
	}
	dir, base, err := t.split(opts.Path)
	if err != nil {
		return err
	}
	closer := io.Closer(io.NopCloser(nil))
	switch opts.Compression {
	case "":
	case "zstd":
		z, err := (zstd.Codec{}).NewWriter(w)
		if err != nil {
			return err
		}
		w, closer = z, z
	default:
		return errs.New(errs.InvalidArgument, "there is no compression %q", opts.Compression)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := e.run(ctx, t, call{op: "tree.export", path: opts.Path, script: exportScript, args: []string{dir, base}, stdout: pw})
		pw.CloseWithError(err) // never fails; nil is the end
		done <- err
	}()
	err = filter(pr, w, exclude)
	if err != nil {
		stop(err)
	}
	pr.CloseWithError(err) // never fails
	if runErr := <-done; err == nil {
		err = runErr
	}
	return errors.Join(err, closer.Close())
}

// filter copies an archive without what is excluded.
func filter(r io.Reader, w io.Writer, exclude *ignore.Matcher) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	skipped := map[string]bool{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// What the archive is padded with.
			if _, err := io.Copy(io.Discard, r); err != nil {
				return err
			}
			return errs.Wrap(errs.Canceled, "write archive", tw.Close())
		}
		if err != nil {
			return errs.Wrap(errs.ArchiveInvalid, "read archive", err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if name == "" || name == "." {
			continue
		}
		if exclude.Match(name, h.Typeflag == tar.TypeDir) || below(name, skipped) {
			if h.Typeflag == tar.TypeDir {
				skipped[name] = true
			}
			continue
		}
		h.Name = name
		if h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		if h.Typeflag == tar.TypeLink {
			h.Linkname = strings.TrimPrefix(h.Linkname, "./")
		}
		h.Format, h.PAXRecords = tar.FormatPAX, nil
		if err := tw.WriteHeader(h); err != nil {
			return errs.Wrap(errs.Canceled, "write archive", err)
		}
		if _, err := io.Copy(tw, tr); err != nil { //nolint:gosec // the reader of the result has its limits
			return errs.Wrap(errs.Canceled, "write archive", err)
		}
	}
}

// below reports whether one of the directories above name is in the set.
func below(name string, set map[string]bool) bool {
	for i, c := range name {
		if c == '/' && set[name[:i]] {
			return true
		}
	}
	return false
}

// Import unpacks a tar stream. The archive is checked as it passes: what is hostile or too large ends the import with
// what came before it unpacked.
func (e *Emulator) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	var out driver.ImportResult
	t, err := e.use(ctx, driver.TreeNative, "tar", "find", "readlink", "mkdir", "rm")
	if err != nil {
		return out, err
	}
	if opts.HostReferences {
		return out, errs.New(errs.Unsupported, "archives that name host files").With("feature", string(driver.TreeHostRefs))
	}
	dir, base, err := t.split(opts.Path)
	if err != nil {
		return out, err
	}
	c := &checker{limits: bounds(opts.Limits), opts: opts, out: &out}
	c.in = &counted{r: r, max: c.limits.MaxInputBytes}
	src := io.Reader(c.in)
	switch opts.Compression {
	case "":
	case "zstd":
		z, err := (zstd.Codec{}).NewReader(src)
		if err != nil {
			return out, err
		}
		defer z.Close() // it was only read
		src = z
	default:
		return out, errs.New(errs.InvalidArgument, "there is no compression %q", opts.Compression)
	}
	replace := ""
	if opts.Replace {
		replace = "replace"
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := e.run(ctx, t, call{op: "tree.import", path: opts.Path, script: importScript, args: []string{dir, base, replace}, stdin: pr})
		// What the command did not take must not block the other side.
		pr.CloseWithError(errEnded) // never fails
		done <- err
	}()
	err = c.pass(src, pw)
	if err != nil && !errors.Is(err, errEnded) {
		stop(err)
	}
	pw.CloseWithError(err) // never fails; nil is the end
	runErr := <-done
	if err == nil || errors.Is(err, errEnded) {
		err = runErr
	}
	return out, err
}

var errEnded = errors.New("the command has ended")

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

// counted is the input with its bound.
type counted struct {
	r      io.Reader
	n, max uint64
}

// Read fails past the bound.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += uint64(n); c.n > c.max {
		return n, errs.New(errs.ArchiveLimit, "the archive has more than %d bytes", c.max)
	}
	return n, err
}

// checker lets through what may be unpacked.
type checker struct {
	limits driver.TreeLimits
	opts   driver.ImportOptions
	out    *driver.ImportResult
	in     *counted
	links  map[string]bool // symbolic links of the archive itself
}

func (c *checker) pass(r io.Reader, w io.Writer) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	c.links = map[string]bool{}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tw.Close()
		}
		if err != nil {
			return errs.Wrap(errs.ArchiveInvalid, "read archive", err)
		}
		keep, err := c.member(h)
		if err != nil {
			return err
		}
		if !keep {
			continue
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil { //nolint:gosec // the reader of the result has its limits
			return err
		}
	}
}

// member checks one member and rewrites its header for any tar.
func (c *checker) member(h *tar.Header) (keep bool, err error) {
	bad := func(format string, args ...any) error {
		return errs.New(errs.ArchiveInvalid, format, args...).With("path", h.Name)
	}
	c.out.Members++
	c.out.Bytes += uint64(max(h.Size, 0))
	if c.out.Members > c.limits.MaxMembers || c.out.Bytes > c.limits.MaxExtractedBytes {
		return false, errs.New(errs.ArchiveLimit, "the archive has more than %d members or %d bytes in them", c.limits.MaxMembers, c.limits.MaxExtractedBytes).With("path", h.Name)
	}
	name, ok := within(h.Name)
	switch {
	case !ok:
		return false, bad("the member %q leads out of the directory", h.Name)
	case name == ".":
		return false, nil
	case below(name, c.links):
		return false, bad("the member %q goes through a link of the archive", h.Name)
	}
	delete(c.links, name)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink:
		c.links[name] = true
	case tar.TypeLink:
		to, ok := within(h.Linkname)
		if !ok || c.links[to] || below(to, c.links) {
			return false, bad("the member %q links to %q", h.Name, h.Linkname)
		}
		h.Linkname = to
	default:
		c.out.Skipped = append(c.out.Skipped, driver.Skipped{Path: name, Reason: "not a file, directory or link"})
		return false, nil
	}
	h.Name = "./" + name
	if h.Typeflag == tar.TypeLink {
		h.Linkname = "./" + h.Linkname
	}
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	h.Mode &= 0o7777
	if c.opts.Owner != "" {
		h.Uname, h.Uid = c.opts.Owner, 0
	}
	if c.opts.Group != "" {
		h.Gname, h.Gid = c.opts.Group, 0
	}
	// GNU's format is the one that busybox reads too.
	h.Format, h.PAXRecords, h.Devmajor, h.Devminor = tar.FormatGNU, nil, 0, 0
	return true, nil
}

// within cleans a name; ok is false when it leads out.
func within(name string) (clean string, ok bool) {
	if path.IsAbs(name) || strings.Contains(name, "\x00") {
		return "", false
	}
	clean = path.Clean(name)
	return clean, clean != ".." && !strings.HasPrefix(clean, "../")
}
