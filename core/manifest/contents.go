// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// Options are for [Resolve].
type Options struct {
	Vars     spec.RunVars
	CacheDir string // for git repositories; required when the manifest has any, unless Offline
	// Offline fetches no repository: it stands as an empty directory.
	Offline bool
	// Progress may be called with news; nil = not wanted.
	Progress func(driver.Progress)
}

// Contents are the members of a fresh workspace, sorted by path, parents first. They do not change: sessions share them.
type Contents struct {
	Members  []Member
	Manifest *spec.Manifest

	digest     string // see Digest
	digestOnce sync.Once
}

// Member is one file, directory or link.
type Member struct {
	Path  string // relative, clean
	Type  driver.FileType
	Mode  uint32 // 07777
	Owner string // empty = the workspace's
	Group string
	Entry *spec.Entry // what it comes from; nil = a directory above an entry

	Content []byte    // of a file without Source
	Source  string    // host file; its bytes are copied
	ID      FileID    // of Source
	Size    int64     // of the content
	ModTime time.Time // zero = now
	Target  string    // of a link
}

// FileID tells whether a host file is still the one that was seen.
type FileID struct {
	Dev, Ino uint64
	Size     int64
	MTimeNS  int64
	CTimeNS  int64
}

// EntryError is a failure of one entry.
type EntryError struct {
	Kind spec.EntryKind
	Path string
	Pos  spec.Pos
	Err  error
}

// Error names the entry and where it was said.
func (e *EntryError) Error() string {
	at := ""
	if e.Pos.File != "" {
		at = fmt.Sprintf("%s:%d: ", e.Pos.File, e.Pos.Line)
	}
	return fmt.Sprintf("%s%s %q: %v", at, e.Kind, e.Path, e.Err)
}

// Unwrap gives the cause.
func (e *EntryError) Unwrap() error { return e.Err }

func failed(e *spec.Entry, err error) error {
	return &EntryError{Kind: e.Kind, Path: e.Path, Pos: e.Pos, Err: err}
}

// Resolve finds out what the manifest's entries are. A nil manifest is an empty workspace.
func Resolve(ctx context.Context, m *spec.Manifest, opts Options) (*Contents, error) {
	if m == nil {
		m = &spec.Manifest{Root: spec.DefaultRoot}
	}
	if opts.Progress == nil {
		opts.Progress = func(driver.Progress) {}
	}
	if !fixed(m) {
		return resolve(ctx, m, opts)
	}
	kept, err := m.Keep(func() (any, error) { return resolve(ctx, m, opts) })
	if err != nil {
		return nil, err
	}
	c, _ := kept.(*Contents) // nothing else is kept
	return c, nil
}

// fixed says whether the entries are what they say, whatever the host holds and the run is.
func fixed(m *spec.Manifest) bool {
	return !slices.ContainsFunc(m.Entries, func(e spec.Entry) bool {
		return e.Kind != spec.EntryDir && (e.Kind != spec.EntryFile || e.File.Expr != nil)
	})
}

func resolve(ctx context.Context, m *spec.Manifest, opts Options) (*Contents, error) {
	r := &resolver{opts: opts, dirs: map[string]bool{"": true, ".": true}, members: make([]Member, 0, len(m.Entries)+len(m.Entries)/8)}
	for i := range m.Entries {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := r.entry(ctx, &m.Entries[i]); err != nil {
			return nil, failed(&m.Entries[i], err)
		}
	}
	members, err := r.sorted()
	if err != nil {
		return nil, err
	}
	return &Contents{Members: members, Manifest: m}, nil
}

// sorted gives the members by path, each path once.
func (r *resolver) sorted() ([]Member, error) {
	// Members are large; only what their order is made by is moved.
	type key struct {
		path  string
		index int
	}
	keys := make([]key, len(r.members))
	for i := range r.members {
		keys[i] = key{r.members[i].Path, i}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.index, b.index)) })
	members := make([]Member, 0, len(keys))
	for _, k := range keys {
		b := &r.members[k.index]
		if len(members) == 0 || members[len(members)-1].Path != b.Path {
			members = append(members, *b)
			continue
		}
		a := &members[len(members)-1]
		if a.Type != driver.TypeDirectory || b.Type != driver.TypeDirectory {
			return nil, failed(cmp.Or(b.Entry, a.Entry), fmt.Errorf("another entry puts something at %s too", a.Path))
		}
		// Directories that two entries share stand once; what an entry says of its own directory wins.
		if a.Entry == nil || (b.Entry != nil && b.Entry.Path == b.Path) {
			*a = *b
		}
	}
	return members, nil
}

