// SPDX-License-Identifier: Apache-2.0

// Package session remembers sandboxes: each has a record in the store, from before it is made until it is known to be
// gone. It says which sandbox is meant (a fresh one, the one of a run, of a state file, of a key, or one by its id), lets
// one process at a time drive it, and puts down what became of it. Making, finding and ending sandboxes is the work of
// core/sandbox; this package only tells it which, and never invents one where one was asked for.
//
// # Where a session comes from
//
// In this order: the session of the run that is resumed, the state file, the key, a fresh one; see [Wish]. Whoever opens a
// session by its id with [Manager.Use] does not own it: it is put back as it was found.
//
// # What is trusted
//
// What is needed to find a sandbox again is sealed, see core/state/seal: an edited state is refused. It holds no secret
// and no path of the host. Secrets, grants and everything else that a driver is given come from today's configuration;
// what differs from what the sandbox was made with is reported, see [sandbox.Drift].
//
// # When a sandbox is gone
//
// A sandbox that its driver does not know any more is lost, and its record stays, with its key, until somebody removes it
// or the configuration says in on_gone what takes its place: nothing is started afresh in silence.
package session
