// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// socketName is the name of the guest's socket in the directory.
const socketName = "guest.sock"

// Listen makes the socket that drivers reach the guest by. It lies where the sandbox cannot see it.
func (x *Session) Listen() (*os.File, error) {
	dir, err := os.Open(x.Dir)
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "open the sandbox's directory", err)
	}
	defer dir.Close()
	if err := os.Remove(filepath.Join(x.Dir, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.Wrap(errs.StartFailed, "remove the old socket", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "make the guest's socket", err)
	}
	f := os.NewFile(uintptr(fd), socketName)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: socketPath(dir)})
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err != nil {
		_ = f.Close() // the first error is the one to tell
		return nil, errs.Wrap(errs.StartFailed, "make the guest's socket", err)
	}
	return f, nil
}

// socketPath names the socket by the opened directory: a path of its own may be longer than a socket's name.
func socketPath(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + socketName
}

// Dial connects to the guest. errs.SandboxGone when nobody listens.
func (x *Session) Dial(ctx context.Context) (io.ReadWriteCloser, error) {
	dir, err := os.Open(x.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.SandboxGone, "sandbox %s no longer exists", x.Record.ID)
	}
	if err != nil {
		return nil, errs.Wrap(errs.ExecTransport, "open the sandbox's directory", err)
	}
	defer dir.Close()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socketPath(dir))
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return nil, errs.New(errs.SandboxGone, "the guest of sandbox %s has ended", x.Record.ID)
	}
	if err != nil {
		return nil, errs.Wrap(errs.ExecTransport, "reach the guest", err)
	}
	return c, nil
}
