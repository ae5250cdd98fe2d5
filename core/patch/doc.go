// SPDX-License-Identifier: Apache-2.0

// Package patch applies patches that language models write.
//
// The format is the one models are trained on: sections that add, delete or update files between "*** Begin Patch" and
// "*** End Patch"; an update holds hunks that name their place by context and not by line number. [Parse] reads it,
// [Update] changes one file in memory, [Apply] changes a tree.
//
// # What it promises
//
//   - All or nothing: every file is read and patched in memory first; when a write fails the earlier ones are undone.
//   - Bytes that the patch does not change stay: line endings (line by line), byte order mark, final newline or the
//     lack of one, mode. Files need not be UTF-8.
//   - No silent guess: context that fits several places is an error that lists them; context that fits only when
//     white space is ignored is applied when exactly one place fits, re-indented, and said in a [Note].
//   - A failure tells a model what to mend: which hunk, the nearest place, and how it differs.
package patch
