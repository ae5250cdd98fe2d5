// SPDX-License-Identifier: Apache-2.0

// Package run is the run engine: a pure state machine.
//
//	next, effects, err := run.Step(state, event)
//
// A [State] is a run as a value. An [Event] is something that happened: the run was started, the model answered, a
// tool ended, somebody decided, the process was asked to stop. An [Effect] is work for the caller, the executor. Step
// does no I/O, reads no clock, makes no random number and starts no goroutine; ids and times arrive in events. The same
// state and event always give the same result, and Step never changes its arguments.
//
// # Order
//
// The effects of one step are performed in their order. The first is [Persist] whenever the state changed: event and
// new transcript items MUST be in the log before any other effect of the step starts. So a call that may have an
// effect on the world is always in the log before it happens, and a crash at any point loses no more than the results
// that were not recorded yet.
//
// # Ids
//
// An effect that has a result carries an id, and the event with the result names it. A result for an id that is
// unknown, or finished, changes nothing and is reported by an [Emit]. Ids survive a crash: [Resume] issues every
// unfinished effect again under the id that it had, so that the id (or a tool call's own id) is an idempotency key.
//
// # Size
//
// States, events and effects hold references ([Ref]) to transcript items, never the items. The transcript is the
// concatenation of all Persist.Items; the state knows only its length. A state is a few hundred bytes plus what is
// pending, however long the run was. What would need the whole history (was this call id seen before?) is looked up by
// the executor and arrives in the event.
//
// # Stopping and going on
//
// Every end but [Completed] can be resumed: cancelled, failed, over a limit, paused for an approval. A clean stop lets
// the running tools end and records their results, so that nothing runs twice.
//
// Size: one state machine with the values that it reads and gives; no part of it stands alone.
package run
