// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

const (
	tempPrefix = ".new-" // no object's name begins with a dot
	lockFile   = ".lock"
)

// Folder is a store in a local folder. Processes of several users may share it: what is made in it has the rights that
// the folder itself has.
type Folder struct {
	dir  string
	perm fs.FileMode // of directories
}

// NewFolder gives the store in dir. When there is no such directory it is made, for this user alone, once something is
// stored.
func NewFolder(dir string) (*Folder, error) {
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Folder{dir: dir, perm: 0o700}, nil
	case err != nil:
		return nil, err
	case !fi.IsDir():
		return nil, &fs.PathError{Op: "open", Path: dir, Err: errors.New("is no directory")}
	}
	return &Folder{dir: dir, perm: fi.Mode().Perm()}, nil
}

// Where gives the folder.
func (f *Folder) Where() string { return f.dir }

func (f *Folder) path(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(f.dir, filepath.FromSlash(name)), nil
}

// Put writes beside the place, syncs, and links the file to its name: that fails when there is one already.
func (f *Folder) Put(ctx context.Context, name string, data []byte) (created bool, err error) {
	path, err := f.path(name)
	if err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	dir := filepath.Dir(path)
	if err := f.mkdir(dir); err != nil {
		return false, err
	}
	tmp, err := f.write(dir, data)
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(tmp) }() // it has its name, or it is of no use
	switch err := os.Link(tmp, path); {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil:
		// No hard links here. Two writers of one name write the same bytes, so that a rename does no harm.
		if err := os.Rename(tmp, path); err != nil {
			return false, err
		}
	}
	return true, syncDir(dir)
}

// mkdir makes the directories of an object and makes them last.
func (f *Folder) mkdir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if dir == f.dir {
		return os.MkdirAll(dir, f.perm)
	}
	if err := f.mkdir(filepath.Dir(dir)); err != nil {
		return err
	}
	err := os.Mkdir(dir, f.perm)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(dir, f.perm), syncDir(filepath.Dir(dir)))
}

func (f *Folder) write(dir string, data []byte) (name string, err error) {
	file, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(f.perm &^ 0o111)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only synced
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// Open reads a part of an object.
func (f *Folder) Open(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if off > 0 {
		if _, err := file.Seek(off, io.SeekStart); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if n < 0 {
		return file, nil
	}
	return &part{file: file, left: n}, nil
}

// part is a piece of a file; that the file ends within it is an error.
type part struct {
	file *os.File
	left int64
}

// Read reads on.
func (p *part) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n, err := p.file.Read(b[:min(int64(len(b)), p.left)])
	p.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close closes the file.
func (p *part) Close() error { return p.file.Close() }

// List walks the folder.
func (f *Folder) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		start := f.dir
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			start = filepath.Join(f.dir, filepath.FromSlash(prefix[:i]))
		}
		err := filepath.WalkDir(start, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // nothing was stored there, or it was deleted meanwhile
			case err != nil:
				return err
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case !d.Type().IsRegular():
				return nil
			}
			rel, err := filepath.Rel(f.dir, path)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(rel)
			if !strings.HasPrefix(name, prefix) || CheckName(name) != nil {
				return nil //nolint:nilerr // a file that is no object
			}
			fi, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Info{name, fi.Size()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Info{}, err)
		}
	}
}

// Delete removes an object.
func (f *Folder) Delete(_ context.Context, name string) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Tidy removes what writers left that did not come to their end. The caller holds the exclusive lock.
func (f *Folder) Tidy(ctx context.Context) error {
	return filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.Type().IsRegular() && strings.HasPrefix(d.Name(), tempPrefix):
			return os.Remove(path) //nolint:gosec // the store is the user's own: whoever can swap a folder in it can remove its files
		}
		return nil
	})
}
