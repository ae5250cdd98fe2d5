// SPDX-License-Identifier: Apache-2.0

// Package fake is a stand-in for the vendor: its control API, its proxy and, in package toolbox, the daemon in each
// sandbox. Sandboxes are real processes with real files in namespaces of this machine (package machine).
//
// It is as strict as the vendor: it refuses what the vendor refuses, in the vendor's words, states take time, calls that
// meet a change of state fail, and a sandbox that nobody speaks with is stopped. Its clock can be moved, and it fails
// when told to.
//
// Size: the states of sandboxes, and everything that depends on them, are one machine under one lock.
package fake
