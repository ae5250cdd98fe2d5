// SPDX-License-Identifier: Apache-2.0

// Package machine turns what is wanted of a sandbox, and what this machine allows, into what is enforced.
package machine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/cgroup"
	"github.com/berth-dev/berth/sdk/guest/confine/probe"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
	"github.com/berth-dev/berth/sdk/guest/confine/seccomp"
)

// User is the user that commands are inside, where there are own accounts.
const User = "sandbox"

// Want is what is wanted of a sandbox.
type Want struct {
	Setup     probe.Setup
	Off       bool // confine nothing
	Network   string
	Unix      bool // unix sockets at level 1
	Nested    bool
	Limits    cgroup.Limits
	FileBytes uint64
	OpenFiles uint32
	ReadOnly  []string
	Path      []string // directories of the host's PATH
	// Toolchains are what Path takes to be read; see the function of this name.
	Toolchains []string
	Grants     []driver.PathGrant
	Accounts   driver.Accounts
	RunAs      string
	Root       string // of the workspace, inside
	Files      string // directory on the host with work, home and tmp
	Overlay    *rootfs.Overlay
	Env        map[string]string
	Secret     map[string]string
	Test       confine.SelfTest
	Canary     string // a file that must not be readable
	Groups     *cgroup.Tree
	// OwnerMap gives the user namespace for the owners of a granted path; nil where nothing has to be mapped.
	OwnerMap func(path string) (*os.File, error)
}

// Place is where things are inside.
type Place struct{ Root, Home, Tmp string }

// Inside gives the places of a sandbox. Without a private root they are those of the host.
func (w *Want) Inside() Place {
	if w.Setup.Namespaces.Mount && !w.Off {
		return Place{Root: w.Root, Home: "/home/" + User, Tmp: "/tmp"}
	}
	return Place{Root: filepath.Join(w.Files, "work"), Home: filepath.Join(w.Files, "home"), Tmp: filepath.Join(w.Files, "tmp")}
}

// Owner is the user and group of the host that the workspace belongs to.
func Owner(s probe.Setup, off bool) (uid, gid int) {
	switch {
	case off:
		return os.Getuid(), os.Getgid()
	case s.IDs.Kind == confine.MapRange:
		return s.IDs.Host + confine.Inside, s.IDs.HostGroup + confine.Inside
	case s.Identity.Become:
		return s.Identity.UID, s.Identity.GID
	}
	return os.Getuid(), os.Getgid()
}

// Plan gives what is enforced, and the guest's configuration but for its key and lease.
func (w *Want) Plan() (*report.Plan, guest.Config, error) {
	p := &report.Plan{Level: w.Setup.Level(), Kill: report.KillNamespace}
	place := w.Inside()
	cfg := guest.Config{Root: place.Root, Grants: w.Grants, Env: w.environment(place), SecretEnv: w.Secret}
	p.Spec.Network = w.Network
	p.Limits = confine.Limits{FileBytes: w.FileBytes, OpenFiles: uint64(w.OpenFiles)}
	for name := range cfg.Env {
		p.EnvNames = append(p.EnvNames, name)
	}
	if w.Off {
		p.Level, p.Kill, p.Plain = confine.LevelNone, report.KillBestEffort, true
		if os.Getuid() != 0 { // the kernel does not count for root
			p.Limits.Processes, p.Pids = w.processes(), "rlimit"
		}
		return p, cfg, nil
	}
	w.Setup.Apply(&p.Spec)
	ns := p.Namespaces
	if w.Network != "none" {
		p.Namespaces.Network = false
	}
	p.Hostname = "sandbox"
	p.Test = w.Test
	p.Test.File = w.Canary
	if p.Seccomp != nil {
		// Landlock alone would refuse the mounts that namespaces of one's own are for.
		p.ScopeOnly = w.Nested && ns.Mount
		p.Seccomp = &seccomp.Options{Nested: p.ScopeOnly, DenySetID: w.sharesFiles()}
		if !ns.Mount {
			p.Seccomp.DenyUnix = !w.Unix
			p.Seccomp.DenyInet = w.Network == "none"
		}
	}
	if err := w.binds(&p.Spec, place); err != nil {
		return nil, cfg, err
	}
	if ns.Mount {
		p.Spec.Files = w.etc()
	}
	w.accounts(p, &cfg)
	w.limits(p)
	w.kill(p, &cfg)
	cfg.PrivateNetwork = p.Namespaces.Network
	return p, cfg, nil
}

// countOOM lets the guest read the counter of commands that were ended for lack of memory.
func countOOM(s *confine.Spec, cfg *guest.Config, file string) {
	if file == "" {
		return
	}
	b := rootfs.Bind{Source: file, Target: file}
	if s.Namespaces.Mount {
		b.Target = "/run/memory"
	}
	s.Binds = append(s.Binds, b)
	cfg.OOMFile = b.Target
}

// sharesFiles says whether files that the sandbox writes lie where other users of the host may come.
func (w *Want) sharesFiles() bool {
	return slices.ContainsFunc(w.Grants, func(g driver.PathGrant) bool { return !g.ReadOnly })
}

