// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// swap exchanges the content of a directory.
type swap struct {
	ctx    context.Context //nolint:containedctx // of the one import
	top    int
	trash  int
	count  int
	mounts map[string]bool // paths of mount points, true, and of the directories above them, false
	moved  []move          // to be undone after a failure
	gone   bool            // something was deleted and cannot come back
	open   []int           // descriptors that undo needs
	out    *driver.ImportResult
}

// move is an entry that was renamed.
type move struct {
	fromDir, toDir int
	from, to       string
}

// replace unpacks aside and swaps then.
func replace(ctx context.Context, dir int, r io.Reader, opts ImportOptions) (driver.ImportResult, error) {
	out, applied, err := replaceContent(ctx, dir, r, opts)
	if err != nil {
		var e *errs.Error
		if err = beneath.Fail("files.import", "", err); errors.As(err, &e) {
			e.MaybeApplied = applied
		}
		return driver.ImportResult{}, err
	}
	return out, nil
}

func replaceContent(ctx context.Context, dir int, r io.Reader, opts ImportOptions) (_ driver.ImportResult, applied bool, err error) {
	// Names of our own in the same directory: what is unpacked only has to be renamed, and needs no other place to
	// which the process may have no right.
	stage, stageName, err := makeTemp(dir)
	if err != nil {
		return driver.ImportResult{}, false, err
	}
	clean := func() { _ = beneath.RemoveAll(context.WithoutCancel(ctx), dir, stageName) }
	defer func() { _ = unix.Close(stage) }()
	im, err := unpack(ctx, stage, r, opts)
	top := im.dirs.top.attrs
	im.dirs.top.attrs = nil // meant for dir, not for the stage
	if err == nil {
		err = im.dirs.finish()
	}
	im.dirs.close()
	if err != nil {
		clean()
		return driver.ImportResult{}, false, err
	}
	trash, trashName, err := makeTemp(dir)
	if err != nil {
		clean()
		return driver.ImportResult{}, false, err
	}
	defer func() { _ = unix.Close(trash) }()
	s := &swap{ctx: context.WithoutCancel(ctx), top: dir, trash: trash, out: &im.out}
	defer s.close()
	if s.mounts, err = mountPoints(ctx, dir); err == nil {
		err = s.directory(dir, stage, "", map[string]bool{stageName: true, trashName: true})
	}
	if err != nil {
		s.undo()
		clean()
		_ = beneath.RemoveAll(s.ctx, dir, trashName)
		return driver.ImportResult{}, s.gone, err
	}
	// From here on the new content is in place; remains of the old one are not worth a failure, but are told.
	clean()
	if err := beneath.RemoveAll(s.ctx, dir, trashName); err != nil {
		s.out.Skipped = append(s.out.Skipped, driver.Skipped{Path: trashName, Reason: "the old content could not be removed: " + err.Error()})
	}
	if top != nil {
		if err := setDir(dir, "", top); err != nil {
			return driver.ImportResult{}, true, memberError("./", err)
		}
	}
	return im.out, true, nil
}

func makeTemp(dir int) (fd int, name string, err error) {
	name = beneath.TempName()
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return -1, "", err
	}
	fd, err = beneath.OpenDir(dir, name, false)
	return fd, name, err
}

// mountPoints finds the mounts below dir: their content is not ours to clear.
func mountPoints(ctx context.Context, dir int) (map[string]bool, error) {
	found := map[string]bool{}
	err := beneath.Walk(ctx, dir, &beneath.Visitor{
		Stay:  true,
		Keep:  func(_ int, e beneath.Entry, _ string) bool { return e.Type() == 0 || e.Type() == unix.S_IFDIR },
		Visit: func(int, beneath.Entry, string) error { return nil },
		Unreadable: func(_ int, _, path string, err error) error {
			if !errors.Is(err, unix.EXDEV) {
				return nil
			}
			found[path] = true
			for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
				found[path[:i]] = false
			}
			return nil
		},
	})
	return found, err
}

// directory empties dir into the trash and fills it from stage, which is -1 when the archive has no such directory.
func (s *swap) directory(dir, stage int, path string, skip map[string]bool) error {
	old, err := names(dir)
	if err != nil {
		return err
	}
	stay := map[string]bool{}
	for _, name := range old {
		if skip[name] {
			continue
		}
		mount, has := s.mounts[join(path, name)]
		if !has {
			mount, has, err = s.discard(dir, name)
			if err != nil {
				return beneath.Fail("files.import", join(path, name), err)
			}
		}
		if !has {
			continue
		}
		stay[name] = true
		if !mount {
			if err := s.below(dir, stage, name, join(path, name)); err != nil {
				return err
			}
		}
	}
	if stage < 0 {
		return nil
	}
	fresh, err := names(stage)
	if err != nil {
		return err
	}
	for _, name := range fresh {
		if stay[name] {
			s.leftOver(stage, name, join(path, name))
			continue
		}
		if err := unix.Renameat(stage, name, dir, name); err != nil {
			return beneath.Fail("files.import", join(path, name), err)
		}
		s.moved = append(s.moved, move{stage, dir, name, name})
	}
	return nil
}

// discard moves name away. Where a directory cannot be moved (from the lower layer of an overlay), it is deleted: that
// cannot be undone, but what is to come is complete by now. A mount that the search did not see is told by mount, has.
func (s *swap) discard(dir int, name string) (mount, has bool, err error) {
	s.count++
	to := strconv.Itoa(s.count)
	err = unix.Renameat(dir, name, s.trash, to)
	switch {
	case err == nil:
		s.moved = append(s.moved, move{dir, s.trash, name, to})
		return false, false, nil
	case errors.Is(err, unix.ENOENT):
		return false, false, nil
	case errors.Is(err, unix.EBUSY):
		return true, true, nil
	case errors.Is(err, unix.EXDEV):
		s.gone = true
		return false, false, beneath.RemoveAll(s.ctx, dir, name)
	}
	return false, false, err
}

// below goes into a directory that has to stay for the mounts below it.
func (s *swap) below(dir, stage int, name, path string) error {
	sub, err := beneath.OpenDir(dir, name, true)
	if err != nil {
		return err
	}
	s.open = append(s.open, sub)
	from := -1
	if stage >= 0 {
		if fd, err := beneath.OpenDir(stage, name, true); err == nil {
			from = fd
			s.open = append(s.open, fd)
		}
	}
	return s.directory(sub, from, path, nil)
}

// leftOver tells what of the archive could not be put in the place of a mount. A directory that is only there to be
// mounted on is nothing to tell.
func (s *swap) leftOver(stage int, name, path string) {
	if s.mounts[path] {
		if fd, err := beneath.OpenDir(stage, name, true); err == nil {
			inside, err := names(fd)
			_ = unix.Close(fd)
			if err == nil && len(inside) == 0 {
				return
			}
		}
	} else if fd, err := beneath.OpenDir(stage, name, true); err == nil {
		_ = unix.Close(fd)
		return // its content was moved
	}
	s.out.Skipped = append(s.out.Skipped, driver.Skipped{Path: path, Reason: "a mount point is in its place"})
}

// undo puts everything back, the last move first.
func (s *swap) undo() {
	for _, m := range slices.Backward(s.moved) {
		_ = unix.Renameat(m.toDir, m.to, m.fromDir, m.from)
	}
}

func (s *swap) close() {
	for _, fd := range s.open {
		_ = unix.Close(fd)
	}
}

func names(dir int) ([]string, error) {
	fd, err := beneath.OpenDir(dir, "", false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	entries, err := beneath.ReadDir(fd, make([]byte, 16<<10), nil)
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name
	}
	return out, err
}
