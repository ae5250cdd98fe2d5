// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// maxRead is the largest read that the kernel asks a server for.
const maxRead = 1 << 20

// Attach mounts a file system at a target and has the server at socket serve it. One of the same id that is there
// already, dead or alive, makes room. A directory that is missing is made.
func Attach(ctx context.Context, t *Target, socket string) error {
	if os.Geteuid() != 0 {
		return errs.New(errs.Unsupported, "mount %s: only root may mount into a sandbox", t.ID).With("feature", "mount."+Strategy).
			WithHint("run berth as root, or use a local_dir")
	}
	ns, err := open(t)
	if err != nil {
		return err
	}
	defer ns.Close()
	// The server reads it with plain system calls, so it must not be one that Go polls.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return (&errs.Error{Code: errs.MountToolMissing, Op: "mount " + t.ID, Err: &os.PathError{Op: "open", Path: "/dev/fuse", Err: err}}).
			WithHint("load the kernel's module: modprobe fuse")
	}
	dev := os.NewFile(uintptr(fd), "/dev/fuse")
	defer dev.Close() // the server has its own
	tree, err := t.make(dev)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := t.clear(ctx, ns); err != nil {
		return err
	}
	err = ns.do(ctx, func() error {
		at, err := directory(t.Path)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	})
	if err != nil {
		return errs.Wrap(errs.MountFailed, "mount "+t.ID+" at "+t.Path, err)
	}
	if err := hand(ctx, socket, Hello{ID: t.ID, UID: t.UID, GID: t.GID}, dev); err != nil {
		// What nobody serves is no file system; the directory below must not be taken for one either, so it stays, dead.
		return err
	}
	return nil
}

// directory opens a directory of the sandbox, and makes what is missing of it. A link on the way is refused: it may lead to
// where nobody expects storage.
func directory(path string) (int, error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err != nil {
			break
		}
		const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		next, nerr := unix.Openat(at, name, flags, 0)
		if errors.Is(nerr, unix.ENOENT) {
			if nerr = unix.Mkdirat(at, name, 0o755); nerr == nil || errors.Is(nerr, unix.EEXIST) {
				next, nerr = unix.Openat(at, name, flags, 0)
			}
		}
		unix.Close(at)
		at, err = next, nerr
	}
	if err != nil {
		return -1, &os.PathError{Op: "open directory", Path: path, Err: err}
	}
	return at, nil
}

// make makes the mount, attached nowhere.
func (t *Target) make(dev *os.File) (int, error) {
	fs, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, errs.Wrap(errs.Unsupported, "mount "+t.ID+": this kernel cannot", err)
	}
	defer unix.Close(fs)
	attrs := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	var all []error
	for _, o := range [][2]string{
		{"source", t.name()},
		{"subtype", "berth"},
		{"fd", strconv.Itoa(int(dev.Fd()))},
		{"rootmode", "40000"},
		{"user_id", "0"},
		{"group_id", "0"},
		{"max_read", strconv.Itoa(maxRead)},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			all = append(all, fmt.Errorf("%s: %w", o[0], err))
		}
	}
	all = append(all, unix.FsconfigSetFlag(fs, "allow_other"))
	if t.ReadOnly {
		attrs |= unix.MOUNT_ATTR_RDONLY
		all = append(all, unix.FsconfigSetFlag(fs, "ro"))
	}
	all = append(all, unix.FsconfigCreate(fs))
	if err := errors.Join(all...); err != nil {
		return -1, errs.Wrap(errs.MountFailed, "make the file system of mount "+t.ID, err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	return tree, errs.Wrap(errs.MountFailed, "make the file system of mount "+t.ID, err)
}

// Detach takes a mount away; one that is not there is no error. Whoever has files of it open keeps them for as long as it
// is served.
func Detach(ctx context.Context, t *Target) error {
	ns, err := open(t)
	if err != nil {
		return err
	}
	defer ns.Close()
	return t.clear(ctx, ns)
}

func (t *Target) clear(ctx context.Context, ns *space) error {
	n, err := t.count()
	if err != nil || n == 0 {
		return err
	}
	err = ns.do(ctx, func() error {
		for range n {
			if err := unix.Unmount(t.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return err
			}
		}
		return nil
	})
	return errs.Wrap(errs.MountFailed, "detach mount "+t.ID, err)
}

// count is how many mounts of this one are at its path. They lie on top of each other.
func (t *Target) count() (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", t.PID))
	if err != nil {
		return 0, errs.Wrap(errs.SandboxUnknown, "look at the mounts of the sandbox", err)
	}
	return mounted(string(b), t.Path, t.name()), nil
}

// Probe fails when a mount is not there, or when what serves it does not answer before ctx ends. A thread then waits
// until that process ends.
func Probe(ctx context.Context, t *Target) error {
	n, err := t.count()
	if err != nil {
		return err
	}
	if n == 0 {
		return errs.New(errs.MountFailed, "mount %s is not there", t.ID)
	}
	ns, err := open(t)
	if err != nil {
		return err
	}
	defer ns.Close()
	err = ns.do(ctx, func() error {
		var st unix.Statfs_t
		return unix.Statfs(t.Path, &st)
	})
	if errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) {
		return errs.New(errs.MountFailed, "the process that serves mount %s has ended", t.ID)
	}
	return errs.Wrap(errs.MountFailed, "mount "+t.ID+" does not answer", err)
}

