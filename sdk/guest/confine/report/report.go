// SPDX-License-Identifier: Apache-2.0

// Package report says what is enforced, one exact statement for each axis.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/seccomp"
)

// The axes of a report.
const (
	AxisFilesystem  = "filesystem"
	AxisProcesses   = "processes"
	AxisKill        = "kill"
	AxisNetwork     = "network"
	AxisUnixSockets = "unix_sockets"
	AxisUser        = "user"
	AxisKernel      = "kernel"
	AxisLimits      = "limits"
	AxisDescriptors = "descriptors"
	AxisEnvironment = "environment"
)

// Axes are all axes, in the order of a report.
var axes = []string{
	AxisFilesystem, AxisProcesses, AxisKill, AxisNetwork, AxisUnixSockets, AxisUser, AxisKernel, AxisLimits,
	AxisDescriptors, AxisEnvironment,
}

// Axes gives the names of all axes.
func Axes() []string { return slices.Clone(axes) }

// The ways of ending everything, strongest first.
const (
	KillNamespace  = "namespace"
	KillCgroup     = "cgroup.kill"
	KillFreezer    = "freezer"
	KillScope      = "signal scope"
	KillBestEffort = "best effort"
)

// LimitNone is a limit that nothing enforces.
const LimitNone = "none"

// Plan is what is to be enforced, in the words that [Report] needs.
type Plan struct {
	confine.Spec
	Level    confine.Level
	Kill     string // namespace, cgroup.kill, freezer, signal scope, best effort
	Pids     string // cgroup v2, cgroup v1, rlimit, none
	Memory   string
	CPU      string
	EnvNames []string
}

// Report gives the exact statements, one for each axis.
func (p *Plan) Report() []driver.Isolation {
	return []driver.Isolation{
		p.filesystem(), p.processes(), p.kill(), p.network(), p.unixSockets(), p.user(), p.kernel(), p.limits(),
		{Axis: AxisDescriptors, Statement: "only stdin, stdout and stderr", Strength: 1},
		p.environment(),
	}
}

func (p *Plan) filesystem() driver.Isolation {
	i := driver.Isolation{Axis: AxisFilesystem}
	readOnly := 0
	for _, b := range p.Binds {
		if !b.Write && !b.Device {
			readOnly++
		}
	}
	switch {
	case p.Namespaces.Mount && p.Landlock > 0 && !p.ScopeOnly:
		i.Strength = 3
		i.Statement = fmt.Sprintf("private root (pivot_root), workspace read-write, system and %d more paths read-only; Landlock ABI %d",
			readOnly, p.Landlock)
	case p.Namespaces.Mount:
		i.Strength = 2
		i.Statement = "private root (pivot_root), workspace read-write"
	case p.Landlock > 0:
		i.Strength = 1
		i.Statement = fmt.Sprintf("Landlock ABI %d: contents of other files are protected", p.Landlock)
		i.Gap = "metadata (chmod, chown, times, extended attributes) of other files of the same user is not protected"
		if p.Landlock < 3 {
			i.Gap += "; files outside can be truncated"
		}
	default:
		i.Statement = "not isolated"
		i.Gap = "every file that the driver's user may reach can be reached"
	}
	return i
}

func (p *Plan) processes() driver.Isolation {
	i := driver.Isolation{Axis: AxisProcesses}
	switch {
	case p.Namespaces.PID:
		i.Strength, i.Statement = 2, "own PID namespace"
		if p.Landlock < 6 {
			i.Gap = "commands can signal the guest"
		}
	case p.Landlock >= 6:
		i.Strength, i.Statement = 1, "Landlock signal and ptrace scope"
		i.Gap = "names, priorities and limits of other processes of the same user are visible, and priorities can be changed"
	case p.Landlock > 0:
		i.Strength, i.Statement = 1, "Landlock ptrace scope"
		i.Gap = "other processes of the same user can be signalled"
	default:
		i.Statement = "process group only"
		i.Gap = "other processes of the same user can be signalled and traced"
	}
	return i
}

func (p *Plan) kill() driver.Isolation {
	i := driver.Isolation{Axis: AxisKill, Statement: p.Kill, Strength: 1}
	if p.Kill == KillBestEffort {
		i.Strength = 0
		i.Gap = "a chain of processes made to evade it can outlive the sandbox"
	}
	return i
}

