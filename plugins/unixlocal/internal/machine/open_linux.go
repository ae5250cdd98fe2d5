// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/cgroup"
	"github.com/berth-dev/berth/sdk/guest/confine/probe"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
	"github.com/berth-dev/berth/sdk/guest/embed"
)

// Machine is what sandboxes can have here.
type Machine struct {
	Program *os.File // the guest
	Facts   *probe.Facts
	Groups  *cgroup.Tree
	Path    []string // of programs on the host
	// Toolchains are what programs in Path need to be read; found once, it takes a look at every link there.
	Toolchains []string

	mu     sync.Mutex
	owners map[[2]uint32]*os.File // guarded by mu; see OwnerMap
}

// Open finds what this machine allows. cache keeps the guest program and the answer; empty = nothing is kept.
func Open(cache string) (*Machine, error) {
	program, err := guestProgram(cache)
	if err != nil {
		return nil, err
	}
	facts, err := probe.Probe(context.Background(), program, cache)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "probe this machine", err)
	}
	groups, err := cgroup.Open()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "find the cgroups of this machine", err)
	}
	m := &Machine{Program: program, Facts: facts, Groups: groups, owners: map[[2]uint32]*os.File{}, Path: HostPath(os.Getenv("PATH"))}
	home := os.Getenv("HOME")
	if u, err := user.Current(); err == nil && home == "" {
		home = u.HomeDir
	}
	m.Toolchains = Toolchains(m.Path, home)
	return m, nil
}

// EnvGuest names a guest program to use instead of the one that the driver carries.
const EnvGuest = "BERTH_GUEST"

// guestProgram opens the guest: the file that the environment names, else the one that this driver carries, which
// has to be a file first since a program in memory cannot be seen in another mount namespace.
func guestProgram(cache string) (*os.File, error) {
	if p := os.Getenv(EnvGuest); p != "" {
		f, err := os.Open(p)
		return f, errs.Wrap(errs.StartFailed, "open the guest that "+EnvGuest+" names", err)
	}
	b, err := embed.Guest(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	name := "guest-" + hex.EncodeToString(sum[:12])
	if cache == "" {
		return memoryProgram(b)
	}
	path := filepath.Join(cache, name)
	if f, err := os.Open(path); err == nil {
		if st, err := f.Stat(); err == nil && st.Size() == int64(len(b)) {
			return f, nil
		}
		_ = f.Close() // written by halves: once more
	}
	forgetOld(cache)
	tmp, err := os.CreateTemp(cache, ".guest-")
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "unpack the guest", err)
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Chmod(0o555), tmp.Close(), os.Rename(tmp.Name(), path))
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "unpack the guest", err)
	}
	f, err := os.Open(path)
	return f, errs.Wrap(errs.StartFailed, "open the guest", err)
}

// forgetOld removes guests and probes of programs that were replaced. Guests that run do not mind.
func forgetOld(cache string) {
	const age = 7 * 24 * time.Hour
	for _, pattern := range []string{"guest-*", ".guest-*", "probe-*", ".probe-*"} {
		files, _ := filepath.Glob(filepath.Join(cache, pattern)) // the pattern is good
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && time.Since(st.ModTime()) > age {
				_ = os.Remove(f) // tried again next time
			}
		}
	}
}

func memoryProgram(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("berth-guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "unpack the guest", err)
	}
	f := os.NewFile(uintptr(fd), "berth-guest")
	if _, err := f.Write(b); err != nil {
		return nil, errs.Wrap(errs.StartFailed, "unpack the guest", err)
	}
	// A program that is open for writing cannot be executed.
	ro, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	return ro, errs.Wrap(errs.StartFailed, "unpack the guest", errors.Join(err, f.Close()))
}

// Canary prepares what every guest tries to reach at its start, and must not. It lasts as long as the process; run is a
// directory of the process, and may be empty.
func Canary(run string) *confine.SelfTest {
	t := &confine.SelfTest{PID: os.Getpid()}
	if l, err := net.Listen("tcp4", "127.0.0.1:0"); err == nil { //nolint:noctx // it does not wait
		t.TCP = l.Addr().(*net.TCPAddr).Port //nolint:errcheck // a listener on TCP has no other
		go refuse(l)
	}
	if run != "" {
		path := filepath.Join(run, "canary")
		if l, err := net.Listen("unix", path); err == nil { //nolint:noctx // it does not wait
			t.Unix = path
			go refuse(l)
		}
	}
	return t
}

// refuse ends every connection; the listener lives as long as the process.
func refuse(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close() // nobody has business here
	}
}

// OwnerMap gives the user namespace that lets a path's owner be the sandbox's user; nil where none is needed.
func (m *Machine) OwnerMap(path string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, errs.Wrap(errs.InvalidArgument, "grant "+path, err)
	}
	host, _ := Owner(m.Facts.Setup, false)
	if int(st.Uid) == host {
		return nil, nil
	}
	key := [2]uint32{st.Uid, st.Gid}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.owners[key]; f != nil {
		return f, nil
	}
	f, err := confine.OwnerMap(m.Program, st.Uid, st.Gid, host)
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "map the owner of "+path, err)
	}
	m.owners[key] = f
	return f, nil
}

// TryOverlay sees whether a workspace can be laid over a template here; state is where sandboxes are.
func (m *Machine) TryOverlay(state string) error {
	if !m.Facts.Setup.Namespaces.Mount {
		return errs.New(errs.Unsupported, "no mounts without a private root")
	}
	dir, err := os.MkdirTemp(state, ".overlay-")
	if err != nil {
		return errs.Wrap(errs.Internal, "try an overlay", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // emptied again at the next start
	o := &rootfs.Overlay{Lower: filepath.Join(dir, "lower"), Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work")}
	for _, p := range []string{o.Lower, o.Upper, o.Work} {
		if err := os.Mkdir(p, 0o755); err != nil {
			return errs.Wrap(errs.Internal, "try an overlay", err)
		}
	}
	return probe.TryOverlay(context.Background(), m.Program, m.Facts.Setup, o)
}

// SetupFor changes the machine's setup where several users are needed.
func (m *Machine) SetupFor(w *Want) (probe.Setup, error) {
	s := m.Facts.Setup
	if !NeedsUsers(w.Accounts, w.RunAs) {
		return s, nil
	}
	if err := CheckAccounts(w.Accounts); err != nil {
		return s, err
	}
	if w.Off || !s.Namespaces.User {
		return s, errs.New(errs.IsolationMissing, "users need a user namespace, which there is none of here").
			With("axis", report.AxisUser).WithHint("leave users, groups and run_as out, or see the isolation report for what is missing")
	}
	if s.IDs.Kind == confine.MapRange {
		return s, nil
	}
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	ids, err := probe.HelperRange(name, os.Getuid())
	if err != nil {
		return s, err
	}
	s.IDs = ids
	return s, nil
}

// HostMounts makes grants of the mounts that a directory of this machine already holds.
func HostMounts(grants []driver.PathGrant, mounts []driver.MountSpec, root string) ([]driver.PathGrant, error) {
	list := append([]driver.PathGrant(nil), grants...)
	for _, m := range mounts {
		if m.Strategy == attach.Strategy {
			continue // it is attached when the guest runs
		}
		if m.HostPath == "" {
			return nil, errs.New(errs.Unsupported, "mount %s: this driver only attaches what the machine has mounted already", m.Path).
				With("feature", "mount."+m.Kind)
		}
		path := m.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		list = append(list, driver.PathGrant{Path: path, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	return list, nil
}
