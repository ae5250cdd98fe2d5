// SPDX-License-Identifier: Apache-2.0

// Package mounts holds the checks of the group mounts: storage, by kind and strategy.
package mounts

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Group is the group mounts. What is claimed of storage is a feature mount.KIND.STRATEGY.
func Group() suite.Group {
	return suite.Group{
		Name: "mounts", Doc: "storage is attached as it was claimed",
		Checks: []suite.Check{
			{Name: "claimed", Claims: suite.Mounts, Func: claimed},
			{Name: "unknown-kind", Func: unknownKind},
			{Name: "unknown-mount", Func: unknownMount},
		},
	}
}

// claimed has no storage to attach yet, so what a driver claims of it stays unproven.
func claimed(c *kit.C) {
	if fs := suite.Mounts(c.Main().Desc); len(fs) > 0 {
		c.Skipf("the suite has no storage to attach, which would prove %v", fs)
	}
	c.Skipf("the driver claims no storage")
}

func unknownKind(c *kit.C) {
	_, err := c.Box().Mount(c.Ctx(), driver.MountSpec{ID: c.Word("m"), Kind: "no-such-kind", Path: c.Options().Workspace + "/mounted"})
	c.Code(err, "mount storage of a kind that nobody knows", errs.Unsupported, errs.InvalidArgument, errs.MountConfigInvalid)
	kit.Absent(c, c.Box(), "mounted")
}

func unknownMount(c *kit.C) {
	codes := []errs.Code{errs.Unsupported, errs.MountFailed, errs.InvalidArgument}
	c.Code(c.Box().Unmount(c.Ctx(), c.Word("none")), "unmount what is not mounted", codes...)
	c.Code(c.Box().ProbeMount(c.Ctx(), c.Word("none")), "probe what is not mounted", codes...)
	_, err := c.Box().RefreshCredentials(c.Ctx(), c.Word("none"), nil)
	c.Code(err, "refresh the credentials of what is not mounted", codes...)
}