func (w *Want) binds(s *confine.Spec, place Place) error {
	private := s.Namespaces.Mount
	// Root makes the mounts itself: the guest, who it becomes, could not reach all paths.
	clone := private && os.Getuid() == 0
	work := rootfs.Bind{Source: filepath.Join(w.Files, "work"), Target: place.Root, Write: true, Clone: clone}
	if w.Overlay != nil {
		work.Source, work.Overlay = "", w.Overlay
	}
	s.Binds = []rootfs.Bind{
		work,
		{Source: filepath.Join(w.Files, "home"), Target: place.Home, Write: true, Clone: clone},
		{Source: filepath.Join(w.Files, "tmp"), Target: place.Tmp, Write: true, Clone: clone},
	}
	readOnly := append(slices.Clone(w.ReadOnly), w.Toolchains...)
	for _, p := range distinct(readOnly) {
		if private && underSystem(p) {
			continue
		}
		s.Binds = append(s.Binds, rootfs.Bind{Source: p, Target: p, Clone: clone, Optional: true})
	}
	for _, g := range w.Grants {
		source := g.HostPath
		if source == "" {
			source = g.Path
		}
		if !private && filepath.Clean(source) != filepath.Clean(g.Path) {
			return errs.New(errs.IsolationMissing, "%s cannot be seen as %s: this machine refuses a private root", source, g.Path).
				With("axis", report.AxisFilesystem).WithHint("grant it at its own path, or see the isolation report for what is missing")
		}
		if _, err := os.Stat(source); err != nil {
			return errs.Wrap(errs.InvalidArgument, "grant "+source, err)
		}
		b := rootfs.Bind{Source: source, Target: g.Path, Write: !g.ReadOnly, Clone: clone}
		if clone && w.OwnerMap != nil {
			var err error
			if b.IDMap, err = w.OwnerMap(source); err != nil {
				return err
			}
		}
		s.Binds = append(s.Binds, b)
	}
	if !private {
		s.Binds = append(s.Binds, rootfs.HostBinds()...)
	}
	return nil
}

// distinct leaves out what lies below another.
func distinct(paths []string) []string {
	var out []string
	slices.Sort(paths)
	for _, p := range slices.Compact(paths) {
		if len(out) > 0 && (out[len(out)-1] == "/" || strings.HasPrefix(p, out[len(out)-1]+"/")) {
			continue
		}
		out = append(out, p)
	}
	return out
}

func (w *Want) environment(p Place) map[string]string {
	var path []string
	for _, d := range w.Path {
		if filepath.IsAbs(d) && !slices.Contains(path, d) {
			path = append(path, d)
		}
	}
	for _, d := range []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if !slices.Contains(path, d) {
			path = append(path, d)
		}
	}
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	lang := os.Getenv("LANG")
	if lang == "" {
		lang = "C.UTF-8"
	}
	env := map[string]string{
		"PATH": strings.Join(path, ":"), "HOME": p.Home, "TMPDIR": p.Tmp, "LANG": lang, "TERM": "xterm-256color",
		"USER": User, "LOGNAME": User, "SHELL": shell,
	}
	return Merge(env, w.Env)
}

// limits decides what enforces each limit.
func (w *Want) limits(p *report.Plan) {
	p.Memory, p.CPU = report.LimitNone, report.LimitNone
	if w.Limits.MemoryBytes > 0 && w.Groups != nil {
		p.Memory = or(w.Groups.Can("memory"))
	}
	if w.Limits.CPUs > 0 && w.Groups != nil {
		p.CPU = or(w.Groups.Can("cpu"))
	}
	if w.Groups != nil && w.Groups.Can("pids") != "" {
		p.Pids = w.Groups.Can("pids")
		return
	}
	p.Pids = "rlimit"
	p.Limits.Processes = w.processes()
}

func or(s string) string {
	if s == "" {
		return report.LimitNone
	}
	return s
}

// processes is the limit of the user's processes. Where they are counted with those that the user has on the host
// anyway, these come on top.
func (w *Want) processes() uint64 {
	n := uint64(w.Limits.Processes)
	if w.Setup.Namespaces.User && !w.Off {
		return n
	}
	uid, _ := Owner(w.Setup, w.Off)
	return n + threadsOf(uid)
}

func threadsOf(uid int) uint64 {
	var n uint64
	dirs, _ := filepath.Glob("/proc/[0-9]*/task")
	for _, d := range dirs {
		var st unix.Stat_t
		if unix.Stat(d, &st) != nil || int(st.Uid) != uid {
			continue
		}
		if tasks, err := os.ReadDir(d); err == nil {
			n += uint64(len(tasks))
		}
	}
	return n
}

// kill decides what ends everything.
func (w *Want) kill(p *report.Plan, cfg *guest.Config) {
	scope := p.Landlock >= 6 && !p.Identity.RunAs
	cfg.Kill.SignalScope = scope
	if p.Namespaces.PID {
		return
	}
	switch {
	case w.Groups != nil && w.Groups.CanKill() != "":
		p.Kill = w.Groups.CanKill()
	case scope:
		p.Kill = report.KillScope
	default:
		p.Kill = report.KillBestEffort
	}
}

// Check gives an error when an axis that must be isolated is not.
func Check(required []string, have []driver.Isolation, failures []probe.Fail) error {
	for _, axis := range required {
		i := slices.IndexFunc(have, func(i driver.Isolation) bool { return i.Axis == axis })
		if i >= 0 && have[i].Strength > 0 {
			continue
		}
		e := errs.New(errs.IsolationMissing, "%s is required to be isolated and is not", axis)
		if i >= 0 {
			e = errs.New(errs.IsolationMissing, "%s is required to be isolated, and the most that can be had is: %s", axis, have[i].Statement)
		}
		e = e.With("axis", axis)
		switch {
		case axis == report.AxisNetwork && i >= 0 && have[i].Gap == "":
			return e.WithHint("set network = \"none\"")
		case len(failures) > 0:
			f := failures[0]
			e = e.With("probe", f.Step).With("errno", f.Errno).WithHint("%s", f.Cure)
			e.Err = fmt.Errorf("%s: %s", f.Setup, f.Text)
		}
		return e
	}
	return nil
}

// Merge puts maps into one; the later ones win.
func Merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
