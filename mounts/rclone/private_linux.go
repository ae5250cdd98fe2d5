// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

// keepPrivate keeps other processes of the user, and core dumps, from the memory of this one.
func keepPrivate() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
