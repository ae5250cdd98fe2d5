// SPDX-License-Identifier: Apache-2.0

// Package archive is what the driver does with archives that the guest cannot: reading what they name on the host.
package archive

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
	"github.com/berth-dev/berth/sdk/guest/fsys"
)

// Expand puts the content of host files into an archive that only names them, for a guest that cannot see them.
func Expand(ctx context.Context, w io.Writer, r io.Reader) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return errs.Wrap(errs.ArchiveInvalid, "files.import", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		source, id := h.PAXRecords[driver.PAXSource], h.PAXRecords[driver.PAXSourceID]
		if source == "" {
			if err := out.WriteHeader(h); err != nil {
				return errs.Wrap(errs.ArchiveInvalid, "files.import", err)
			}
			if _, err := io.Copy(out, in); err != nil { //nolint:gosec // the reader of the result has its limits
				return err
			}
			continue
		}
		if err := expandOne(out, h, source, id); err != nil {
			return err
		}
	}
}

func expandOne(out *tar.Writer, h *tar.Header, source, id string) error {
	if h.Size != 0 || !strings.HasPrefix(source, "/") {
		return errs.New(errs.ArchiveInvalid, "the member %q names the host file %q and has to have no content and an absolute path", h.Name, source)
	}
	f, err := fsys.OpenHostFile(source)
	if err != nil {
		return errs.Wrap(errs.VersionMismatch, "files.import", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return errs.Wrap(errs.VersionMismatch, "files.import", err)
	}
	seen := fmt.Sprintf("%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano())
	if st.Mode&unix.S_IFMT != unix.S_IFREG || seen != id {
		return errs.New(errs.VersionMismatch, "%s changed while it was being copied", source).With("path", source)
	}
	delete(h.PAXRecords, driver.PAXSource)
	delete(h.PAXRecords, driver.PAXSourceID)
	h.Size = st.Size
	if err := out.WriteHeader(h); err != nil {
		return errs.Wrap(errs.ArchiveInvalid, "files.import", err)
	}
	if _, err := io.CopyN(out, f, st.Size); err != nil {
		return errs.Wrap(errs.VersionMismatch, "copy "+source, err)
	}
	return nil
}
