// SPDX-License-Identifier: Apache-2.0

// Package cgroup puts the processes of one sandbox into groups of the host, so that they are limited, counted and ended
// together.
//
// Both versions are used, each controller where it is: v1 hierarchies, the unified one, or a mixture. With v1 the guest
// and its commands are in sibling groups, so that what a limit hits is a command: the guest's thread that starts
// commands moves itself over, which v1 allows for a thread. The unified hierarchy does not, for memory: there guest and
// commands share a group.
package cgroup
