// SPDX-License-Identifier: Apache-2.0

// Package runlog keeps a run on disk: an ordered, append-only log and the transcript items that it refers to. It is the
// single source for audit, the event stream, replay and resume.
//
// A run is a directory:
//
//	log.jsonl    one record a line: seq, time, type, stored, data, hash
//	items.jsonl  one transcript item a line, exactly as it goes to the model
//
// Both are plain JSON lines:
//
//	jq 'select(.type == "event").data' log.jsonl
//	jq -r 'select(.type == "message").content[].text' items.jsonl
//
// The hash of a record is the SHA-256 of the hash before it (32 zero bytes for the first) followed by the line up to
// the hash member. So a record cannot be changed, removed or put in without breaking all that follow it. An item is
// addressed by the SHA-256 of its line; the same item is stored once.
//
// # What a crash can do
//
// [Log.Append] writes the items first, then the records, each with one write. What was written survives the death of
// the process. Stable storage is asked for (fsync, items before log) when the caller says so, as the run engine does at
// the end and at a pause of a run, and otherwise once in [SyncEvery], so that a power failure costs at most the last
// second of work. [Open] cuts off a torn tail: bytes that are no whole record, with no whole record after
// them, or records whose items are not there. Nothing else is ever cut; damage before the tail is an error that names
// the line.
//
// One process at a time may have a log open (flock); anyone may read it, see [Read].
package runlog
