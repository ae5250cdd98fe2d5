// SPDX-License-Identifier: Apache-2.0

// Package plugin runs drivers for the core: it starts their processes when they are needed, shares one process among
// all sandboxes that may share it, restarts it when it dies, and hides that from whoever uses a sandbox.
//
// # The words
//
// A [Manager] knows all driver processes. A process is told from others by the driver's name, the digest of its
// file, its configuration and its environment. [Manager.Acquire] gives a [Handle] on one; the first handle starts the
// process, and some time after the last handle and the last sandbox are gone the process is ended.
//
// A [Sandbox] is a driver's sandbox that survives the driver's process. It implements every optional interface of
// package sdk/driver; what the driver does not offer answers errs.Unsupported.
//
// # When a driver process dies
//
// Its end is seen by waiting for it, never guessed from an error. Then it is started again, at once the first time and
// later and later after that; a driver that dies six times in two minutes is given up (quarantined). Each live sandbox
// is resumed from its last state, and the calls that were under way go on:
//
//   - a command is attached to again by its id, from the output offset that its caller has seen: no byte is lost or
//     comes twice, and what was not kept is reported as a gap;
//   - idempotent calls are repeated once, the others fail with errs.DriverCrashed and MaybeApplied;
//   - a file that is being read goes on from its offset, if it is still the same file;
//   - watches are made again.
//
// Input cannot be replayed: nobody says how much of it the process has got. A command that read nothing, or whose
// input was small and is older than a second, goes on. A terminal goes on with a warning. Otherwise the command is
// ended and its caller gets errs.ExecTransport.
//
// In-process drivers (tests, embedding programs) go the same way; they die when they answer errs.DriverCrashed.
//
// Size: process and sandbox recover together; each needs the other's locks and lives.
package plugin
