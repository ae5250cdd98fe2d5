// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"io/fs"
	"syscall"
)

func idOf(fi fs.FileInfo) FileID {
	id := FileID{Size: fi.Size(), MTimeNS: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id.Dev, id.Ino, id.CTimeNS = st.Dev, st.Ino, st.Ctim.Nano()
	}
	return id
}
