// SPDX-License-Identifier: Apache-2.0

// Package probe finds how far a machine lets sandboxes be confined, by doing it in children that are thrown away.
package probe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/landlock"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
	"github.com/berth-dev/berth/sdk/guest/confine/seccomp"
)

// RangeStart and RangeCount are the users of the host that a driver which is root gives to sandboxes.
const (
	RangeStart = 100_000
	RangeCount = 65_536
)

// Facts is what a machine was seen to allow.
type Facts struct {
	Landlock int           // version; 0 = none
	Level    confine.Level // the strongest
	Setup    Setup         // how Level is reached
	Failures []Fail        // what stronger setups failed with, strongest first
}

// Setup is a way to confine.
type Setup struct {
	Name       string
	Namespaces confine.Namespaces
	BindProc   bool
	IDs        confine.IDMap
	Identity   confine.Identity
	Landlock   int
	Seccomp    bool
}

// Fail is why a setup is out of reach.
type Fail struct {
	Setup string
	Step  string // what the kernel refused
	Errno string
	Text  string
	Cure  string // what to do about it
}

// Err is the failure as an error of a start.
func (f Fail) Err() *errs.Error {
	e := errs.New(errs.IsolationMissing, "%s: %s", f.Setup, f.Text).With("probe", f.Step).With("errno", f.Errno)
	if f.Cure != "" {
		e = e.WithHint("%s", f.Cure)
	}
	return e
}

