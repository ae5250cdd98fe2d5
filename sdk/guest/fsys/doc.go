// SPDX-License-Identifier: Apache-2.0

// Package fsys does file operations below opened directories: a workspace and granted paths. [FS] implements
// driver.FileSystem and driver.TreeIO in process.
//
// # Paths
//
// A path is relative to the workspace, or absolute as the sandbox sees it; its bytes mean nothing but "/" and "..".
// It is resolved by descriptors and never by comparing strings, as package beneath says: an absolute link whose target
// is visible below a root is followed, anything that leads elsewhere is errs.PathEscapes. When roots are nested the
// innermost one decides whether writing is allowed.
//
// # Files
//
// Only regular files are read and written; a FIFO, socket or device is errs.NotRegular, at once. Remove and Move act on
// a link itself, everything else on what it points to. A write makes a new file beside the old one and renames it, so
// that a reader sees the old or the new content and a failure changes nothing; mode and owner stay those of the old
// file. Where that cannot be kept (the file belongs to somebody else, its directory is closed to the user, or a single
// file was granted) the file is written in place. There is no fsync: a sandbox does not survive its host's crash, and
// snapshots, which must, have their own store. A call's context is looked at between the pieces of a stream; the
// caller's reader or writer has to end when it does.
//
// # Users
//
// An operation may be done with the rights of another user of the sandbox; see [Options.AsUser].
package fsys
