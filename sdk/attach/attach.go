// SPDX-License-Identifier: Apache-2.0

// Package attach puts a file system that another process of this machine serves into the mount namespace of a sandbox,
// which needs neither /dev/fuse nor any privilege for it and cannot undo it.
//
// The driver opens a FUSE descriptor, mounts it in there, and hands it to the process that serves it over that process's
// socket. Nothing of it is seen outside the sandbox's namespace: it ends with the sandbox, and a server that ends leaves
// an error where its files were, never an empty directory. The driver needs to be root, and never sees a credential.
package attach

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// Strategy is the mount strategy whose host path names the socket of a server.
const Strategy = "host_rclone"

// Target is where a file system goes.
type Target struct {
	PID      int    // a process in the sandbox's mount namespace, as this machine counts
	Path     string // absolute, inside
	ID       string // of the mount, within the sandbox
	ReadOnly bool
	UID, GID int // owner of the files, as this machine counts
}

// name is what the mount table shows: no bucket, no address.
func (t *Target) name() string { return "berth:" + t.ID }

// Hello is what the driver says to the server along with the descriptor.
type Hello struct {
	ID  string `json:"id"`
	UID int    `json:"uid"`
	GID int    `json:"gid"`
}

// answer is what the server says when it serves the descriptor, or does not.
type answer struct {
	Error string `json:"error,omitempty"`
}

// maxMessage bounds both.
const maxMessage = 4 << 10

// Receive takes a descriptor from a driver. The caller closes the file, and answers.
func Receive(c *net.UnixConn) (Hello, *os.File, error) {
	var h Hello
	b, f, err := receive(c)
	if err != nil {
		return h, nil, err
	}
	if err := json.Unmarshal(b, &h); err != nil {
		_ = f.Close() // the first error is the one to tell
		return h, nil, fmt.Errorf("read what the driver says: %w", err)
	}
	return h, f, nil
}

// Answer tells the driver whether its descriptor is served.
func Answer(c *net.UnixConn, err error) error {
	var a answer
	if err != nil {
		a.Error = err.Error()
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = c.Write(append(b, '\n'))
	return err
}

// hand gives a descriptor to the server at a socket and waits until it is served.
func hand(ctx context.Context, socket string, h Hello, f *os.File) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		e := errs.New(errs.MountFailed, "the process that serves mount %s is gone", h.ID)
		e.Err = err
		return e
	}
	defer conn.Close()
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return errs.New(errs.Internal, "%s is no socket", socket)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // ends the wait
	defer stop()
	if err := send(c, b, f); err != nil {
		return errs.Wrap(errs.MountFailed, "hand over the file system of mount "+h.ID, err)
	}
	line, err := bufio.NewReader(io.LimitReader(c, maxMessage)).ReadBytes('\n')
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return errs.Wrap(errs.MountFailed, "wait for the server of mount "+h.ID, err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return errs.Wrap(errs.MountFailed, "wait for the server of mount "+h.ID, err)
	}
	if a.Error != "" {
		return errs.New(errs.MountFailed, "mount %s: %s", h.ID, a.Error)
	}
	return nil
}

// MapID gives the id that an id inside a process's user namespace has here; table is uid_map or gid_map.
func MapID(pid int, table string, id int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, table))
	if err != nil {
		return 0, errs.Wrap(errs.MountFailed, "read the ids of the sandbox", err)
	}
	return mapID(string(b), id)
}

func mapID(table string, id int) (int, error) {
	for line := range strings.Lines(table) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err != nil {
			return 0, errs.Wrap(errs.MountFailed, "read the ids of the sandbox", err)
		}
		if id >= inside && id-inside < n {
			return outside + id - inside, nil
		}
	}
	return 0, errs.New(errs.MountFailed, "the sandbox has no user %d", id)
}

// passwdIDs finds a user as a container's configuration names it: name, number, or either with a group.
func passwdIDs(user, passwd, group string) (uid, gid int, err error) {
	name, grp, hasGroup := strings.Cut(user, ":")
	uid, err = strconv.Atoi(name)
	found := err == nil
	gid = 0
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 || (f[0] != name && f[2] != name) {
			continue
		}
		u, uerr := strconv.Atoi(f[2])
		g, gerr := strconv.Atoi(f[3])
		if uerr == nil && gerr == nil {
			uid, gid, found = u, g, true
			break
		}
	}
	if !found {
		return 0, 0, errs.New(errs.MountFailed, "the sandbox has no user %q", name)
	}
	if !hasGroup || grp == "" {
		return uid, gid, nil
	}
	if gid, err = strconv.Atoi(grp); err == nil {
		return uid, gid, nil
	}
	for line := range strings.Lines(group) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= 3 && f[0] == grp {
			if g, err := strconv.Atoi(f[2]); err == nil {
				return uid, g, nil
			}
		}
	}
	return 0, 0, errs.New(errs.MountFailed, "the sandbox has no group %q", grp)
}

// mounted says how often a mount of this name is at a path, in a table such as /proc/PID/mountinfo.
func mounted(table, path, name string) int {
	n := 0
	for line := range strings.Lines(table) {
		before, after, ok := strings.Cut(line, " - ")
		b, a := strings.Fields(before), strings.Fields(after)
		if ok && len(b) > 4 && len(a) > 1 && unescape(b[4]) == path && a[0] == fsType && unescape(a[1]) == name {
			n++
		}
	}
	return n
}

// fsType is how the kernel calls what is mounted here.
const fsType = "fuse.berth"

// unescape undoes what mount tables do to blanks and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
