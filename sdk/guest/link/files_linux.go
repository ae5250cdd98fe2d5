// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxTaken bounds the files that came and whose frame did not.
	maxTaken = 16
	// maxAtOnce is how many files one receiving call takes. The other end sends one; what is more is closed.
	maxAtOnce = 4
)

// taker reads a unix socket and keeps the files that come along, in their order. It is for the one goroutine that reads.
type taker struct {
	conn *net.UnixConn
	oob  []byte
	// queue has nil for a file that the kernel could not give, so that the next frame does not get another's.
	queue []*os.File
}

// newTaker is nil when the stream is no unix socket.
func newTaker(rw io.ReadWriteCloser) *taker {
	conn, ok := rw.(*net.UnixConn)
	if !ok {
		return nil
	}
	return &taker{conn: conn, oob: make([]byte, unix.CmsgSpace(maxAtOnce*4))}
}

func (t *taker) Read(p []byte) (int, error) {
	n, m, flags, _, err := t.conn.ReadMsgUnix(p, t.oob)
	if m > 0 || flags&unix.MSG_CTRUNC != 0 {
		if e := t.keep(t.oob[:m], flags&unix.MSG_CTRUNC != 0); err == nil {
			err = e
		}
	}
	return n, err
}

func (t *taker) keep(oob []byte, truncated bool) error {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return errProtocol
	}
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	for i, fd := range fds {
		if i > 0 {
			_ = unix.Close(fd) // nobody asked for it
			continue
		}
		t.queue = append(t.queue, os.NewFile(uintptr(fd), "file of the guest"))
	}
	if len(fds) == 0 && truncated {
		t.queue = append(t.queue, nil)
	}
	if len(fds) > 1 || len(t.queue) > maxTaken {
		return errProtocol
	}
	return nil
}

// take gives the file that came with the frame at hand; nil when there is none.
func (t *taker) take() *os.File {
	if t == nil || len(t.queue) == 0 {
		return nil
	}
	f := t.queue[0]
	t.queue = t.queue[1:]
	return f
}

// close closes the files whose frames did not come.
func (t *taker) close() {
	if t == nil {
		return
	}
	for _, f := range t.queue {
		discard(f)
	}
	t.queue = nil
}

// passFile writes b with a file beside it.
func passFile(rw io.ReadWriteCloser, b []byte, file *os.File) error {
	conn, ok := rw.(*net.UnixConn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	// The descriptor cannot become another file's while Control runs.
	if e := raw.Control(func(fd uintptr) { _, _, err = conn.WriteMsgUnix(b, unix.UnixRights(int(fd)), nil) }); e != nil {
		return e
	}
	return err
}
