// SPDX-License-Identifier: Apache-2.0

// Package emul gives files and trees to a sandbox that can only run commands.
//
// Every call is one or two runs of the sandbox's sh with cat, tar, find, stat, mkdir, rm, mv, chmod and their like, of
// GNU or of busybox; which are there is found out once, and what is missing makes the calls that need it
// errs.Unsupported. Nothing is installed.
//
// A path is followed by changing into its directory first and by looking where that is: the check holds for what is
// done then, since the shell stays in the directory. Links in the last place are followed by hand, one by one. Names
// are passed as arguments and may hold anything but NUL.
//
// A file is written beside its place and moved there when all of it has arrived.
package emul
