// SPDX-License-Identifier: Apache-2.0

// Package manifest turns a manifest into the contents of a fresh workspace.
//
// [Resolve] finds out what the entries are at this moment: it evaluates contents, walks local directories and fetches
// git repositories, all on the host. The result, [Contents], is a list of plain members in path order, from which come
// the plan for a person ([Contents.Plan]), the key under which the workspace may be reused ([Contents.Digest]), the one
// tar stream that fills it ([Contents.Archive]) and the tree for the prompt ([Tree]).
//
// What a local source is may change between looking and copying: the file that is copied must be the one that was seen,
// by device, inode, size and time, or the entry fails. Links in a source are never followed.
package manifest
