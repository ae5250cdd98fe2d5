// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"os"
	"syscall"
)

func identify(f *os.File) (identity, error) {
	info, err := f.Stat()
	if err != nil {
		return identity{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{size: info.Size(), mtime: info.ModTime().UnixNano()}, nil
	}
	//nolint:unconvert // the width of the fields depends on the platform
	return identity{uint64(st.Dev), uint64(st.Ino), info.Size(), st.Mtim.Nano(), st.Ctim.Nano()}, nil
}
