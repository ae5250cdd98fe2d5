// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// mostFile is the largest file that an expression may read.
const mostFile = 4 << 20

// Files reads files of the host for expressions: only inside the project directory and the directories that the host
// allows, regular files only, and each once, so that every expression of a load sees the same text.
type Files struct {
	project string
	allowed []string

	mu    sync.Mutex
	reads map[string][]byte
}

// NewFiles reads inside the project directory; allowed are more directories, absolute, that the host's policy lists.
func NewFiles(project string, allowed ...string) (*Files, error) {
	f := &Files{reads: map[string][]byte{}}
	var err error
	if f.project, err = resolved(project); err != nil {
		return nil, fmt.Errorf("find the project directory: %w", err)
	}
	for _, dir := range allowed {
		dir, err := resolved(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find an allowed directory: %w", err)
		}
		f.allowed = append(f.allowed, dir)
	}
	return f, nil
}

func resolved(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// Hashes gives the SHA-256 of every file that was read, by its path relative to the project where it is inside.
func (f *Files) Hashes() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]string, len(f.reads))
	for name, b := range f.reads {
		if rel, err := filepath.Rel(f.project, name); err == nil && filepath.IsLocal(rel) {
			name = filepath.ToSlash(rel)
		}
		sum := sha256.Sum256(b)
		out[name] = hex.EncodeToString(sum[:])
	}
	return out
}

// Read gives the content of a file; a relative path starts from dir.
func (f *Files) Read(dir, name string) ([]byte, error) {
	real, root, err := f.locate(dir, name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.reads[real]; ok {
		return b, nil
	}
	b, err := readInside(root, real, name)
	if err != nil {
		return nil, err
	}
	f.reads[real] = b
	return b, nil
}

// Exists reports whether a path is a regular file.
func (f *Files) Exists(dir, name string) (bool, error) {
	real, _, err := f.locate(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return false, plain(err, name)
	}
	if info.IsDir() {
		return false, fmt.Errorf("%q is a directory, not a file", name)
	}
	return info.Mode().IsRegular(), nil
}

// locate resolves the links of a path and finds the directory that it must stay in.
func (f *Files) locate(dir, name string) (real, root string, err error) {
	if name == "" {
		return "", "", errors.New("the path is empty")
	}
	if strings.ContainsRune(name, 0) {
		return "", "", errors.New("the path has a NUL character")
	}
	full := name
	if !filepath.IsAbs(full) {
		full = filepath.Join(dir, name)
	}
	if full, err = filepath.Abs(full); err != nil {
		return "", "", err
	}
	// What is written must be inside, too, so that whether something outside exists is never told.
	if f.rootOf(full) == "" && f.rootOf(lexical(full)) == "" {
		return "", "", outside(name)
	}
	real, err = filepath.EvalSymlinks(full)
	if err != nil {
		return "", "", plain(err, name)
	}
	if root = f.rootOf(real); root == "" {
		return "", "", outside(name)
	}
	return real, root, nil
}

// lexical resolves the links of the longest directory above a path that exists.
func lexical(full string) string {
	dir, base := filepath.Split(full)
	real, err := filepath.EvalSymlinks(filepath.Clean(dir))
	if err == nil {
		return filepath.Join(real, base)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if parent == filepath.Clean(dir) {
		return full
	}
	return filepath.Join(lexical(filepath.Clean(dir)), base)
}

func (f *Files) rootOf(path string) string {
	for _, root := range append([]string{f.project}, f.allowed...) {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			return root
		}
	}
	return ""
}

// readInside opens through the root, so that a link which is swapped in at the last moment leads nowhere either.
func readInside(root, real, name string) (_ []byte, err error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, plain(err, name)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	rel, err := filepath.Rel(root, real)
	if err != nil {
		return nil, plain(err, name)
	}
	// A FIFO would block an ordinary open for ever.
	file, err := r.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, plain(err, name)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, plain(err, name)
	case info.IsDir():
		return nil, fmt.Errorf("%q is a directory, not a file", name)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is not a regular file", name)
	case info.Size() > mostFile:
		return nil, tooLarge(name)
	}
	b, err := io.ReadAll(io.LimitReader(file, mostFile+1))
	switch {
	case err != nil:
		return nil, plain(err, name)
	case len(b) > mostFile:
		return nil, tooLarge(name)
	}
	return b, nil
}

func tooLarge(name string) error {
	return fmt.Errorf("%q is larger than %d MiB; put it into the workspace with local_file instead", name, mostFile>>20)
}

func outside(name string) error {
	return fmt.Errorf("%q is outside the project directory; the host's policy can allow more with allow_host_files", name)
}

// plain tells what is wrong with a path as the user wrote it, not where the project is.
func plain(err error, name string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &pathError{
			text: fmt.Sprintf("no file exists at %q; paths are relative to the directory of the configuration", name), err: fs.ErrNotExist,
		}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be read: permission denied", name)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("%q cannot be read: %w", name, err)
}

type pathError struct {
	text string
	err  error
}

func (e *pathError) Error() string { return e.text }
func (e *pathError) Unwrap() error { return e.err }
