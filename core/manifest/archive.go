// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// ArchiveOptions are for [Contents.Archive].
type ArchiveOptions struct {
	// HostReferences name host files instead of carrying their bytes, for a driver on this host; see driver.PAXSource.
	HostReferences bool
	Now            time.Time // of members without a time of their own
	Owner, Group   string    // of members that name none
	EphemeralOnly  bool      // only what is made again at each resume
}

// ErrChanged says that a source is not any more what it was when it was looked at.
var ErrChanged = errors.New("the source changed while it was copied")

// Archive writes the workspace as one tar stream.
func (c *Contents) Archive(ctx context.Context, w io.Writer, opts ArchiveOptions) error {
	tw := tar.NewWriter(w)
	now := opts.Now.Truncate(time.Second) // whole seconds need no extra record for each file
	for i := range c.Members {
		m := &c.Members[i]
		if opts.EphemeralOnly && (m.Entry == nil || !m.Entry.Ephemeral) {
			continue
		}
		if i%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := m.write(tw, opts, now); err != nil {
			if m.Entry != nil {
				return failed(m.Entry, err)
			}
			return err
		}
	}
	return tw.Close()
}

func (m *Member) write(tw *tar.Writer, opts ArchiveOptions, now time.Time) error {
	h := &tar.Header{Name: m.Path, Mode: int64(m.Mode), ModTime: m.ModTime, Uname: m.Owner, Gname: m.Group}
	if h.ModTime.IsZero() {
		h.ModTime = now
	}
	if h.Uname == "" {
		h.Uname = opts.Owner
	}
	if h.Gname == "" {
		h.Gname = opts.Group
	}
	switch m.Type {
	case driver.TypeDirectory:
		h.Typeflag, h.Name = tar.TypeDir, m.Path+"/"
		return tw.WriteHeader(h)
	case driver.TypeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, m.Target
		return tw.WriteHeader(h)
	case driver.TypeRegular:
	default:
		return fmt.Errorf("%s: files of type %d cannot be made", m.Path, m.Type)
	}
	h.Typeflag = tar.TypeReg
	switch {
	case m.Source == "":
		h.Size = m.Size
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		_, err := tw.Write(m.Content)
		return err
	case opts.HostReferences:
		h.Format = tar.FormatPAX
		h.PAXRecords = map[string]string{
			driver.PAXSource:   m.Source,
			driver.PAXSourceID: fmt.Sprintf("%d:%d:%d:%d", m.ID.Dev, m.ID.Ino, m.ID.Size, m.ID.MTimeNS),
		}
		return tw.WriteHeader(h)
	default:
		h.Format, h.Size = tar.FormatPAX, m.Size
		return m.copyTo(tw, h)
	}
}

func (m *Member) copyTo(tw *tar.Writer, h *tar.Header) error {
	dir, name := filepath.Split(m.Source)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	seen, err := root.Lstat(name)
	if err != nil || !m.same(idOf(seen)) {
		return fmt.Errorf("%s: %w", m.Source, ErrChanged)
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if !m.same(idOf(opened)) {
		return fmt.Errorf("%s: %w", m.Source, ErrChanged)
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(tw, f, m.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w: it has only %d of %d bytes", m.Source, ErrChanged, n, m.Size)
	}
	return err
}

// same compares with what was seen. The change time is left out: reading a file's rights may be enough to touch it.
func (m *Member) same(id FileID) bool {
	id.CTimeNS = m.ID.CTimeNS
	return id == m.ID
}