func (p *Plan) network() driver.Isolation {
	i := driver.Isolation{Axis: AxisNetwork}
	switch {
	case p.Network != "none":
		i.Statement = "host"
	case p.Namespaces.Network:
		i.Strength, i.Statement = 2, "none (own network namespace, loopback only)"
	case p.Seccomp != nil && p.Seccomp.DenyInet:
		i.Strength, i.Statement = 2, "none (seccomp: no IP sockets, no loopback)"
		i.Gap = "names and addresses of the host's network devices are visible"
	case p.Landlock >= 4:
		i.Strength, i.Statement = 1, "TCP limited by Landlock"
		i.Gap = "UDP and MPTCP are open"
	default:
		i.Statement = "host"
		i.Gap = "network none was asked for and cannot be enforced"
	}
	return i
}

func (p *Plan) unixSockets() driver.Isolation {
	i := driver.Isolation{Axis: AxisUnixSockets}
	switch {
	case p.Namespaces.Mount && (p.Namespaces.Network || p.Landlock >= 6):
		i.Strength, i.Statement = 2, "only sockets inside the sandbox and in granted paths"
	case p.Namespaces.Mount:
		i.Strength, i.Statement = 1, "path sockets only inside the sandbox"
		i.Gap = "abstract sockets of the host are reachable"
	case p.Seccomp != nil && p.Seccomp.DenyUnix:
		i.Strength, i.Statement = 2, "denied by seccomp"
	case p.Landlock >= 9:
		i.Strength, i.Statement = 2, "Landlock resolve_unix"
	default:
		i.Statement = "host path sockets reachable"
		i.Gap = "agents and services of the same user on unix sockets (ssh-agent, docker.sock, D-Bus) can be used"
	}
	return i
}

func (p *Plan) user() driver.Isolation {
	i := driver.Isolation{Axis: AxisUser}
	switch {
	case p.Identity.RunAs:
		i.Strength, i.Statement = 2, "mapped range, run_as available"
	case p.Namespaces.User && p.Identity.Become:
		i.Strength, i.Statement = 2, "mapped range that belongs to nobody, no run_as"
	case p.Namespaces.User:
		i.Strength, i.Statement = 1, "one uid, no run_as"
	case p.Identity.Become:
		i.Strength, i.Statement = 1, fmt.Sprintf("user %d of the host, which belongs to nobody; no run_as", p.Identity.UID)
	default:
		i.Statement = "the driver's own uid, no run_as"
	}
	return i
}

func (p *Plan) kernel() driver.Isolation {
	i := driver.Isolation{Axis: AxisKernel}
	if p.Level == confine.LevelNone {
		i.Statement = "not isolated"
		return i
	}
	var parts []string
	if p.Seccomp != nil {
		parts = append(parts, fmt.Sprintf("seccomp deny list v%d", seccomp.Version))
		i.Strength = 2
		if p.Seccomp.Nested {
			i.Strength = 1
			i.Gap = "new namespaces and mounts in them are allowed (nested_sandboxes)"
		}
	} else {
		i.Strength = 1
		i.Gap = "no seccomp filter: every system call is open"
	}
	parts = append(parts, "no_new_privs")
	if p.Identity.RunAs {
		parts = append(parts, "no capabilities but six of the own user namespace, for its root")
	} else {
		parts = append(parts, "no capabilities")
	}
	i.Statement = strings.Join(parts, ", ")
	return i
}

func (p *Plan) limits() driver.Isolation {
	file := LimitNone
	if p.Limits.FileBytes > 0 {
		file = "rlimit"
	}
	i := driver.Isolation{
		Axis: AxisLimits,
		Statement: fmt.Sprintf("memory: %s, pids: %s, cpu: %s, file size: %s",
			or(p.Memory), or(p.Pids), or(p.CPU), file),
	}
	if or(p.Pids) != LimitNone {
		i.Strength = 1
	}
	if or(p.Memory) != LimitNone {
		i.Strength = 2
	}
	return i
}

func or(s string) string {
	if s == "" {
		return LimitNone
	}
	return s
}

func (p *Plan) environment() driver.Isolation {
	names := slices.Clone(p.EnvNames)
	slices.Sort(names)
	return driver.Isolation{Axis: AxisEnvironment, Statement: "allow list: " + strings.Join(names, ", "), Strength: 1}
}
