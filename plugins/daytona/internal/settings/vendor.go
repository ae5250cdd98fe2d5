// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
)

// Features are what sandboxes whose user is root can do.
var Features = []driver.Feature{
	driver.ProcAttach, driver.ProcPTY, driver.ProcSignal, driver.ProcList, driver.ProcUser, driver.ProcDetached, driver.ProcCwd,
	driver.FilesNative, driver.FilesRange, driver.FilesAtomic, driver.FilesRawNames, driver.FilesSymlinks,
	driver.TreeNative, driver.TreeZstd, driver.SnapNative,
	driver.PortTCP, driver.PortHTTP, driver.PortForward, driver.PortDynamic, driver.PortPublic,
	driver.LifeResume, driver.LifeStop, driver.LifeDeadline, driver.LifeList, driver.LifeWatch,
	driver.AcctNative, driver.EnvPerExec, driver.EnvSecret, driver.NetPolicy, driver.GPU,
}

// Isolation says what keeps a sandbox apart, as far as it is known from here.
func Isolation(c *Config) []driver.Isolation {
	all := []driver.Isolation{
		{Axis: report.AxisFilesystem, Statement: "a disk of its own at Daytona; nothing of this machine", Strength: 3},
		{Axis: report.AxisProcesses, Statement: "at Daytona, as Daytona keeps its sandboxes apart", Strength: 2},
		{
			Axis: report.AxisKill, Statement: "commands by their descent and their mark in the environment, everything with the sandbox", Strength: 1,
			Gap: "a process that hides from both outlives its command, not the sandbox",
		},
		{Axis: report.AxisUnixSockets, Statement: "none of this machine's are in reach", Strength: 2},
	}
	net := driver.Isolation{
		Axis: report.AxisNetwork, Statement: "Daytona's policy of the organization", Strength: 1, Gap: "it may reach the internet; network = \"none\" does not",
	}
	switch {
	case c.Network == "none":
		net = driver.Isolation{Axis: report.AxisNetwork, Statement: "Daytona blocks what goes out", Strength: 3}
	case len(c.NetworkAllow) > 0:
		net = driver.Isolation{Axis: report.AxisNetwork, Statement: "Daytona lets through: " + strings.Join(c.NetworkAllow, ", "), Strength: 2}
	}
	return append(all, net)
}

// Refused says which attribute the vendor did not like.
func Refused(err error) error {
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Code != errs.InvalidArgument && e.Code != errs.ConfigInvalid {
		return errs.Wrap(errs.CreateFailed, "create a sandbox", err)
	}
	c := *e
	c.Code = errs.ConfigInvalid
	said := strings.ToLower(e.Error())
	for _, a := range []string{"snapshot", "volume", "mount", "gpu", "linked", "target", "region", "user"} {
		if strings.Contains(said, a) {
			attribute := map[string]string{"volume": "volumes", "mount": "volumes", "linked": "linked_sandbox", "region": "target"}[a]
			c.Path = []errs.PathStep{{Attribute: cmp.Or(attribute, a)}}
			break
		}
	}
	return &c
}
