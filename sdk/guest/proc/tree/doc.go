// SPDX-License-Identifier: Apache-2.0

// Package tree finds what belongs to a command: by mark, by parent, by cgroup. See package proc.
package tree
