// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// New accounts get numbers from the range that distributions leave to people.
const (
	firstID = 1000
	lastID  = 59999
)

var (
	ensuring sync.Mutex    // held by who changes account files
	changes  atomic.Uint64 // made by this program
)

// Ensure makes what is missing of users and groups, in the account files below root. It needs no tool there. A user gets
// a group of the same name and a directory below /home. What exists stays as it is, but for the members of groups.
func Ensure(root string, want driver.Accounts) error {
	if len(want.Users)+len(want.Groups) == 0 {
		return nil
	}
	if err := CheckNames(want); err != nil {
		return err
	}
	ensuring.Lock()
	defer ensuring.Unlock()
	etc := filepath.Join(root, "etc")
	passwd, err := readTable(filepath.Join(etc, "passwd"), 7, "root:x:0:0:root:/root:/bin/sh")
	if err != nil {
		return err
	}
	group, err := readTable(filepath.Join(etc, "group"), 4, "root:x:0:")
	if err != nil {
		return err
	}
	var fresh []string
	for _, u := range names(want) {
		if passwd.find(u) != nil {
			continue
		}
		id := freeID(passwd, group)
		g := group.find(u)
		if g == nil {
			g = group.add(u, "x", strconv.Itoa(id), "")
		}
		passwd.add(u, "x", strconv.Itoa(id), g[2], "", "/home/"+u, shell(root))
		fresh = append(fresh, u)
	}
	for _, wanted := range want.Groups {
		g := group.find(wanted.Name)
		if g == nil {
			g = group.add(wanted.Name, "x", strconv.Itoa(freeID(passwd, group)), "")
		}
		members := strings.FieldsFunc(g[3], func(r rune) bool { return r == ',' })
		for _, u := range wanted.Users {
			if !slices.Contains(members, u) {
				members = append(members, u)
				group.changed = true
			}
		}
		g[3] = strings.Join(members, ",")
	}
	err = errors.Join(passwd.save(), group.save())
	changes.Add(1)
	if err != nil {
		return err
	}
	for _, u := range fresh {
		p := passwd.find(u)
		if err := home(filepath.Join(root, p[5]), p[2], p[3]); err != nil {
			return err
		}
		if err := shadow(filepath.Join(etc, "shadow"), u); err != nil {
			return err
		}
	}
	return nil
}

// CheckNames refuses names that an account file could not hold.
func CheckNames(a driver.Accounts) error {
	all := names(a)
	for _, g := range a.Groups {
		all = append(all, g.Name)
	}
	for _, n := range all {
		if !validName(n) {
			return errs.New(errs.InvalidArgument, "%q is no name for a user or group", n).
				WithHint("use small letters, digits, . - and _, beginning with a letter")
		}
	}
	return nil
}

func validName(n string) bool {
	const letters, more = "abcdefghijklmnopqrstuvwxyz_", "0123456789.-"
	return n != "" && len(n) <= 32 && strings.Contains(letters, n[:1]) &&
		!strings.ContainsFunc(n, func(r rune) bool { return !strings.ContainsRune(letters+more, r) })
}

// names are all users, those of groups too, in order and once each.
func names(a driver.Accounts) []string {
	all := slices.Clone(a.Users)
	for _, g := range a.Groups {
		all = append(all, g.Users...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func shell(root string) string {
	for _, s := range []string{"/bin/bash", "/bin/sh"} {
		if _, err := os.Stat(filepath.Join(root, s)); err == nil {
			return s
		}
	}
	return "/sbin/nologin"
}

// accountFile is a passwd or group file, line by line.
type accountFile struct {
	path    string
	lines   [][]string // the fields; those of a line that is no account are one
	fields  int
	mode    fs.FileMode
	changed bool
}

// readTable reads an account file; a missing one begins with first.
func readTable(path string, fields int, first string) (*accountFile, error) {
	t := &accountFile{path: path, fields: fields, mode: 0o644}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b, t.changed = []byte(first), true
	case err != nil:
		return nil, refused("read", path, err)
	default:
		if st, err := os.Stat(path); err == nil {
			t.mode = st.Mode().Perm()
		}
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		f := strings.Split(line, ":")
		if len(f) < fields || strings.HasPrefix(line, "#") {
			f = []string{line}
		}
		t.lines = append(t.lines, f)
	}
	return t, nil
}

func (t *accountFile) find(name string) []string {
	for _, f := range t.lines {
		if len(f) >= t.fields && f[0] == name {
			return f
		}
	}
	return nil
}

func (t *accountFile) add(fields ...string) []string {
	t.lines = append(t.lines, fields)
	t.changed = true
	return fields
}

// freeID is a number that is neither a user nor a group.
func freeID(tables ...*accountFile) int {
	taken := map[string]bool{}
	for _, t := range tables {
		for _, f := range t.lines {
			if len(f) >= t.fields {
				taken[f[2]] = true
			}
		}
	}
	id := firstID
	for id < lastID && taken[strconv.Itoa(id)] {
		id++
	}
	return id
}

func (t *accountFile) save() error {
	if !t.changed {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return refused("write", t.path, err)
	}
	var b strings.Builder
	for _, f := range t.lines {
		b.WriteString(strings.Join(f, ":") + "\n")
	}
	tmp := t.path + ".berth"
	err := os.WriteFile(tmp, []byte(b.String()), t.mode)
	if err == nil {
		err = os.Rename(tmp, t.path)
	}
	if err != nil {
		_ = os.Remove(tmp) // it may not be there
		if errors.Is(err, syscall.EBUSY) {
			// The file itself is mounted.
			err = os.WriteFile(t.path, []byte(b.String()), t.mode)
		}
	}
	return refused("write", t.path, err)
}

// home makes a user's directory; one that exists stays as it is.
func home(dir, uid, gid string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return refused("make", dir, err)
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		u, err1 := strconv.Atoi(uid)
		g, err2 := strconv.Atoi(gid)
		err = errors.Join(err1, err2, os.Chown(dir, u, g))
	}
	return refused("make", dir, err)
}

// shadow locks the password of a new account, where passwords are kept: programs that switch users look there.
func shadow(path, user string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return refused("write", path, err)
	}
	_, err = fmt.Fprintf(f, "%s:!:%d:0:99999:7:::\n", user, time.Now().Unix()/int64((24*time.Hour).Seconds()))
	return refused("write", path, errors.Join(err, f.Close()))
}

func refused(what, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EROFS):
		return errs.New(errs.ReadOnly, "users and groups cannot be made: %s is on a read-only file system", path).
			WithHint("give the sandbox a writable root, or use users that the image has")
	case errors.Is(err, fs.ErrPermission):
		return errs.New(errs.PermissionDenied, "users and groups cannot be made: %s may not be changed by user %d", path, os.Getuid()).
			WithHint("let the sandbox begin as root, or use users that the image has")
	}
	return errs.Wrap(errs.Internal, what+" "+path, err)
}
