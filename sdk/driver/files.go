// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// FileType is the kind of a file.
type FileType uint8

// The kinds.
const (
	TypeUnknown FileType = iota
	TypeRegular
	TypeDirectory
	TypeSymlink
	TypeFIFO
	TypeSocket
	TypeDevice
)

// FileInfo describes a file. Path is bytes: it need not be UTF-8.
type FileInfo struct {
	Path     string // as it was asked for; in a listing, relative to the listed directory
	Type     FileType
	Size     uint64
	Mode     uint32 // 07777
	User     string // name, or number when it has none
	Group    string
	UID, GID uint32
	Nlink    uint32
	ModTime  time.Time
	Target   string // of a symbolic link
	Version  string // changes whenever the content may have changed
}

// StatOptions are for [FileSystem.Stat].
type StatOptions struct {
	Follow bool   // describe what a link points to
	User   string // act with this user's rights
}

// StatResult is one answer: Err, an *errs.Error, or Info.
type StatResult struct {
	Info FileInfo
	Err  error
}

// ListOptions are for [FileSystem.List].
type ListOptions struct {
	Recursive bool
	Limit     int      // 0 = none
	Exclude   []string // patterns in the manner of gitignore, relative to the listed directory
	User      string
}

// ReadOptions are for [FileSystem.Open].
type ReadOptions struct {
	Offset, Length uint64 // Length 0 = to the end
	IfVersion      string // fail with errs.VersionMismatch when the file is another by now
	User           string
}

// WriteOptions are for [FileSystem.Write]. The zero value replaces the file atomically.
type WriteOptions struct {
	Mode      uint32 // 0 = that of the file which exists, else 0644
	Exclusive bool   // fail with errs.FileExists
	Parents   bool   // make missing directories
	Append    bool
	InPlace   bool // write into the file and not by rename
	IfVersion string
	User      string
	ModTime   time.Time // zero = now
}

// WriteResult is the file as written. SHA256 is that of the bytes which the call wrote: for an append, of what was
// appended.
type WriteResult struct {
	Info   FileInfo
	SHA256 [32]byte
}

// MetaChange changes what is not nil.
type MetaChange struct {
	Mode      *uint32
	Owner     *string // a user; with :GROUP the group too, and with a colon alone the user's own
	Group     *string
	ModTime   time.Time // zero = leave
	Recursive bool
}

// ExportOptions are for [TreeIO.Export].
type ExportOptions struct {
	Path        string
	Exclude     []string
	Compression string // "" or "zstd"
}

// The bounds of an import when TreeLimits says nothing.
const (
	DefaultMaxInputBytes     = 1 << 30
	DefaultMaxExtractedBytes = 4 << 30
	DefaultMaxMembers        = 100_000
)

// TreeLimits bound an import; zero = the default above, math.MaxUint64 = none.
type TreeLimits struct{ MaxInputBytes, MaxExtractedBytes, MaxMembers uint64 }

// ImportOptions are for [TreeIO.Import].
type ImportOptions struct {
	Path    string // directory, made when missing
	Replace bool   // empty it first
	Limits  TreeLimits
	// Owner is whom everything belongs to, whatever the archive says, as in [MetaChange]; empty = the archive's, by name.
	Owner string
	Group string
	// Template is a key under which the result may serve other sandboxes, see [Workspace.Template].
	Template string
	// HostReferences allows members that name a host file (PAX record [PAXSource]) instead of carrying their content.
	// Only where the feature tree.host_refs is native, and only for archives that the core made itself.
	HostReferences bool
	Compression    string // "" or "zstd"
}

// PAX records of an archive with host references. The member is a regular file of size 0, so that its body is empty;
// its header gives mode, owner and times, and PAXSourceID the real size. No component of the path may be a link.
const (
	PAXSource = "BERTH.source" // absolute path on the driver's host
	// PAXSourceID is "dev:ino:size:mtime_ns" of the file that the core saw; another file is an error.
	PAXSourceID = "BERTH.source_id"
)

// PAXVersion is a record of an exported regular file: its [FileInfo] version when it was read. It is left out where a change
// that came right after could have left the version what it was.
const PAXVersion = "BERTH.version"

// PAX records of an exported archive, in a global header of their own for each file that was left out or could not be
// read as it was. Tar programs ignore them; an import does too.
const (
	PAXSkippedPath   = "BERTH.skipped_path"
	PAXSkippedReason = "BERTH.skipped_reason"
)

// ImportResult says what was done.
type ImportResult struct {
	Members, Bytes uint64
	Skipped        []Skipped
}

// Skipped is a member that was left out.
type Skipped struct{ Path, Reason string }

// FileEvent is a change that WatchFiles reports.
type FileEvent struct {
	Kind        FileEventKind
	Path        string
	ResumeToken string
}

// FileEventKind is the kind of a change.
type FileEventKind uint8

// The kinds of change. After an overflow the caller lists again.
const (
	FileCreated FileEventKind = iota + 1
	FileChanged
	FileRemoved
	FileOverflow
)
