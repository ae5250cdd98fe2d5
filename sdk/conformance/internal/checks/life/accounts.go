// SPDX-License-Identifier: Apache-2.0

package life

import (
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func Accounts() suite.Group {
	native := kit.Needs(driver.AcctNative)
	return suite.Group{
		Name: "accounts", Doc: "users and groups that were asked for exist",
		Checks: []suite.Check{
			{Name: "at-create", Needs: native, Tools: []string{"id"}, Func: accountsAtCreate},
			{Name: "again", Needs: native, Func: accountsAgain},
			{Name: "own-files", Needs: kit.Needs(driver.AcctNative, driver.ProcUser), Proves: native, Tools: []string{"id"}, Func: accountsOwnFiles},
			{Name: "names-that-are-none", Needs: native, Func: accountsNonsense},
		},
	}
}

var wanted = driver.Accounts{Users: []string{"berthone", "berthtwo"}, Groups: []driver.Group{{Name: "bertheam", Users: []string{"berthone", "berthtwo"}}}}

// withAccounts makes a sandbox with users of its own, or skips the check where this machine cannot have any.
func withAccounts(c *kit.C) driver.Sandbox {
	req := c.Request()
	req.Accounts = wanted
	box, err := c.Main().Create(c.Ctx(), req)
	if code := errs.CodeOf(err); code == errs.Unsupported || code == errs.IsolationMissing {
		c.Skipf("users cannot be made here: %v", err)
	}
	c.OK(err, "create with users")
	c.Destroyed(box)
	return box
}

func accountsAtCreate(c *kit.C) {
	box := withAccounts(c)
	out := c.Command(box, &driver.Command{Argv: []string{"id", "-un"}, User: "berthtwo"}, nil)
	if got := strings.TrimSpace(string(out.Stdout)); got != "berthtwo" {
		c.Errorf("a command for a user that was made at create ran as %q", got)
	}
}

func accountsAgain(c *kit.C) {
	box := withAccounts(c)
	keeper := box.(driver.AccountKeeper) //nolint:errcheck // the client always is one
	for range c.Options().Repeat {
		c.OK(keeper.EnsureAccounts(c.Ctx(), wanted), "ensure users that are there")
	}
}

func accountsOwnFiles(c *kit.C) {
	box := withAccounts(c)
	out := c.Command(box, &driver.Command{Argv: []string{"sh", "-c", "echo mine > /tmp/mine && cat /tmp/mine"}, User: "berthone"}, nil)
	c.Same("what a user wrote and read", out.Stdout, []byte("mine\n"))
}

func accountsNonsense(c *kit.C) {
	req := c.Request()
	req.Accounts.Users = []string{"no:such\nname"}
	box, err := c.Main().Create(c.Ctx(), req)
	if err == nil {
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
	c.Code(err, "create with a user whose name is none", errs.InvalidArgument, errs.ConfigInvalid, errs.Unsupported)
}
