// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"

	"github.com/berth-dev/berth/sdk/driver"
)

// Run runs a command. Only root can run it as somebody else.
func (b *Box) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	if cmd.User != "" {
		if _, err := b.live(ctx); err != nil { // who the user is, is known from then on
			return driver.Exit{}, err
		}
		release := b.hold()
		who := b.facts
		release()
		if who.UID != "0" && cmd.User != who.User && cmd.User != who.UID {
			return driver.Exit{}, b.onlyRoot("run a command as " + cmd.User)
		}
	}
	return b.Calls.Run(ctx, cmd, streams)
}

// EnsureAccounts makes users and groups.
func (b *Box) EnsureAccounts(ctx context.Context, a driver.Accounts) error {
	if _, err := b.live(ctx); err != nil {
		return err
	}
	defer b.use()()
	defer b.hold()()
	return b.ensureAccounts(ctx, a)
}

// ensureAccounts does it. Preconditions: the gate is held, and there is a guest.
func (b *Box) ensureAccounts(ctx context.Context, a driver.Accounts) error {
	if b.facts.UID != "0" {
		return b.onlyRoot("make users")
	}
	return b.guest.EnsureAccounts(ctx, a)
}

// today gives the environment, and whether each command has to be given it.
func (b *Box) today() (env, secret map[string]string, each bool) {
	defer b.hold()()
	return b.env, b.secretEnv, b.mergeEnv
}
