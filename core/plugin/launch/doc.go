// SPDX-License-Identifier: Apache-2.0

// Package launch starts driver processes and watches over them.
//
// go-plugin makes the handshake, but the process is ours (its RunnerFunc): the binary is opened once, hashed by its
// descriptor and executed from that descriptor; standard input is the lifeline, a pipe whose end tells the driver that
// the core is gone; the process has its own group, an environment that was chosen variable by variable, no core dumps,
// and a directory of its own. Whatever it writes is logged and its last lines are kept for the report of a crash.
//
// A child of a driver that must outlive it (the guest) leaves the driver's process group: the group is ended with the
// driver.
package launch
