// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/ignore"
)

// source is a directory of the host, opened, so that nothing outside it can be reached through it.
type source struct {
	dir  string
	root *os.Root
}

func openSource(dir string) (*source, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no directory %s", dir)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	return &source{dir: real, root: root}, nil
}

func (s *source) close() { _ = s.root.Close() }

// fileInfo is what is known of a source file.
type fileInfo struct {
	mode    fs.FileMode
	id      FileID
	modTime time.Time
}

func (s *source) stat(name string) (fileInfo, error) {
	fi, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fileInfo{}, fmt.Errorf("there is no file %s", filepath.Join(s.dir, name))
	}
	if err != nil {
		return fileInfo{}, err
	}
	return infoOf(fi), nil
}

func infoOf(fi fs.FileInfo) fileInfo {
	return fileInfo{mode: fi.Mode(), modTime: fi.ModTime(), id: idOf(fi)}
}

func (i fileInfo) member(to, from string, mode uint32) Member {
	return Member{Path: to, Type: driver.TypeRegular, Mode: mode, Source: from, ID: i.id, Size: i.id.Size, ModTime: i.modTime}
}

// OwnDir is the directory in a project where berth keeps what it remembers. It changes all the time and is never copied.
const OwnDir = ".berth"

// localDir adds a directory's files.
func (r *resolver) localDir(ctx context.Context, e *spec.Entry, d spec.LocalDirEntry) error {
	exclude, err := ignore.New(d.Exclude)
	if err != nil {
		return err
	}
	include, err := ignore.New(d.Include)
	if err != nil {
		return err
	}
	src, err := openSource(d.Source)
	if err != nil {
		return err
	}
	defer src.close()
	top, err := src.stat(".")
	if err != nil {
		return err
	}
	w := &walk{resolver: r, entry: e, spec: d, src: src, exclude: exclude, include: include}
	r.dirs[e.Path] = true
	r.add(e, Member{Path: e.Path, Type: driver.TypeDirectory, Mode: mode(e, keep(d.KeepModes, top.mode, 0o755))})
	if err := w.dir(ctx, ".", nil); err != nil {
		return err
	}
	if e.GitRepo == nil && e.LocalDir != nil && e.LocalDir.MaxFiles > 0 && w.files > e.LocalDir.MaxFiles {
		return fmt.Errorf("%s holds %d files, more than max_files = %d allows", d.Source, w.files, e.LocalDir.MaxFiles)
	}
	if d.MaxSize > 0 && uint64(w.bytes) > d.MaxSize {
		return fmt.Errorf("%s holds %d bytes, more than max_size = %d allows", d.Source, w.bytes, d.MaxSize)
	}
	return nil
}

func keep(modes bool, m fs.FileMode, usual uint32) uint32 {
	if modes {
		return uint32(m.Perm())
	}
	return usual
}

// walk collects one source directory.
type walk struct {
	*resolver
	entry            *spec.Entry
	spec             spec.LocalDirEntry
	src              *source
	exclude, include *ignore.Matcher
	files            int
	bytes            int64
}

// scoped is a .gitignore and the directory that it is about.
type scoped struct {
	dir     string
	matcher *ignore.Matcher
}

func (w *walk) dir(ctx context.Context, dir string, ignores []scoped) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if w.spec.Gitignore {
		more, err := w.gitignore(dir)
		if err != nil {
			return err
		}
		if more != nil {
			ignores = append(slices.Clip(ignores), scoped{dir, more})
		}
	}
	f, err := w.src.root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	_ = f.Close()
	if err != nil {
		return err
	}
	for _, de := range entries {
		if err := w.one(ctx, join(dir, de.Name()), de, ignores); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) one(ctx context.Context, rel string, de fs.DirEntry, ignores []scoped) error {
	isDir := de.IsDir()
	if isDir && rel == OwnDir {
		return nil
	}
	if w.exclude.Match(rel, isDir) || (w.spec.Gitignore && (rel == ".git" || ignored(ignores, rel, isDir))) {
		return nil
	}
	if !isDir && !w.include.Empty() && !w.include.Match(rel, false) {
		return nil
	}
	fi, err := de.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since the directory was read
	}
	if err != nil {
		return err
	}
	info, to := infoOf(fi), join(w.entry.Path, rel)
	switch {
	case isDir:
		w.dirs[to] = true
		w.add(w.entry, Member{Path: to, Type: driver.TypeDirectory, Mode: keep(w.spec.KeepModes, info.mode, 0o755), ModTime: info.modTime})
		return w.dir(ctx, rel, ignores)
	case info.mode.IsRegular():
		w.files++
		w.bytes += info.id.Size
		w.add(w.entry, info.member(to, filepath.Join(w.src.dir, filepath.FromSlash(rel)), keep(w.spec.KeepModes, info.mode, 0o644)))
	case info.mode.Type() == fs.ModeSymlink:
		return w.link(rel, to, info)
	default:
		// Sockets, FIFOs and devices have no contents to copy.
		w.opts.Progress(driver.Progress{Phase: "copying", Message: fmt.Sprintf("%s left out: it is %s", rel, describe(info.mode))})
	}
	return nil
}

func (w *walk) link(rel, to string, info fileInfo) error {
	if w.spec.Symlinks == "skip" {
		w.opts.Progress(driver.Progress{Phase: "copying", Message: rel + " left out: it is a symbolic link"})
		return nil
	}
	target, err := w.src.root.Readlink(rel)
	if err != nil {
		return err
	}
	inside := !path.IsAbs(target) && !strings.HasPrefix(path.Join(path.Dir(rel), target)+"/", "../")
	if w.spec.Symlinks != "preserve" || (!inside && w.entry.GitRepo == nil) {
		return fmt.Errorf(`%s is a symbolic link to %s: set symlinks = "preserve" for links that stay inside, "skip" to leave them out, or exclude it`, rel, target)
	}
	w.files++
	w.add(w.entry, Member{Path: to, Type: driver.TypeSymlink, Mode: 0o777, Target: target, ModTime: info.modTime})
	return nil
}

func (w *walk) gitignore(dir string) (*ignore.Matcher, error) {
	const most = 1 << 20
	name := join(dir, ".gitignore")
	fi, err := w.src.root.Lstat(name)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > most {
		return nil, nil //nolint:nilerr // without a readable file there is nothing to ignore
	}
	b, err := w.src.root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	m, err := ignore.New(strings.Split(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func ignored(ignores []scoped, rel string, dir bool) bool {
	for _, s := range ignores {
		sub := rel
		if s.dir != "." {
			sub = strings.TrimPrefix(rel, s.dir+"/")
		}
		if s.matcher.Match(sub, dir) {
			return true
		}
	}
	return false
}

func describe(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	default:
		return "no regular file"
	}
}