// Probe finds what this machine allows, by doing all of it in children that are thrown away. The answer is kept in
// cache, a directory of this user alone (empty = not kept), for this boot, program and user.
func Probe(ctx context.Context, program *os.File, cache string) (*Facts, error) {
	key, err := probeKey(program)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(cache, "probe-"+key+".json")
	if cache != "" {
		if f := readFacts(file); f != nil {
			return f, nil
		}
	}
	f, err := probe(ctx, program)
	if err != nil {
		return nil, err
	}
	if cache != "" {
		if err := writeFacts(file, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func probeKey(program *os.File) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "2 %s %d %d ", boot, os.Getuid(), os.Getgid())
	st, err := program.Stat()
	if err != nil {
		return "", fmt.Errorf("read the guest program: %w", err)
	}
	if _, err := io.Copy(h, io.NewSectionReader(program, 0, st.Size())); err != nil {
		return "", fmt.Errorf("read the guest program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:24], nil
}

func readFacts(file string) *Facts {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var f Facts
	if json.Unmarshal(b, &f) != nil {
		return nil // written by halves or by another version: probe again
	}
	return &f
}

func writeFacts(file string, f *Facts) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("keep what was probed: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".probe-")
	if err != nil {
		return fmt.Errorf("keep what was probed: %w", err)
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close(), os.Rename(tmp.Name(), file)); err != nil {
		return fmt.Errorf("keep what was probed: %w", err)
	}
	return nil
}

// Setups are the ways to confine for this user, strongest first.
func Setups(version int, filter bool) []Setup {
	all := confine.Namespaces{User: true, Mount: true, PID: true, IPC: true, UTS: true, Network: true, Cgroup: true}
	noPID, noUser, noUserPID := all, all, all
	noPID.PID = false
	noUser.User = false
	noUserPID.User, noUserPID.PID = false, false
	base := Setup{Landlock: version, Seccomp: filter}
	with := func(name string, ns confine.Namespaces, bindProc bool, ids confine.IDMap, id confine.Identity) Setup {
		s := base
		s.Name, s.Namespaces, s.BindProc, s.IDs, s.Identity = name, ns, bindProc, ids, id
		return s
	}
	inside := confine.Identity{UID: confine.Inside, GID: confine.Inside}
	if os.Getuid() != 0 {
		one := confine.IDMap{Kind: confine.MapOne}
		self := confine.Identity{UID: os.Getuid(), GID: os.Getgid()}
		return []Setup{
			with("namespaces", all, false, one, inside),
			with("namespaces without an own /proc", noPID, true, one, inside),
			with("Landlock and seccomp", confine.Namespaces{}, false, confine.IDMap{}, self),
		}
	}
	ranged := confine.IDMap{Kind: confine.MapRange, Host: RangeStart, HostGroup: RangeStart, Count: RangeCount}
	inside.Become = true
	outside := confine.Identity{UID: RangeStart + confine.Inside, GID: RangeStart + confine.Inside, Become: true}
	return []Setup{
		with("namespaces", all, false, ranged, inside),
		with("namespaces without a user namespace", noUser, false, confine.IDMap{}, outside),
		with("namespaces without an own /proc", noPID, true, ranged, inside),
		with("namespaces without a user namespace and an own /proc", noUserPID, true, confine.IDMap{}, outside),
		with("Landlock and seccomp", confine.Namespaces{}, false, confine.IDMap{}, outside),
	}
}

// Level is what a setup reaches.
func (s Setup) Level() confine.Level {
	switch {
	case s.Namespaces.Mount && s.Landlock > 0 && s.Seccomp:
		return confine.LevelFull
	case s.Namespaces.Mount:
		return confine.LevelNamespaces
	case s.Landlock > 0 && s.Seccomp:
		return confine.LevelLandlock
	}
	return confine.LevelNone
}

// Apply puts the setup into a spec.
func (s Setup) Apply(spec *confine.Spec) {
	spec.Namespaces, spec.BindProc, spec.Identity, spec.Landlock = s.Namespaces, s.BindProc, s.Identity, s.Landlock
	if s.Seccomp && spec.Seccomp == nil {
		spec.Seccomp = &seccomp.Options{}
	}
	if !s.Seccomp {
		spec.Seccomp = nil
	}
}

func probe(ctx context.Context, program *os.File) (*Facts, error) {
	f := &Facts{}
	version, err := landlock.Version()
	if err != nil {
		f.Failures = append(f.Failures, Fail{
			Setup: "Landlock", Step: "landlock_create_ruleset", Errno: errnoName(err), Text: err.Error(),
			Cure: "use Linux 5.13 or newer with \"landlock\" in the lsm= list of the kernel's command line",
		})
	}
	f.Landlock = version
	filter := true
	if err := seccomp.Available(); err != nil {
		filter = false
		f.Failures = append(f.Failures, Fail{
			Setup: "seccomp", Step: "seccomp", Errno: errnoName(err), Text: err.Error(),
			Cure: "use a kernel with CONFIG_SECCOMP_FILTER on amd64 or arm64",
		})
	}
	for _, s := range Setups(version, filter) {
		if s.Level() == confine.LevelNone {
			continue
		}
		err := Try(ctx, program, s)
		if err == nil {
			f.Level, f.Setup = s.Level(), s
			return f, nil
		}
		if ctx.Err() != nil {
			return nil, errs.Wrap(errs.Canceled, "probe the machine", context.Cause(ctx))
		}
		f.Failures = append(f.Failures, failure(s, err))
	}
	return f, nil
}

// Try does a whole setup in a child and throws it away.
func Try(ctx context.Context, program *os.File, s Setup) error {
	spec := confine.Spec{Trial: true, Hostname: "sandbox", Network: "none"}
	s.Apply(&spec)
	if !s.Namespaces.Mount {
		spec.Binds = rootfs.HostBinds()
	}
	_, err := confine.Start(ctx, &confine.Launch{Program: program, Spec: spec, IDs: s.IDs, Config: guest.Config{Key: make([]byte, 16)}})
	return err
}

func failure(s Setup, err error) Fail {
	f := Fail{Setup: s.Name, Text: err.Error()}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		f.Step, f.Errno = e.Context["step"], e.Context["errno"]
	}
	f.Cure = cure(f.Step, f.Errno)
	return f
}

// cure says what to do about a refusal. The settings are named, and never trusted.
func cure(at, errno string) string {
	switch {
	case at == "clone" && errno == "ENOSPC":
		return "user namespaces are switched off: set the sysctl user.max_user_namespaces to more than 0"
	case at == "clone":
		return "user namespaces are refused: set the sysctl kernel.unprivileged_userns_clone to 1; " +
			"in a container, run it with --security-opt seccomp=unconfined, or with --cap-add SYS_ADMIN as root"
	case at == "mount proc":
		return "a fresh /proc is refused since parts of this one are covered: run the container with " +
			"--security-opt systempaths=unconfined"
	case errno == "EPERM" || errno == "EACCES":
		return "user namespaces have no capabilities here: give the guest program an AppArmor profile with " +
			"\"userns,\" or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
	case errno == "ENOSYS":
		return "use Linux 5.12 or newer"
	}
	return ""
}

func errnoName(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return ""
}

// HelperRange finds the subordinate users of the current user, for MapHelper. The error says what is missing.
func HelperRange(username string, uid int) (confine.IDMap, error) {
	m := confine.IDMap{Kind: confine.MapHelper, Count: RangeCount}
	for _, p := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(p); err != nil {
			return confine.IDMap{}, errs.New(errs.IsolationMissing, "more than one user takes %s, which is not installed", p).
				With("axis", report.AxisUser).WithHint("install the package uidmap, or leave users, groups and run_as out")
		}
	}
	for _, f := range []struct {
		path  string
		first *int
	}{{"/etc/subuid", &m.Host}, {"/etc/subgid", &m.HostGroup}} {
		b, err := os.ReadFile(f.path)
		if err != nil {
			return confine.IDMap{}, errs.Wrap(errs.IsolationMissing, "read "+f.path, err)
		}
		count := 0
		for line := range strings.Lines(string(b)) {
			var first, n int
			name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
			if !ok || name != username && name != fmt.Sprint(uid) {
				continue
			}
			if _, err := fmt.Sscanf(rest, "%d:%d", &first, &n); err == nil && n > count {
				*f.first, count = first, n
			}
		}
		if count <= confine.Inside+1 {
			return confine.IDMap{}, errs.New(errs.IsolationMissing, "more than one user takes a range of users, and %s gives %s none", f.path, username).
				With("axis", report.AxisUser).WithHint("add a line %q to %s", username+":100000:65536", f.path)
		}
		m.Count = min(m.Count, count)
	}
	return m, nil
}

// TryOverlay mounts an overlay as a sandbox would have it, in a child that is thrown away.
func TryOverlay(ctx context.Context, program *os.File, s Setup, o *rootfs.Overlay) error {
	spec := confine.Spec{Trial: true, Network: "none"}
	s.Apply(&spec)
	spec.Binds = []rootfs.Bind{{Overlay: o, Target: "/workspace", Write: true, Clone: s.IDs.Kind == confine.MapRange}}
	_, err := confine.Start(ctx, &confine.Launch{Program: program, Spec: spec, IDs: s.IDs, Config: guest.Config{Key: make([]byte, 16)}})
	return err
}
