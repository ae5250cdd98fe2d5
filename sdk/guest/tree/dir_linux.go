// SPDX-License-Identifier: Apache-2.0

package tree

import "golang.org/x/sys/unix"

// openDirFlags open a directory for descriptor-relative calls; no right to read it is needed.
const openDirFlags = unix.O_PATH | unix.O_DIRECTORY
