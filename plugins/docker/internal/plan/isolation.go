// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

// Isolation says what keeps a container apart, one exact statement for each axis.
func Isolation(r *Record) []driver.Isolation {
	f := r.Facts
	files := "the image's files and a layer of its own"
	if f.ReadOnly {
		files = "the image's files, read-only, and a volume of its own"
	}
	for _, g := range r.Grants {
		mode := "writable"
		if g.ReadOnly {
			mode = "read-only"
		}
		files += fmt.Sprintf("; %s of the host, %s", g.HostPath, mode)
	}
	return []driver.Isolation{
		{Axis: report.AxisFilesystem, Statement: files, Strength: 3},
		{Axis: report.AxisProcesses, Statement: "PID and IPC namespaces of its own", Strength: 2},
		killing(r),
		networking(r),
		{Axis: report.AxisUnixSockets, Statement: "none of the host's are in reach, but those in granted paths", Strength: 2},
		users(f),
		kernel(f),
		limits(f),
	}
}

func killing(r *Record) driver.Isolation {
	if r.Exec {
		return driver.Isolation{
			Axis: report.AxisKill, Statement: "commands by their mark in the environment, everything with the container", Strength: 1,
			Gap: "there is no guest (" + r.Facts.Why + "): a process that empties its environment outlives its command, not the sandbox",
		}
	}
	return driver.Isolation{Axis: report.AxisKill, Statement: "namespace: the guest is the container's first process", Strength: 3}
}

func networking(r *Record) driver.Isolation {
	switch n := r.Facts.Network; n {
	case "none":
		return driver.Isolation{Axis: report.AxisNetwork, Statement: "none but its own loopback device", Strength: 3}
	case "bridge":
		return driver.Isolation{
			Axis: report.AxisNetwork, Statement: "a network namespace of its own, on the engine's bridge", Strength: 1,
			Gap: "it reaches the internet, other containers on the bridge and the host's addresses; network = \"none\" does not",
		}
	default:
		return driver.Isolation{Axis: report.AxisNetwork, Statement: fmt.Sprintf("a network namespace of its own, on the network %q", n), Strength: 1}
	}
}

func users(f Facts) driver.Isolation {
	i := driver.Isolation{Axis: report.AxisUser, Strength: 1}
	caps := slices.Clone(f.Capabilities)
	slices.Sort(caps)
	switch {
	case len(caps) == 0:
		i.Statement, i.Strength = "no capabilities", 2
	default:
		i.Statement = "root inside has " + strings.Join(caps, ", ")
	}
	if f.Rootless {
		i.Statement, i.Strength = i.Statement+"; the engine is rootless: it is an ordinary user outside", 3
	}
	if f.Privileges {
		i.Gap = "set-user-ID programs give their rights (no_new_privileges = false)"
	} else {
		i.Statement += "; set-user-ID programs give none"
	}
	return i
}

func kernel(f Facts) driver.Isolation {
	i := driver.Isolation{Axis: report.AxisKernel, Statement: "the engine's seccomp filter", Strength: 1}
	switch {
	case f.Runtime != "" && f.Runtime != "runc" && f.Runtime != "crun":
		i.Statement, i.Strength = "the runtime "+f.Runtime, 2
	case f.Seccomp == "unconfined":
		i.Statement, i.Strength, i.Gap = "every system call", 0, "seccomp = \"unconfined\""
	case f.Seccomp != "":
		i.Statement = "the seccomp filter " + f.Seccomp
	}
	return i
}

func limits(f Facts) driver.Isolation {
	parts := []string{fmt.Sprintf("%d processes", f.Processes)}
	i := driver.Isolation{Axis: report.AxisLimits, Strength: 2}
	if f.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB of memory", f.Memory>>20))
	} else {
		i.Strength, i.Gap = 1, "memory has no limit"
	}
	if f.CPUs > 0 {
		parts = append(parts, fmt.Sprintf("%g processors", f.CPUs))
	}
	i.Statement = strings.Join(parts, ", ")
	return i
}

// ExecFeatures are what there is without a guest.
func ExecFeatures() []driver.Feature {
	return []driver.Feature{
		driver.ProcPTY, driver.ProcSignal, driver.ProcUser, driver.ProcCwd, driver.SnapNative, driver.PortTCP, driver.PortHTTP,
		driver.LifeResume, driver.LifeStop, driver.LifePause, driver.LifeDeadline, driver.LifeList, driver.LifeWatch,
		driver.EnvPerExec, driver.EnvSecret, driver.NetPolicy, driver.GPU, driver.PathGrants,
	}
}
