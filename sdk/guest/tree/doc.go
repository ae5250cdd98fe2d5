// SPDX-License-Identifier: Apache-2.0

// Package tree moves trees of files as tar streams: [Export] writes one, [Import] unpacks one below an opened
// directory. It works on directory descriptors only, so that neither a link in the tree, nor a name in the archive,
// nor a process that changes the tree meanwhile can make it read or write elsewhere.
//
// # Export
//
// The archive is PAX: modes, owners, times to the nanosecond, empty directories, symbolic links as they are (also
// absolute and dangling ones), hard links, sparse files (GNU format 1.0) and names of any bytes. Directories come in
// byte order, so that the same tree gives the same bytes. Sockets, FIFOs and devices cannot be saved; what lies under a
// mount point belongs to another tree; a file may be unreadable, or shrink while it is read. None of these ends the
// export. Each is told by a global PAX header with the records driver.PAXSkippedPath and driver.PAXSkippedReason,
// which tar programs ignore. Extended attributes are not saved.
//
// # Import
//
// An archive is taken as hostile. Names that are absolute or hold "..", a name given twice, a member below something
// that is no directory, and a stream that ends before its end marker are errs.ArchiveInvalid; too many bytes or
// members are errs.ArchiveLimit; both name the member. Devices, FIFOs and sockets are left out and reported. The
// set-user-id bit is dropped everywhere, the set-group-id bit on files.
// Directories are opened component by component and no link is followed, so a link is only data, whenever it comes.
// A file that exists is replaced by a rename and never written into; a directory that exists is kept.
//
// With Replace the archive is unpacked aside first, in the same directory, and only then takes the place of what was
// there. The directory itself stays: Landlock rules and working directories hold on to it. Mount points stay too.
//
// Size: export, import and the rules for hostile archives hold each other up; apart they would share every type.
package tree
