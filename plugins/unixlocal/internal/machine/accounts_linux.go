// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
)

var validName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

// NeedsUsers says whether commands have to run as more than one user.
func NeedsUsers(a driver.Accounts, runAs string) bool {
	return len(a.Users) > 0 || len(a.Groups) > 0 || runAs != "" && runAs != User
}

// CheckAccounts refuses names that an account file could not hold.
func CheckAccounts(a driver.Accounts) error {
	names := slices.Clone(a.Users)
	for _, g := range a.Groups {
		names = append(append(names, g.Name), g.Users...)
	}
	for _, n := range names {
		if !validName.MatchString(n) {
			return errs.New(errs.InvalidArgument, "%q is no name for a user or group", n).
				WithHint("use small letters, digits, - and _, beginning with a letter")
		}
	}
	return nil
}

// accounts lets the guest start commands as other users when that is needed.
func (w *Want) accounts(p *report.Plan, cfg *guest.Config) {
	if !NeedsUsers(w.Accounts, w.RunAs) || !p.Namespaces.User {
		return
	}
	// The guest is the root of its own user namespace, with six capabilities that commands never get.
	p.Identity = confine.Identity{RunAs: true}
	cfg.User = User
	if w.RunAs != "" {
		cfg.User = w.RunAs
	}
}

// etc makes the account files and the names of the private root.
func (w *Want) etc() []rootfs.File {
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	var passwd, group strings.Builder
	fmt.Fprintf(&passwd, "root:x:0:0:root:/root:%s\n%s:x:%d:%d::/home/%s:%s\n", shell, User, confine.Inside, confine.Inside, User, shell)
	fmt.Fprintf(&group, "root:x:0:\n%s:x:%d:\n", User, confine.Inside)
	// Users first, each with a group of the same name and number; then groups. In the order of the names, so that the
	// same accounts have the same numbers everywhere.
	id := confine.Inside + 1
	users := distinctNames(w.Accounts)
	for _, u := range users {
		fmt.Fprintf(&passwd, "%s:x:%d:%d::/home/%s:%s\n", u, id, id, User, shell)
		fmt.Fprintf(&group, "%s:x:%d:%s\n", u, id, strings.Join(members(w.Accounts, u), ","))
		id++
	}
	groups := make([]string, 0, len(w.Accounts.Groups))
	for _, g := range w.Accounts.Groups {
		if !slices.Contains(users, g.Name) && g.Name != User && g.Name != "root" {
			groups = append(groups, g.Name)
		}
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		fmt.Fprintf(&group, "%s:x:%d:%s\n", g, id, strings.Join(members(w.Accounts, g), ","))
		id++
	}
	passwd.WriteString("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	group.WriteString("tty:x:5:\nnogroup:x:65534:\n")
	return []rootfs.File{
		{Path: "/etc/passwd", Data: passwd.String()},
		{Path: "/etc/group", Data: group.String()},
		{Path: "/etc/hosts", Data: "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"},
		{Path: "/etc/hostname", Data: "sandbox\n"},
	}
}

func distinctNames(a driver.Accounts) []string {
	names := slices.Clone(a.Users)
	for _, g := range a.Groups {
		names = append(names, g.Users...)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == User || n == "root" || n == "nobody" })
}

func members(a driver.Accounts, group string) []string {
	var list []string
	for _, g := range a.Groups {
		if g.Name == group {
			list = append(list, g.Users...)
		}
	}
	return list
}

// HaveAccounts says what of the accounts that are wanted a sandbox was not made with.
func HaveAccounts(have, want driver.Accounts) error {
	if err := CheckAccounts(want); err != nil {
		return err
	}
	names := append(distinctNames(have), User, "root")
	users := len(names)
	for _, g := range have.Groups {
		names = append(names, g.Name)
	}
	var missing []string
	for _, u := range distinctNames(want) {
		if !slices.Contains(names[:users], u) {
			missing = append(missing, u)
		}
	}
	for _, g := range want.Groups {
		if !slices.Contains(names, g.Name) {
			missing = append(missing, g.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errs.New(errs.Unsupported, "%s: users and groups are made with the sandbox and not later", strings.Join(missing, ", ")).
		With("feature", string(driver.AcctNative)).WithHint("declare them in the manifest")
}
