// SPDX-License-Identifier: Apache-2.0

// Package mounts holds the checks of the group mounts: storage, by kind and strategy.
package mounts

import (
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
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

// claimed attaches the storage that the caller of the suite has, which has to be of every kind and strategy that is claimed.
func claimed(c *kit.C) {
	want := suite.Mounts(c.Main().Desc)
	if len(want) == 0 {
		c.Skipf("the driver claims no storage")
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(f driver.Feature) bool {
		return slices.ContainsFunc(c.Options().Storage, func(s suite.Storage) bool { return featureOf(s) == f })
	})
	if len(missing) > 0 {
		c.Skipf("Options.Storage has nothing to attach, which would prove %v", missing)
	}
	for _, s := range c.Options().Storage {
		if slices.Contains(want, featureOf(s)) {
			attach(c, s)
		}
	}
}

func featureOf(s suite.Storage) driver.Feature {
	return driver.Feature("mount." + s.Spec.Kind + "." + s.Spec.Strategy)
}

// attach makes sandboxes with storage: what is in it is there, what is written stays there, and whoever may only read
// cannot write.
func attach(c *kit.C, s suite.Storage) {
	what := featureOf(s)
	with := func(readOnly bool) *rpc.Sandbox {
		return c.Fresh(func(r *driver.CreateRequest) {
			spec := s.Spec
			spec.ID, spec.Path, spec.ReadOnly = c.Word("m"), r.Workspace.Root+"/mounted", readOnly
			r.Mounts = []driver.MountSpec{spec}
		})
	}
	word := c.Word("new")
	if !slices.ContainsFunc(c.Main().Desc.Mounts, func(m driver.MountSupport) bool { return m.Kind == s.Spec.Kind && m.ReadOnlyOnly }) {
		box := with(false)
		c.Same(string(what)+": a file, by a command", []byte(c.Sh(box, "cat mounted/"+s.File)), []byte(s.Content))
		c.Sh(box, "echo written > mounted/"+word)
		c.OK(box.Destroy(c.Ctx()), "destroy")
		again := with(false)
		c.Same(string(what)+": what a sandbox of before wrote", kit.Get(c, again, "mounted/"+word), []byte("written\n"))
		c.Sh(again, "rm mounted/"+word)
		env := c.Sh(again, "env")
		for name, value := range s.Spec.Credentials {
			if strings.Contains(env, value) {
				c.Errorf("%s: the credential %s is in the environment of commands", what, name)
			}
		}
	}
	box := with(true)
	c.Same(string(what)+": a file, read", kit.Get(c, box, "mounted/"+s.File), []byte(s.Content))
	if out := c.Exec(box, "sh", "-c", "echo x > mounted/"+word); out.Exit.Code == 0 {
		c.Errorf("%s: a command writes what may only be read", what)
	}
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
