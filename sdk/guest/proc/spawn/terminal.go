// SPDX-License-Identifier: Apache-2.0

//go:build linux

package spawn

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
)

// The size of a terminal when none is given.
const (
	defaultRows = 24
	defaultCols = 80
)

// OpenTerminal makes a pair; neither end is anybody's controlling terminal yet.
func OpenTerminal() (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("open a terminal (/dev/ptmx): %w", err)
	}
	slave, err = openSlave(master)
	if err != nil {
		unix.Close(master)
		return 0, 0, fmt.Errorf("open a terminal's other end: %w", err)
	}
	return master, slave, nil
}

func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return 0, err
	}
	// Without a path: right in every mount namespace.
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return int(fd), nil
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return 0, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(n), flags, 0)
}

// SetSize sets a terminal's size; zero = 24 × 80.
func SetSize(master *os.File, size driver.Size) error {
	ws := &unix.Winsize{Row: size.Rows, Col: size.Cols}
	if ws.Row == 0 {
		ws.Row = defaultRows
	}
	if ws.Col == 0 {
		ws.Col = defaultCols
	}
	return control(master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, ws) })
}

// EndOfFile is the character that ends the input of a terminal; 0 in raw mode, where there is none.
func EndOfFile(master *os.File) byte {
	var eof byte
	control(master, func(fd int) error { //nolint:errcheck // a terminal that is gone has none
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil && t.Lflag&unix.ICANON != 0 {
			eof = t.Cc[unix.VEOF]
		}
		return err
	})
	return eof
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
