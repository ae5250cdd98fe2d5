// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// placed is a mount that waits for the new root.
type placed struct {
	tree   int // a detached mount
	target string
	dir    bool
}

// link is a symbolic link of the new root.
type link struct{ name, target string }

// newRoot is the private root while it is being made. What is opened for it stays open until the program is executed
// again: to close a hundred descriptors one by one takes longer than to make the mounts.
type newRoot struct {
	fd    int      // of its top
	own   []placed // of the system, at places that only this program makes anything at
	links []link
	host  []placed // at places that the sandbox's owner names
}

// Build builds the root and makes it the only one. It belongs to the calling process's mount namespace, which must be one
// of its own.
func Build(s *Config) error {
	// Slave and not private: what the host mounts later below a workspace has to appear, and nothing may go back.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return step.At("make mounts slave", err)
	}
	r := &newRoot{}
	// Every source is cloned before anything is mounted, so that no mount can stand in front of one.
	if err := r.sources(s); err != nil {
		return err
	}
	top, err := makeFS("tmpfs", map[string]string{"mode": "0755", "size": "16m"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	r.fd = top
	// On top of the old root: no directory of the host is needed for it.
	if err := unix.MoveMount(top, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return step.At("mount the new root", err)
	}
	if err := r.populate(s); err != nil {
		return err
	}
	if err := unix.Fchdir(top); err != nil {
		return step.At("enter the new root", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return step.At("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return step.At("detach the old root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return step.At("enter the root", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return step.At("make the root read-only", err)
	}
	return nil
}

// sources clones what is to be seen of the host.
func (r *newRoot) sources(s *Config) error {
	const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for _, d := range systemDirs {
		target, err := os.Readlink(d)
		switch {
		case err == nil:
			r.links = append(r.links, link{d[1:], target})
		case errors.Is(err, unix.EINVAL): // it is no link
			if err := r.system(d, readOnly, true); err != nil {
				return err
			}
		}
	}
	etc, err := os.ReadDir("/etc")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return step.At("read /etc", err)
	}
	for _, e := range etc {
		if e.IsDir() && visibleInEtc(e.Name()) {
			if err := r.system("/etc/"+e.Name(), readOnly, true); err != nil {
				return err
			}
		}
	}
	for _, d := range devices {
		err := r.system("/dev/"+d, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false)
		if err != nil && (d != "tty" || !errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	if s.BindProc {
		if err := r.system("/proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, true); err != nil {
			return err
		}
	}
	for _, b := range s.Binds {
		if err := r.bind(b); err != nil {
			return err
		}
	}
	return nil
}

// system clones a path of the host that stays where it is.
func (r *newRoot) system(name string, attrs uint64, dir bool) error {
	tree, err := openTree(name)
	if err != nil {
		return step.At("bind "+name, err)
	}
	if err := setattr(tree, attrs); err != nil {
		return step.At("restrict the bind of "+name, err)
	}
	r.own = append(r.own, placed{tree: tree, target: name, dir: dir})
	return nil
}

func (r *newRoot) bind(b Bind) error {
	attrs := uint64(unix.MOUNT_ATTR_NOSUID)
	if !b.Device {
		attrs |= unix.MOUNT_ATTR_NODEV
	}
	if !b.Write && !b.Device {
		attrs |= unix.MOUNT_ATTR_RDONLY
	}
	switch {
	case b.FD > 0:
		if err := setattr(b.FD, attrs); err != nil {
			return step.At("restrict the mount for "+b.Target, err)
		}
		return r.add(b.FD, b.Target)
	case b.Overlay != nil:
		tree, err := MountOverlay(b.Overlay, true)
		if err != nil {
			return err
		}
		if err := setattr(tree, attrs); err != nil {
			return step.At("restrict the overlay for "+b.Target, err)
		}
		return r.add(tree, b.Target)
	default:
		return r.clone(b.Source, b.Target, attrs, b.Optional)
	}
}

func (r *newRoot) clone(source, target string, attrs uint64, optional bool) error {
	tree, err := openTree(source)
	if err != nil {
		if optional && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return step.At("bind "+source, err)
	}
	if err := setattr(tree, attrs); err != nil {
		return step.At("restrict the bind of "+source, err)
	}
	return r.add(tree, target)
}

func (r *newRoot) add(tree int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return step.At("stat what goes to "+target, err)
	}
	r.host = append(r.host, placed{tree: tree, target: target, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR})
	return nil
}

func openTree(source string) (int, error) {
	return unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
}

func setattr(tree int, attrs uint64) error {
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attrs})
}

// makeFS makes a mount that is attached nowhere.
func makeFS(kind string, options map[string]string, attrs int) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, step.At("open file system "+kind, err)
	}
	defer unix.Close(fs)
	for k, v := range options {
		if v == "" {
			err = unix.FsconfigSetFlag(fs, k)
		} else {
			err = unix.FsconfigSetString(fs, k, v)
		}
		if err != nil {
			return -1, step.At("set "+kind+" option "+k, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, step.At("create file system "+kind, err)
	}
	m, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	return m, step.At("mount "+kind, err)
}

// MountOverlay gives a detached overlay. In a user namespace its marks are user attributes.
func MountOverlay(o *Overlay, userXattr bool) (int, error) {
	lower := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(o.Lower) // a colon would separate two
	options := map[string]string{"lowerdir": lower, "upperdir": o.Upper, "workdir": o.Work}
	if userXattr {
		options["userxattr"] = ""
	}
	return makeFS("overlay", options, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// populate fills the new root, sources in order of their targets so that no mount hides an earlier one.
func (r *newRoot) populate(s *Config) error {
	for _, d := range []string{"dev", "etc", "home", "proc", "root", "run", "tmp", "usr", "var", "mnt", "srv"} {
		if err := unix.Mkdirat(r.fd, d, 0o755); err != nil {
			return step.At("make /"+d, err)
		}
	}
	for _, l := range append(r.links, link{"var/tmp", "../tmp"}, link{"var/run", "../run"}, link{"var/lock", "../run"}) {
		if err := unix.Symlinkat(l.target, r.fd, l.name); err != nil {
			return step.At("link /"+l.name, err)
		}
	}
	if err := r.etc(s.Files); err != nil {
		return err
	}
	for _, p := range r.own {
		if err := r.place(p); err != nil {
			return err
		}
	}
	if err := r.memory("/dev/shm", s.TmpBytes); err != nil {
		return err
	}
	if err := r.tmp(s); err != nil {
		return err
	}
	for _, p := range r.host {
		if err := r.placeBelow(p); err != nil {
			return err
		}
	}
	if err := r.dev(); err != nil {
		return err
	}
	return r.proc(s)
}

func (r *newRoot) tmp(s *Config) error {
	for _, b := range s.Binds {
		if b.Target == "/tmp" {
			return nil
		}
	}
	return r.memory("/tmp", s.TmpBytes)
}

func (r *newRoot) memory(target string, size uint64) error {
	options := map[string]string{"mode": "1777"}
	if size > 0 {
		options["size"] = strconv.FormatUint(size, 10)
	}
	fs, err := makeFS("tmpfs", options, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	return r.place(placed{tree: fs, target: target, dir: true})
}

func (r *newRoot) dev() error {
	pts, err := makeFS("devpts", map[string]string{"newinstance": "", "ptmxmode": "0666", "mode": "0620"},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	if err := r.place(placed{tree: pts, target: "/dev/pts", dir: true}); err != nil {
		return err
	}
	for link, target := range map[string]string{
		"dev/ptmx": "pts/ptmx", "dev/fd": "/proc/self/fd", "dev/stdin": "/proc/self/fd/0",
		"dev/stdout": "/proc/self/fd/1", "dev/stderr": "/proc/self/fd/2",
	} {
		if err := unix.Symlinkat(target, r.fd, link); err != nil {
			return step.At("link /"+link, err)
		}
	}
	return nil
}

// proc gives a /proc in which nothing of the kernel can be set. A user 0 of the host that is not mapped could otherwise
// still open /proc/sys for writing.
func (r *newRoot) proc(s *Config) error {
	if !s.BindProc {
		fs, err := makeFS("proc", nil, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		if err := r.place(placed{tree: fs, target: "/proc", dir: true}); err != nil {
			return err
		}
	}
	for _, p := range []string{"proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus", "proc/fs"} {
		tree, err := unix.OpenTree(r.fd, p, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return step.At("bind /"+p, err)
		}
		if err := setattr(tree, unix.MOUNT_ATTR_RDONLY); err != nil {
			return step.At("make /"+p+" read-only", err)
		}
		if err := unix.MoveMount(tree, "", r.fd, p, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return step.At("mount /"+p, err)
		}
	}
	return nil
}

// place attaches a mount at a target that is missing, or a directory. Nobody but this program has made anything on the
// way to it.
func (r *newRoot) place(p placed) error {
	name := p.target[1:]
	var err error
	if p.dir {
		err = unix.Mkdirat(r.fd, name, 0o755)
	} else {
		_, err = unix.Openat(r.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	}
	if err != nil && (!p.dir || !errors.Is(err, unix.EEXIST)) {
		return step.At("make the mount point "+p.target, err)
	}
	return step.At("mount at "+p.target, unix.MoveMount(p.tree, "", r.fd, name, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// placeBelow attaches a mount at a target that is made when missing, and may lie in another mount.
func (r *newRoot) placeBelow(p placed) error {
	at, err := r.target(p.target, p.dir)
	if err != nil {
		return step.At("make the mount point "+p.target, err)
	}
	err = unix.MoveMount(p.tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return step.At("mount at "+p.target, err)
}

// target opens a path of the new root, making what is missing. A link on the way is refused: below a workspace it may
// be anything.
func (r *newRoot) target(name string, dir bool) (int, error) {
	name = path.Join("/", name)
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC, // with O_NOFOLLOW a link at the end would be opened itself
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	if dir {
		how.Flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Openat2(r.fd, "."+name, &how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, err := r.target(path.Dir(name), true)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	base := path.Base(name)
	if !dir {
		return unix.Openat(parent, base, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	}
	if err := unix.Mkdirat(parent, base, 0o755); err != nil {
		return -1, err
	}
	return unix.Openat2(parent, base, &how)
}

// Detach makes the mount of a bind whose path the guest could not reach, with its owners mapped; nil for other binds. Only
// root can do so.
func (b *Bind) Detach() (*os.File, error) {
	if !b.Clone {
		return nil, nil
	}
	var tree int
	var err error
	if b.Overlay != nil {
		tree, err = MountOverlay(b.Overlay, false)
	} else if tree, err = openTree(b.Source); err != nil {
		if b.Optional && errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		err = step.At("bind "+b.Source, err)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(tree), b.Target)
	// What the sandbox mounts must never reach the host, and the sandbox needs what the host mounts.
	attr := unix.MountAttr{Propagation: unix.MS_SLAVE, Attr_set: unix.MOUNT_ATTR_NOSUID}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		_ = f.Close()
		return nil, step.At("restrict the mount for "+b.Target, err)
	}
	if b.IDMap != nil {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(b.IDMap.Fd())}
		err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			_ = f.Close()
			return nil, step.At("map the owners of "+b.Source, err)
		}
	}
	return f, nil
}
