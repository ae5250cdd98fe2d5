// SPDX-License-Identifier: Apache-2.0

// Package fake is a local stand-in for Modal: its control plane and its command router on one plaintext gRPC port, with
// real processes and real files behind every sandbox. Modal's own clients work against it; what they were seen to need,
// and what the vendor documents, is here, and nothing that is kinder.
//
// It refuses what Modal refuses: wrong tokens, names that are in use, sandboxes that have ended, execs that are unknown,
// standard input at an offset that was not reached. A sandbox ends with its entrypoint, its timeout or its idle timeout,
// and what it held is gone, but for snapshots.
//
// What Modal does about a program that does not exist, or when a sandbox ends under a call, is not documented; the fake
// starts such a program and lets it end with 127, and breaks such a call with Unavailable and answers NotFound to later
// ones.
//
// Size: two services over one state, under one lock.
//
// Faults are injected with [Server.Inject], and each call is kept with its metadata, see [Server.Calls].
package fake
