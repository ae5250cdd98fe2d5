// SPDX-License-Identifier: Apache-2.0

// Package accounts reads the user and group files of a sandbox. A static program has no name service; the files are
// what counts inside a sandbox anyway. They are read again when they changed.
package accounts

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// User is one account.
type User struct {
	Name     string
	UID, GID uint32
	Groups   []uint32 // supplementary
	Home     string
	Shell    string
}

// DB answers from a passwd and a group file.
type DB struct {
	passwd, group string

	mu      sync.Mutex
	stamps  [2]stamp
	checked time.Time
	changes uint64 // made by Ensure when the files were read
	users   map[string]*User
	names   map[uint32]string
	groups  map[string]uint32
	gnames  map[uint32]string
}

type stamp struct {
	mod  time.Time
	size int64
}

// trust is how long an answer may be old.
const trust = 50 * time.Millisecond

// New makes a DB. Empty paths mean /etc/passwd and /etc/group.
func New(passwd, group string) *DB {
	if passwd == "" {
		passwd = "/etc/passwd"
	}
	if group == "" {
		group = "/etc/group"
	}
	return &DB{passwd: passwd, group: group}
}

// User finds a user by name or number, with :group or not; a colon alone means the user's own group. A number without an
// account is taken as it is, with the group of that number.
func (d *DB) User(name string) (User, error) {
	if user, group, ok := strings.Cut(name, ":"); ok {
		u, err := d.User(user)
		if err != nil || group == "" {
			return u, err
		}
		u.GID, err = d.Group(group)
		return u, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.loadLocked(); err != nil {
		return User{}, err
	}
	if u, ok := d.users[name]; ok {
		return clone(u), nil
	}
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || n == 1<<32-1 {
		return User{}, errs.New(errs.InvalidArgument, "there is no user %q in %s", name, d.passwd)
	}
	if u, ok := d.users[d.names[uint32(n)]]; ok && u.UID == uint32(n) {
		return clone(u), nil
	}
	return User{Name: name, UID: uint32(n), GID: uint32(n), Home: "/"}, nil
}

func clone(u *User) User {
	c := *u
	c.Groups = slices.Clone(u.Groups)
	return c
}

// Group finds a group by name or number.
func (d *DB) Group(name string) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.loadLocked(); err != nil {
		return 0, err
	}
	if g, ok := d.groups[name]; ok {
		return g, nil
	}
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, errs.New(errs.InvalidArgument, "there is no group %q in %s", name, d.group)
	}
	return uint32(n), nil
}

// UserName gives the name of a user, or the number when it has none.
func (d *DB) UserName(uid uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.loadLocked()
	if n, ok := d.names[uid]; ok {
		return n
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// GroupName gives the name of a group, or the number when it has none.
func (d *DB) GroupName(gid uint32) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.loadLocked()
	if n, ok := d.gnames[gid]; ok {
		return n
	}
	return strconv.FormatUint(uint64(gid), 10)
}

func (d *DB) loadLocked() error {
	now := time.Now()
	made := changes.Load()
	if d.users != nil && now.Sub(d.checked) < trust && d.changes == made {
		return nil
	}
	d.checked, d.changes = now, made
	var stamps [2]stamp
	for i, p := range []string{d.passwd, d.group} {
		if fi, err := os.Stat(p); err == nil {
			stamps[i] = stamp{fi.ModTime(), fi.Size()}
		}
	}
	if d.users != nil && stamps == d.stamps {
		return nil
	}
	d.users, d.names = map[string]*User{}, map[uint32]string{}
	d.groups, d.gnames = map[string]uint32{}, map[uint32]string{}
	err := lines(d.passwd, func(f []string) {
		if len(f) < 4 {
			return
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if _, dup := d.users[f[0]]; dup || f[0] == "" || err1 != nil || err2 != nil {
			return
		}
		u := &User{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: "/"}
		if len(f) > 5 && f[5] != "" {
			u.Home = f[5]
		}
		if len(f) > 6 {
			u.Shell = f[6]
		}
		d.users[u.Name] = u
		if _, dup := d.names[u.UID]; !dup {
			d.names[u.UID] = u.Name
		}
	})
	if err != nil {
		return err
	}
	err = lines(d.group, func(f []string) {
		if len(f) < 3 {
			return
		}
		n, err := strconv.ParseUint(f[2], 10, 32)
		if _, dup := d.groups[f[0]]; dup || f[0] == "" || err != nil {
			return
		}
		gid := uint32(n)
		d.groups[f[0]] = gid
		if _, dup := d.gnames[gid]; !dup {
			d.gnames[gid] = f[0]
		}
		if len(f) < 4 {
			return
		}
		for m := range strings.SplitSeq(f[3], ",") {
			if u := d.users[m]; u != nil && gid != u.GID && !slices.Contains(u.Groups, gid) {
				u.Groups = append(u.Groups, gid)
			}
		}
	})
	if err != nil {
		return err
	}
	d.stamps = stamps
	return nil
}

// lines calls f with the fields of each line. A file that does not exist has none.
func lines(path string, f func([]string)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.Wrap(errs.Internal, "read accounts", err)
	}
	defer func() { _ = file.Close() }()
	sc := bufio.NewScanner(file)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if line := sc.Text(); line != "" && line[0] != '#' {
			f(strings.Split(line, ":"))
		}
	}
	if err := sc.Err(); err != nil {
		return errs.Wrap(errs.Internal, "read accounts", err)
	}
	return nil
}
