// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"errors"
	"io"
	"sync"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/accounts"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// Options are for [Open]. The zero value is a workspace that is seen where it is.
type Options struct {
	// Visible is the absolute path at which the sandbox sees the root; empty = the root itself.
	Visible string
	Grants  []Grant
	// Passwd and Group are the sandbox's account files; empty = those in /etc.
	Passwd, Group string
	// AsUser does fn with the rights of a user of the sandbox. Nil = by the account files and the file system ids of
	// a thread, which needs Linux and a process that runs as root (of its user namespace).
	AsUser func(user string, fn func() error) error
	// Codecs compress archives, by the names that driver.ExportOptions has. Nil = none.
	Codecs map[string]Codec
	// HostReferences allows imports with host references: paths of this process's own machine.
	HostReferences bool
}

// Grant is a path outside the workspace, or a part of it with other rights.
type Grant struct {
	Path     string // as the sandbox sees it, absolute
	Dir      string // what is opened, a directory or a regular file; empty = Path
	ReadOnly bool
}

// Codec compresses streams. It keeps the library out of programs that need none.
type Codec interface {
	NewReader(r io.Reader) (io.ReadCloser, error)
	NewWriter(w io.Writer) (io.WriteCloser, error)
}

// FS is an opened workspace. Its methods may be called from several goroutines.
type FS struct {
	opts     Options
	set      *beneath.Set
	accounts *accounts.DB
	// commit makes "look at the version, then rename" one step for all writes of this FS.
	commit sync.Mutex
}

var (
	_ driver.FileSystem = (*FS)(nil)
	_ driver.TreeIO     = (*FS)(nil)
)

// Open opens the workspace root and the granted paths. Close the result.
func Open(root string, opts Options) (*FS, error) {
	specs := []beneath.RootSpec{{Dir: root, Visible: opts.Visible}}
	for _, g := range opts.Grants {
		dir := g.Dir
		if dir == "" {
			dir = g.Path
		}
		specs = append(specs, beneath.RootSpec{Dir: dir, Visible: g.Path, ReadOnly: g.ReadOnly})
	}
	set, err := beneath.Open(specs)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "open workspace", err)
	}
	return &FS{opts: opts, set: set, accounts: accounts.New(opts.Passwd, opts.Group)}, nil
}

// Close closes the roots. No other call may be under way.
func (f *FS) Close() error { return f.set.Close() }

// as does fn with a user's rights; an empty user is the process's own.
func (f *FS) as(user string, fn func() error) error {
	switch {
	case user == "":
		return fn()
	case f.opts.AsUser != nil:
		return f.opts.AsUser(user, fn)
	}
	u, err := f.accounts.User(user)
	if err != nil {
		return err
	}
	return asUser(u, fn)
}

// find resolves path to something that exists.
func (f *FS) find(path string, follow bool) (*beneath.Loc, error) {
	loc, err := f.set.Resolve(path, follow)
	if err != nil {
		return nil, err
	}
	if !loc.Exists {
		loc.Close()
		return nil, errNotFound
	}
	return loc, nil
}

// writable refuses what lies below a read-only grant.
func writable(loc *beneath.Loc) error {
	if loc.Root.ReadOnly() {
		return errs.New(errs.ReadOnly, "the path was granted for reading only").
			WithHint("write inside the workspace, or grant the path without read_only")
	}
	return nil
}

var errNotFound = errs.New(errs.FileNotFound, "no such file or directory")

// regular refuses everything but regular files.
func regular(st *beneath.Stat) error {
	switch {
	case st.IsRegular():
		return nil
	case st.IsDir():
		return errs.New(errs.IsDirectory, "is a directory")
	}
	return errs.New(errs.NotRegular, "is no regular file but a %s", kindName(st))
}

func kindName(st *beneath.Stat) string {
	switch st.Type() { //nolint:exhaustive // the others have no name of their own
	case driver.TypeSymlink:
		return "symbolic link"
	case driver.TypeFIFO:
		return "FIFO"
	case driver.TypeSocket:
		return "socket"
	case driver.TypeDevice:
		return "device"
	}
	return "file of unknown kind"
}

func sameVersion(st *beneath.Stat, want string) error {
	if want != "" && st.Version() != want {
		return errs.New(errs.VersionMismatch, "the file has changed since it was read").WithHint("read it again")
	}
	return nil
}

// is reports whether err carries one of the codes.
func is(err error, codes ...errs.Code) bool {
	got := errs.CodeOf(err)
	if got == errs.Internal {
		got = beneath.CodeOf(err)
	}
	for _, c := range codes {
		if c == got && err != nil {
			return true
		}
	}
	return false
}

var errRace = errors.New("the file kept changing into a link while it was opened")
