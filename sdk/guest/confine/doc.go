// SPDX-License-Identifier: Apache-2.0

// Package confine puts the guest where the kernel keeps it.
//
// # Stages
//
// The driver starts the guest program as stage 0, with the strongest namespaces that the machine was seen to allow
// ([Start]). Stage 0 ([Enter]) confines itself on one locked thread, in an order that matters, and executes the program
// again: every thread of stage 1 is then confined in the same way, which threads that already run could not be. Stage 1
// ([Enter] again) tries what must fail, says so to the driver, and serves.
//
// # Order of stage 0
//
//	descriptors    all but the agreed ones will not survive
//	private root   slave propagation; sources first; tmpfs root; read-only system; own /etc, /dev, /proc; pivot_root
//	loopback       in an own network namespace
//	host name
//	limits
//	capabilities   bounding and ambient sets, user and groups, permitted set
//	no_new_privs
//	Landlock       the exact version that the kernel has, never "best effort"
//	seccomp        assembled in package seccomp
//	execve
//
// # Levels
//
// Level 3 is namespaces, Landlock and seccomp; level 2 is namespaces without Landlock; level 1 is Landlock and seccomp
// without namespaces; level 0 is nothing. [Probe] finds what a machine allows by doing all of it in a child that is
// thrown away, and never by reading a setting. What is enforced is said as [driver.Isolation] statements.
//
// # Users
//
// A driver that runs as root never maps user 0 of the host: it maps a range that belongs to nobody, or, where there is
// no user namespace, becomes a user of that range. An ordinary user maps itself to user 1000 inside; with newuidmap and
// a subordinate range, other users exist too.
package confine
