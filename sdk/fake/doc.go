// SPDX-License-Identifier: Apache-2.0

// Package fake is a complete driver without a backend: files and processes live in memory, commands are a few
// built-ins, and every fault that a caller must survive can be asked for. It implements every optional interface.
//
// # Commands
//
// Argv[0] is a built-in (with or without a directory in front): true, false, echo, printf, cat, tee, sleep, exit, pwd,
// env, count, both, signal, kill, id, ln, stty, listen, rm, mkdir, test, or sh -c with these, quotes, variables, ;, &&, ||, |, and
// redirections. Anything else is errs.ExecNotFound.
//
//	count N [SIZE [INTERVAL]]   N lines of SIZE bytes, one every INTERVAL, each with its number
//	both N [SIZE [INTERVAL]]    the same, odd lines to standard error
//	signal NAME                 ends itself by a signal
//	listen PORT                 serves an echo on a port until it is ended
//
// # A driver that dies
//
// With [Options.Dir] a sandbox is recorded on disk, and a driver in another process resumes it with its files and its
// processes: commands are deterministic in their output and in its times, so that the new process continues where the
// old one was, to the byte. What a process was given on its standard input is not recorded.
//
// Size: one type with every optional interface and a small shell; the parts mean nothing alone.
package fake
