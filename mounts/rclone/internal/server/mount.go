// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rclone/rclone/cmd/mountlib"
	"github.com/rclone/rclone/fs"
	"github.com/rclone/rclone/fs/rc"
	"github.com/rclone/rclone/vfs"
	"github.com/rclone/rclone/vfs/vfscommon"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/mounts/rclone/internal/remote"
	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/storage/v1"
)

// The cache when nothing else is said, and how long the kernel believes what it knows of a file.
const (
	cacheBytes  = 2 << 30
	minFree     = 1 << 30
	writeBack   = time.Second
	dirTime     = 30 * time.Second
	attrTime    = time.Second
	chunk       = 128 << 20
	helloTime   = 10 * time.Second
	drainLook   = 20 * time.Millisecond
	drainTime   = time.Minute
	defaultFile = 0o644
	defaultDir  = 0o755
)

// mount is one storage and the file systems that show it.
type mount struct {
	server   *Server
	req      *pb.PrepareRequest
	remote   *remote.Remote
	since    time.Time
	listener *net.UnixListener

	mu      sync.Mutex
	vfs     *vfs.VFS // guarded by mu; nil = nobody came yet
	serving uint32   // guarded by mu
}

// listen waits for drivers until the process ends.
func (m *mount) listen() error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: m.req.GetSocket()})
	if err != nil {
		return errs.Wrap(errs.MountFailed, "wait for the driver", err)
	}
	if err := os.Chmod(m.req.GetSocket(), 0o600); err != nil {
		return errors.Join(errs.Wrap(errs.MountFailed, "wait for the driver", err), l.Close())
	}
	m.listener = l
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return // closed
			}
			go m.take(c)
		}
	}()
	return nil
}

// take serves the descriptor of one driver.
func (m *mount) take(c *net.UnixConn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(helloTime)) // a socket has deadlines
	h, f, err := attach.Receive(c)
	if err != nil {
		m.server.Log.Warn("a driver's descriptor", "mount", m.req.GetId(), "error", err)
		return
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3) // the server closes its own
	_ = f.Close()                                             // likewise
	if err == nil {
		err = m.serve(h, fd)
	}
	if err := attach.Answer(c, err); err != nil {
		m.server.Log.Warn("answer a driver", "mount", m.req.GetId(), "error", err)
	}
}

// serve answers the kernel on a descriptor until its file system is gone.
func (m *mount) serve(h attach.Hello, fd int) error {
	if h.ID != m.req.GetId() {
		unix.Close(fd)
		return fmt.Errorf("this is mount %s", m.req.GetId())
	}
	v := m.view(h)
	opt := mountlib.Opt
	opt.AllowOther, opt.AllowNonEmpty, opt.DeviceName = true, true, "berth:"+h.ID
	opt.AttrTimeout = fs.Duration(attrTime)
	_, mountFS := mountlib.ResolveMountMethod("mount2")
	ended, _, _, err := mountFS(v, "/dev/fd/"+strconv.Itoa(fd), &opt)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.serving++
	m.mu.Unlock()
	go func() {
		<-ended
		m.mu.Lock()
		m.serving--
		m.mu.Unlock()
	}()
	return nil
}

// view gives the file system, made for the first driver that comes: its sandbox's user owns the files.
func (m *mount) view(h attach.Hello) *vfs.VFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.vfs != nil {
		return m.vfs
	}
	c, o := m.req.GetCache(), vfscommon.Opt
	o.ReadOnly = m.req.GetReadOnly()
	o.UID, o.GID, o.Umask = uint32(h.UID), uint32(h.GID), 0
	o.FilePerms, o.DirPerms = vfscommon.FileMode(orElse(m.req.GetFileMode(), defaultFile)), vfscommon.FileMode(orElse(m.req.GetDirMode(), defaultDir))
	switch c.GetMode() {
	case "off":
		o.CacheMode = vfscommon.CacheModeOff
	case "writes":
		o.CacheMode = vfscommon.CacheModeWrites
	case "full":
		o.CacheMode = vfscommon.CacheModeFull
	default:
		o.CacheMode = vfscommon.CacheModeWrites
		if o.ReadOnly {
			o.CacheMode = vfscommon.CacheModeFull
		}
	}
	o.CacheMaxSize, o.CacheMinFreeSpace = fs.SizeSuffix(orElse(c.GetMaxBytes(), cacheBytes)), minFree
	o.WriteBack = fs.Duration(time.Duration(orElse(c.GetWriteBackMs(), writeBack.Milliseconds())) * time.Millisecond)
	o.DirCacheTime = fs.Duration(time.Duration(orElse(c.GetDirTtlMs(), dirTime.Milliseconds())) * time.Millisecond)
	// One stream: several, in rclone 1.76, wait for ever for one that could not be opened.
	o.ChunkStreams, o.ChunkSize = 0, chunk
	o.HandleCaching = 0 // a file that is closed is to be stored
	m.vfs = vfs.New(m.remote.Ctx, m.remote.Fs, &o)
	return m.vfs
}

