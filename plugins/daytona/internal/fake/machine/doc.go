// SPDX-License-Identifier: Apache-2.0

// Package machine makes the insides of fake sandboxes: real processes with a file tree, process ids, a network and a
// terminal device of their own, in namespaces of this machine. The sandbox's daemon (package toolbox) is one of them.
//
// A program that makes machines calls [Enter] first thing in its main: it is also what runs inside.
package machine
