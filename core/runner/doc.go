// SPDX-License-Identifier: Apache-2.0

// Package runner performs the effects of the run engine (core/run) in this process: it calls the model, runs tools in
// parallel, opens the sandbox when it is needed, keeps the log and feeds the event stream.
//
// [Run] starts a run and [Resume] goes on with one, after a crash or an early end. Both return when the run has ended.
// There are two ways to end one early: closing Config.Stop ends it cleanly (running tools are cancelled and their
// results recorded, nothing runs twice after a resume), and cancelling the context ends it now (what was running is
// issued again by a resume).
//
// One goroutine owns the state, the transcript and the log; effects run in goroutines of their own and hand their
// results to it. Each step is in the log before its effects start. The transcript is a slice that only grows, of items
// that were encoded once; a request is a part of it.
//
// Size: one executor, whose state belongs to one goroutine; what needs none of that state is in packages of its own.
package runner