func orElse[T uint32 | uint64 | int64](v, usual T) T {
	if v == 0 {
		return usual
	}
	return v
}

// call asks rclone about this mount.
func (m *mount) call(ctx context.Context, name string, in rc.Params) (rc.Params, error) {
	c := rc.Calls.Get(name)
	if c == nil {
		return nil, fmt.Errorf("rclone has no call %s", name)
	}
	in["fs"] = fs.ConfigString(m.remote.Fs)
	return c.Fn(ctx, in)
}

// queued is a write that has not reached the storage.
type queued struct {
	Name  string  `json:"name"`
	ID    uint64  `json:"id"`
	Tries int     `json:"tries"`
	Delay float64 `json:"delay"`
	Now   bool    `json:"uploading"`
}

func (m *mount) queue(ctx context.Context) ([]queued, error) {
	out, err := m.call(ctx, "vfs/queue", rc.Params{})
	if err != nil {
		return nil, err
	}
	var all struct {
		Queue []queued `json:"queue"`
	}
	err = rc.Reshape(&all, out)
	return all.Queue, err
}

// drain sends what waits, until all has reached the storage; nil = all has. A file that fails is tried again for as long
// as there is time.
func (m *mount) drain(ctx context.Context, limit time.Duration) *pb.Unstored {
	m.mu.Lock()
	v := m.vfs
	m.mu.Unlock()
	if v == nil || v.Opt.ReadOnly || v.Opt.CacheMode < vfscommon.CacheModeMinimal {
		return nil
	}
	if limit <= 0 {
		limit = drainTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	hurried := map[uint64]int{}
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for quiet := 0; ; {
		all, err := m.queue(ctx)
		if err != nil {
			return &pb.Unstored{Id: m.req.GetId(), Reason: m.remote.Scrub(err.Error())}
		}
		if len(all) == 0 {
			// A file that was closed just now is on its way here from the kernel.
			if quiet++; quiet > 2 {
				return nil
			}
		} else {
			quiet = 0
		}
		for _, q := range all {
			if n, ok := hurried[q.ID]; !q.Now && (!ok || n < q.Tries) {
				hurried[q.ID] = q.Tries
				if q.Tries == 0 { // one that failed waits a little, as rclone has it
					_, _ = m.call(ctx, "vfs/queue-set-expiry", rc.Params{"id": int64(q.ID), "expiry": -1.0, "relative": false}) // it is sent in time anyway
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			u := &pb.Unstored{Id: m.req.GetId(), Reason: context.Cause(ctx).Error()}
			for _, q := range all {
				u.Paths = append(u.Paths, q.Name)
			}
			if last := m.server.Last(); last != "" {
				u.Reason += ": " + m.remote.Scrub(last)
			}
			return u
		}
	}
}

func (m *mount) status() *pb.MountStatus {
	m.mu.Lock()
	v, serving := m.vfs, m.serving
	m.mu.Unlock()
	st := &pb.MountStatus{Id: m.req.GetId(), Serving: serving}
	if v == nil {
		return st
	}
	var disk struct {
		InProgress int    `json:"uploadsInProgress"`
		Queued     int    `json:"uploadsQueued"`
		Errored    int    `json:"erroredFiles"`
		Bytes      uint64 `json:"bytesUsed"`
		Full       bool   `json:"outOfSpace"`
	}
	if d, ok := v.Stats()["diskCache"].(rc.Params); ok && rc.Reshape(&disk, d) == nil {
		st.Waiting, st.Failed = uint32(disk.InProgress+disk.Queued), uint32(disk.Errored)
		st.CachedBytes, st.OutOfSpace = disk.Bytes, disk.Full
	}
	return st
}
