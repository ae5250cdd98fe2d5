// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tree

import "golang.org/x/sys/unix"

const openDirFlags = unix.O_RDONLY | unix.O_DIRECTORY
