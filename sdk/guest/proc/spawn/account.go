// SPDX-License-Identifier: Apache-2.0

//go:build linux

package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/sdk/errs"
)

// Account is whom a command runs as.
type Account struct {
	Name     string
	UID, GID uint32
	Groups   []uint32
	Home     string
	Other    bool // than this program's own
}

// Credential is nil for this program's own user: then nothing needs to be changed, which it may not be allowed to.
func (a *Account) Credential() *syscall.Credential {
	if !a.Other {
		return nil
	}
	return &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups}
}

// Lookup finds a user, given as name or number, with :group or not, in the sandbox's own files.
func Lookup(etc, who string) (*Account, error) {
	a := &Account{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if who == "" {
		return a, nil
	}
	name, group, grouped := strings.Cut(who, ":")
	number, nerr := strconv.ParseUint(name, 10, 32)
	found := false
	err := eachLine(path.Join(etc, "passwd"), 7, func(f []string) bool {
		if f[0] != name && (nerr != nil || f[2] != name) {
			return true
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			return true
		}
		a.Name, a.UID, a.GID, a.Home, found = f[0], uint32(uid), uint32(gid), f[5], true
		return false
	})
	if err != nil {
		return nil, err
	}
	if !found {
		if nerr != nil {
			return nil, errs.New(errs.InvalidArgument, "the sandbox has no user %q", name).With("user", name)
		}
		a.Name, a.UID, a.GID = name, uint32(number), uint32(number)
	}
	gnumber, gerr := strconv.ParseUint(group, 10, 32)
	if grouped && gerr == nil {
		a.GID = uint32(gnumber)
	}
	gfound := !grouped || gerr == nil
	err = eachLine(path.Join(etc, "group"), 4, func(f []string) bool {
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			return true
		}
		if grouped && f[0] == group {
			a.GID, gfound = uint32(gid), true
		}
		if slices.Contains(strings.Split(f[3], ","), a.Name) {
			a.Groups = append(a.Groups, uint32(gid))
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	if !gfound {
		return nil, errs.New(errs.InvalidArgument, "the sandbox has no group %q", group).With("group", group)
	}
	a.Other = a.UID != uint32(os.Getuid()) || a.GID != uint32(os.Getgid())
	return a, nil
}

// eachLine gives the lines of a file of colon-separated fields, until do says to stop. A missing file has none.
func eachLine(file string, fields int, do func([]string) bool) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.Wrap(errs.PermissionDenied, "process.start", fmt.Errorf("look up the user: %w", err))
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if l := strings.Split(s.Text(), ":"); len(l) >= fields && !do(l) {
			return nil
		}
	}
	return nil
}
