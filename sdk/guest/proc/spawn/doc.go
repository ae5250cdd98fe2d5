// SPDX-License-Identifier: Apache-2.0

// Package spawn is what starting a process takes: the thread that does it, whom it runs as, the program's file, a
// terminal.
package spawn
