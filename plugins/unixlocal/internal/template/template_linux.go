// SPDX-License-Identifier: Apache-2.0

// Package template keeps workspaces that were materialised once, for later sandboxes to begin from.
//
// A template is a directory that never changes after it was published, by one rename. Whoever mounts it holds a shared
// lock on it, and guests inherit that lock; what neither is in use nor lies below a workspace that is kept is removed, the
// longest unused first, when all together grow past a bound.
package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// Cache is the directory of all templates.
type Cache struct {
	dir string
	max uint64
}

// Open opens the cache, making its directory. max bounds the bytes of all templates.
func Open(dir string, limit uint64) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Internal, "open the template cache", err)
	}
	return &Cache{dir: dir, max: limit}, nil
}

// marker is written last; without it a directory is no template.
type marker struct {
	Key   string `json:"key"`
	Bytes uint64 `json:"bytes"`
	Files uint64 `json:"files"`
}

// Template is one template in use. Close lets go of it.
type Template struct {
	Name string // its directory's name in the cache
	Tree string // the workspace
	lock *os.File
}

// Lock is held for as long as any copy of it is open.
func (t *Template) Lock() *os.File { return t.lock }

// Close lets go of the template.
func (t *Template) Close() error { return t.lock.Close() }

// Name is the directory of a key. kind tells apart what the same key gives: owners on disk differ.
func Name(key, kind string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + key))
	return hex.EncodeToString(sum[:16])
}

// Find gives the template of a name, in use. errs.FileNotFound when there is none.
func (c *Cache) Find(name string) (*Template, error) {
	dir := filepath.Join(c.dir, name)
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		return nil, errs.New(errs.FileNotFound, "there is no such template")
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		_ = lock.Close() // it is being removed
		return nil, errs.New(errs.FileNotFound, "there is no such template")
	}
	t := &Template{Name: name, Tree: filepath.Join(dir, "tree"), lock: lock}
	if _, err := readMarker(dir); err != nil {
		_ = lock.Close() // it is not a whole one
		return nil, errs.New(errs.FileNotFound, "there is no such template")
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(dir, "complete"), now, now); err != nil {
		_ = lock.Close() // it is gone
		return nil, errs.New(errs.FileNotFound, "there is no such template")
	}
	return t, nil
}

func readMarker(dir string) (marker, error) {
	var m marker
	b, err := os.ReadFile(filepath.Join(dir, "complete"))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// Build makes the template of a name: fill puts the workspace into the directory that it gets, and says how much it is.
// When another process was faster, that one's is given.
func (c *Cache) Build(ctx context.Context, name, key string, fill func(tree string) (files, bytes uint64, err error)) (*Template, error) {
	tmp, err := os.MkdirTemp(c.dir, ".build-")
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "make a template", err)
	}
	done := false
	defer func() {
		if !done {
			_ = os.RemoveAll(tmp) // the first error is the one to tell
		}
	}()
	tree := filepath.Join(tmp, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, errs.Wrap(errs.Internal, "make a template", err)
	}
	m := marker{Key: key}
	if m.Files, m.Bytes, err = fill(tree); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "make a template", err)
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(tmp, "lock"), nil, 0o600),
		os.WriteFile(filepath.Join(tmp, "complete"), b, 0o600),
	)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "make a template", err)
	}
	final := filepath.Join(c.dir, name)
	if err := os.Rename(tmp, final); err != nil {
		if t, e := c.Find(name); e == nil {
			return t, nil
		}
		return nil, errs.Wrap(errs.Internal, "publish a template", err)
	}
	done = true
	return c.Find(name)
}

// Trim removes unused templates until all together fit, and what builders that died left. Needed says whether a workspace
// that nobody uses now lies over a template.
func (c *Cache) Trim(ctx context.Context, needed func(name string) (bool, error)) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return errs.Wrap(errs.Internal, "trim the template cache", err)
	}
	type known struct {
		name  string
		bytes uint64
		used  time.Time
	}
	var list []known
	var sum uint64
	for _, e := range entries {
		dir := filepath.Join(c.dir, e.Name())
		st, err := os.Stat(filepath.Join(dir, "complete"))
		if err != nil {
			if i, err := e.Info(); err == nil && time.Since(i.ModTime()) > 24*time.Hour && strings.HasPrefix(e.Name(), ".") {
				_ = os.RemoveAll(dir) // tried again next time
			}
			continue
		}
		if m, err := readMarker(dir); err == nil {
			list, sum = append(list, known{e.Name(), m.Bytes, st.ModTime()}), sum+m.Bytes
		}
	}
	slices.SortFunc(list, func(a, b known) int { return a.used.Compare(b.used) })
	for _, k := range list {
		if sum <= c.max || ctx.Err() != nil {
			break
		}
		if c.remove(k.name, needed) {
			sum -= k.bytes
		}
	}
	return nil //nolint:nilerr // what cannot be looked at is not counted
}

// remove removes a template that nobody uses or needs.
func (c *Cache) remove(name string, needed func(string) (bool, error)) bool {
	dir := filepath.Join(c.dir, name)
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return false
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	// Whoever used it has written down by now that it is needed.
	if yes, err := needed(name); yes || err != nil {
		return false
	}
	// Whoever opened the lock meanwhile cannot take it, and finds no marker afterwards.
	gone := filepath.Join(c.dir, ".gone-"+name)
	if os.Rename(dir, gone) != nil {
		return false
	}
	return os.RemoveAll(gone) == nil
}