type resolver struct {
	opts    Options
	members []Member
	dirs    map[string]bool // directories that stand already
}

// parents makes the directories above a path.
func (r *resolver) parents(p string) {
	dir := path.Dir(p)
	if r.dirs[dir] {
		return
	}
	r.parents(dir)
	r.dirs[dir] = true
	r.members = append(r.members, Member{Path: dir, Type: driver.TypeDirectory, Mode: 0o755})
}

func (r *resolver) entry(ctx context.Context, e *spec.Entry) error {
	r.parents(e.Path)
	switch e.Kind {
	case spec.EntryDir:
		r.dirs[e.Path] = true
		r.add(e, Member{Path: e.Path, Type: driver.TypeDirectory, Mode: mode(e, 0o755)})
	case spec.EntryFile:
		content := e.File.Content
		if e.File.Expr != nil {
			v, err := e.File.Expr.Eval(r.opts.Vars)
			if err != nil {
				return err
			}
			s, ok := v.(string)
			if !ok {
				return fmt.Errorf("content is %T, a string is needed", v)
			}
			content = []byte(s)
		}
		usual := uint32(0o644)
		if e.File.Executable {
			usual = 0o755
		}
		r.add(e, Member{Path: e.Path, Type: driver.TypeRegular, Mode: mode(e, usual), Content: content, Size: int64(len(content))})
	case spec.EntryLocalFile:
		return r.localFile(e)
	case spec.EntryLocalDir:
		return r.localDir(ctx, e, *e.LocalDir)
	case spec.EntryGitRepo:
		if r.opts.Offline {
			if _, err := gitAddress(e.GitRepo); err != nil {
				return err
			}
			r.add(e, Member{Path: e.Path, Type: driver.TypeDirectory, Mode: 0o755})
			return nil
		}
		dir, err := r.gitRepo(ctx, e.GitRepo)
		if err != nil {
			return err
		}
		return r.localDir(ctx, e, spec.LocalDirEntry{Source: dir, Symlinks: "preserve", KeepModes: true})
	case spec.EntryMount:
		// A mount is attached, not copied; its directory must be there.
		r.add(e, Member{Path: e.Path, Type: driver.TypeDirectory, Mode: 0o755})
	}
	return nil
}

func (r *resolver) add(e *spec.Entry, m Member) {
	m.Entry, m.Owner, m.Group = e, e.Owner, e.Group
	r.members = append(r.members, m)
}

func mode(e *spec.Entry, usual uint32) uint32 {
	if e.Mode != nil {
		return *e.Mode
	}
	return usual
}

func (r *resolver) localFile(e *spec.Entry) error {
	dir, name := filepath.Split(e.LocalFile.Source)
	src, err := openSource(dir)
	if err != nil {
		return err
	}
	defer src.close()
	info, err := src.stat(name)
	if err != nil {
		return err
	}
	if !info.mode.IsRegular() {
		return fmt.Errorf("%s is %s, a file is needed", e.LocalFile.Source, describe(info.mode))
	}
	r.add(e, info.member(e.Path, filepath.Join(src.dir, name), mode(e, uint32(info.mode.Perm()))))
	return nil
}

// Bytes is the size of all contents.
func (c *Contents) Bytes() (n int64) {
	for i := range c.Members {
		n += c.Members[i].Size
	}
	return n
}

// Files counts what is not a directory.
func (c *Contents) Files() (n int) {
	for i := range c.Members {
		if c.Members[i].Type != driver.TypeDirectory {
			n++
		}
	}
	return n
}

func join(a, b string) string {
	if b == "." || b == "" {
		return a
	}
	if a == "." || a == "" {
		return b
	}
	return strings.TrimSuffix(a, "/") + "/" + b
}
