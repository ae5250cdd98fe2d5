// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/berth-dev/berth/sdk/guest/link"
)

// callTime is how long a guest may take to call. Where none ever did, none is asked again.
const callTime = 5 * time.Second

// Calls has guests on this machine call the driver over a unix socket, which spares every byte the way through the engine
// and lets large files go beside it. The socket is in the directory that the container sees read-only, for the moment of
// the call; whoever is not the container's first process is turned away. Anything in the way of it leaves the engine's
// streams, which always work.
type Calls struct{ worked, failed atomic.Bool }

// Knock asks the guest of a running container, over std, to call. nil = it is spoken with over std.
func (k *Calls) Knock(ctx context.Context, c *container.InspectResponse, std net.Conn) net.Conn {
	dir := ""
	for _, m := range c.Mounts {
		if m.Destination == Dir && m.Type == mount.TypeBind {
			dir = m.Source
		}
	}
	if dir == "" || c.State == nil || c.State.Pid == 0 || k.failed.Load() && !k.worked.Load() {
		return nil
	}
	l, err := listen(dir)
	if err != nil {
		k.failed.Store(true)
		return nil
	}
	defer l.Close()
	if _, err := std.Write(link.Knock(filepath.Base(l.path))); err != nil {
		return nil // std is of no use any more, which its next use tells
	}
	// It says nothing before it is spoken with: what ends the wait is the end of the container.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = std.Read(make([]byte, 1)) // only that it returns counts
		_ = l.Close()                    // ends the wait
	}()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // likewise
	defer stop()
	_ = l.SetDeadline(time.Now().Add(callTime)) // a socket that listens has deadlines
	for {
		conn, err := l.AcceptUnix()
		if err == nil && callerOf(conn) != c.State.Pid {
			_ = conn.Close() // somebody else in there
			continue
		}
		_ = std.SetReadDeadline(time.Unix(1, 0)) // ends the read
		<-ended
		_ = std.SetReadDeadline(time.Time{}) // it may be read again
		if err != nil {
			k.failed.Store(true)
			return nil
		}
		k.worked.Store(true)
		return conn
	}
}

// socket is a listener with a place in a directory that has a longer name than sockets may have.
type socket struct {
	*net.UnixListener
	path string
}

func listen(dir string) (*socket, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close() // only read
	name := "call-" + rand.Text()[:12]
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: filepath.Join(short(d), name)})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it knows another name
	s := &socket{l, filepath.Join(dir, name)}
	// Whoever the container's user is.
	if err := os.Chmod(s.path, 0o666); err != nil {
		_ = s.Close() // the first error is the one to tell
		return nil, err
	}
	return s, nil
}

// Close ends it, once or more.
func (s *socket) Close() error {
	_ = os.Remove(s.path) // it may be removed already
	return s.UnixListener.Close()
}