// space is a mount namespace that is held open.
type space struct {
	ns *os.File
}

func open(t *Target) (*space, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", t.PID))
	if err != nil {
		return nil, errs.Wrap(errs.SandboxUnknown, "find the mounts of the sandbox", err)
	}
	s := &space{ns: ns}
	var own, its unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/mnt", &own), unix.Fstat(int(ns.Fd()), &its)); err != nil {
		s.Close()
		return nil, errs.Wrap(errs.SandboxUnknown, "find the mounts of the sandbox", err)
	}
	if own.Ino == its.Ino {
		s.Close()
		return nil, errs.New(errs.Unsupported, "mount %s: the sandbox has no mounts of its own", t.ID).With("feature", "mount."+Strategy).
			WithHint("storage is mounted into sandboxes that are isolated from this machine's files")
	}
	return s, nil
}

// Close lets it go.
func (s *space) Close() { _ = s.ns.Close() } // it was only read

// do calls f on a thread that is in the namespace, with the sandbox's root as its own; the thread ends with f.
func (s *space) do(ctx context.Context, f func() error) error {
	fd, err := unix.Dup(int(s.ns.Fd()))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		done <- onThread(func() error {
			defer unix.Close(fd)
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("leave the process's root: %w", err)
			}
			if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("enter the sandbox's mounts: %w", err)
			}
			return f()
		})
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// onThread calls f on a thread of its own, which nothing else ever runs on.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread is what others take for the process: it stays where it is, and being held gives f another one.
			err := onThread(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- f() // the thread is never let go, so it ends with this
	}()
	return <-done
}

// UserOf finds a user as a container's configuration names it, in the accounts that the root of a process has. The ids are
// those of this machine.
func UserOf(pid int, user string) (uid, gid int, err error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, errs.Wrap(errs.SandboxUnknown, "look for the users of the sandbox", err)
	}
	defer unix.Close(root)
	uid, gid, err = passwdIDs(user, accounts(root, "etc/passwd"), accounts(root, "etc/group"))
	if err != nil {
		return 0, 0, err
	}
	if uid, err = MapID(pid, "uid_map", uid); err != nil {
		return 0, 0, err
	}
	gid, err = MapID(pid, "gid_map", gid)
	return uid, gid, err
}

// maxAccounts bounds an account file.
const maxAccounts = 1 << 20

// accounts reads a file of the sandbox, which may be anything; empty = it cannot be read.
func accounts(root int, name string) string {
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxAccounts))
	if err != nil {
		return ""
	}
	return string(b)
}

func send(c *net.UnixConn, b []byte, f *os.File) error {
	_, _, err := c.WriteMsgUnix(b, unix.UnixRights(int(f.Fd())), nil)
	return err
}

func receive(c *net.UnixConn) ([]byte, *os.File, error) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, nil, err
	}
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range messages {
		fds, ferr := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, ferr)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "/dev/fuse"))
		}
	}
	if err == nil && (len(files) != 1 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0) {
		err = fmt.Errorf("%d descriptors came, not one", len(files))
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close() // the first error is the one to tell
		}
		return nil, nil, err
	}
	return b[:n], files[0], nil
}
