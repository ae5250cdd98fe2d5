// SPDX-License-Identifier: Apache-2.0

// Command berth-guest is berth's program inside a sandbox. See package guest.
//
//	berth-guest -config FD        read a guest.Config from an inherited descriptor, confine, serve
//	berth-guest -config 0         the same from a line of standard input, see guest.Line
//	berth-guest -connect PATH     carry standard input and output to and from the guest that serves a socket
//	berth-guest -signal SIG PID   signal everything in the caller's signal scope, unless PID, the guest, is in it
//	berth-guest -version
//
// It is silent on success; what goes wrong before a host is attached is one line on standard error.
package main
