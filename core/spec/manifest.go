// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"github.com/berth-dev/berth/core/value"
)

// DefaultRoot is the workspace root when a manifest says nothing.
const DefaultRoot = "/workspace"

// Manifest is what a fresh workspace holds.
type Manifest struct {
	Label       string
	Root        string  // absolute, clean POSIX path; never empty after load
	Entries     []Entry // in path order; no duplicates; parents of entries need not be listed
	Environment []EnvVar
	Users       []string
	Groups      []Group
	OwnByRunAs  bool
	Grants      []PathGrant
	// MountCommands are the commands that the prompt allows on remote mounts; nil = the default 18.
	MountCommands []string
	Pos           Pos

	mu   sync.Mutex
	kept any // guarded by mu; see Keep
}

// Keep gives what derive made of the manifest when it first succeeded: many sandboxes begin from one manifest, which
// never changes. All callers have to mean the same.
func (m *Manifest) Keep(derive func() (any, error)) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		v, err := derive()
		if err != nil {
			return nil, err
		}
		m.kept = v
	}
	return m.kept, nil
}

// Group is a group with its members.
type Group struct {
	Name  string
	Users []string
	Pos   Pos
}

// EnvVar is one variable of the sandbox's environment.
type EnvVar struct {
	Name        string
	Value       Text
	Secret      value.Secret // set = the value; Value is empty
	Ephemeral   bool         // never stored
	Description string
	Pos         Pos
}

// PathGrant makes a host path visible inside the sandbox.
type PathGrant struct {
	Path        string
	HostPath    string // empty = Path
	ReadOnly    bool
	Description string
	Pos         Pos
}

// EntryKind is the kind of a manifest entry, in the language's words.
type EntryKind string

// The kinds.
const (
	EntryFile      EntryKind = "file"
	EntryDir       EntryKind = "dir"
	EntryLocalFile EntryKind = "local_file"
	EntryLocalDir  EntryKind = "local_dir"
	EntryGitRepo   EntryKind = "git_repo"
	EntryMount     EntryKind = "mount"
)

// Entry is one thing that the workspace holds. Exactly one of the pointers fits Kind; a dir has none.
type Entry struct {
	Kind        EntryKind
	Path        string // relative, clean POSIX path
	Description string
	Ephemeral   bool // not in snapshots; made again at each resume
	Owner       string
	Group       string
	Mode        *uint32 // nil = 0755 for directories and executables, 0644 for files, or the source's
	Pos         Pos

	File      *FileEntry
	LocalFile *LocalFileEntry
	LocalDir  *LocalDirEntry
	GitRepo   *GitRepoEntry
	Mount     *MountEntry
}

// FileEntry is a file with its content.
type FileEntry struct {
	Content    []byte
	Expr       Expr // set = Content comes from it at run time
	Executable bool

	sum atomic.Pointer[[sha256.Size]byte]
}

// Sum is the SHA-256 of Content. It is made once: many sandboxes begin from one manifest.
func (f *FileEntry) Sum() [sha256.Size]byte {
	if s := f.sum.Load(); s != nil {
		return *s
	}
	s := sha256.Sum256(f.Content)
	f.sum.Store(&s)
	return s
}

// LocalFileEntry copies a host file.
type LocalFileEntry struct{ Source string } // absolute

// LocalDirEntry copies a host directory.
type LocalDirEntry struct {
	Source    string // absolute
	Include   []string
	Exclude   []string // in the manner of gitignore
	Gitignore bool     // honour .gitignore files
	Symlinks  string   // error, skip, preserve
	KeepModes bool
	MaxSize   uint64 // 0 = the archive limits
	MaxFiles  int
}

// GitRepoEntry is a checkout.
type GitRepoEntry struct {
	Host       string // github.com, or a whole URL base in tests
	Repo       string // owner/name, or a URL
	Ref        string
	Subpath    string
	Depth      int // 0 = whole history
	Submodules bool
	LFS        bool
	KeepGit    bool
	Username   value.Secret
	Token      value.Secret
}

// MountEntry is storage in the workspace.
type MountEntry struct {
	Kind        string // s3, gcs, r2, azure_blob, box, s3_files, host, plugin
	MountPath   string // empty = the entry's path
	ReadOnly    bool
	Fields      map[string]any
	Credentials map[string]value.Secret
	Strategy    string // in_container, docker_volume, native, host_rclone, auto
	Pattern     string // of in_container
	Options     map[string]any
	// Settings are on_failure, flush, and the blocks access, cache, limits and assume_role as maps.
	Settings map[string]any
}
