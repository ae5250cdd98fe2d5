// SPDX-License-Identifier: Apache-2.0

// Package proc starts processes and knows them to their end: pipes or a terminal, output kept for whoever comes back,
// signals for the leader or the whole tree.
//
// # Ownership
//
// A [Table] starts every process of the program that it is in, from one locked thread, and reaps every child, also those
// that were handed to it because their parents ended (it makes the program a subreaper). Nothing else in the program may
// start or wait for processes: no os/exec.
//
// # The order of output
//
// Standard output and standard error are two pipes, and a pipe does not say when something was written into it. They are
// read in the order in which they came to be readable: a line to one and then a line to the other arrive like that. Of
// what was written to both by turns while nobody read, each pipe's part comes in one piece. Who needs more gives a command
// one stream (2>&1) or a terminal.
//
// # Whole trees
//
// What belongs to one command is found by three marks: a cgroup of its own where there is one; else a soft limit
// (RLIMIT_RTTIME, which says nothing to a process without real-time scheduling) whose value is the command's number, and
// which every descendant inherits through fork, exec, setsid and an emptied environment; and the chain of parents.
// A descendant that resets that limit on purpose and leaves its parents counts as nobody's: it outlives its command, not
// its sandbox.
//
// Ending a tree is exact with cgroup.kill. Without it, kill and look are repeated until nothing is found. Descendants
// that keep forking can outrun that (a scan may see none while one lives); when new ones keep appearing, everything in the
// sandbox is stopped at once, where there is a means for it (freezer, kill(-1) as the init of a PID namespace, kill(-1) in
// a signal scope), the command's processes are killed, and the rest goes on. [Table.KillMeans] says which it is.
package proc
