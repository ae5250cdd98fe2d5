// SPDX-License-Identifier: Apache-2.0

package accounts_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/accounts"
)

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(passwd, "# comment\nroot:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/bash\nbroken\nbad:x:x:y:::\nlast:x:7:8::")
	write(group, "root:x:0:\nann:x:1000:\ndev:x:50:ann,root\nops:x:51:ann")
	db := accounts.New(passwd, group)

	u, err := db.User("ann")
	if err != nil {
		t.Fatal(err)
	}
	want := accounts.User{Name: "ann", UID: 1000, GID: 1000, Groups: []uint32{50, 51}, Home: "/home/ann", Shell: "/bin/bash"}
	if d := cmp.Diff(want, u); d != "" {
		t.Error(d)
	}
	if byNumber, err := db.User("1000"); err != nil || cmp.Diff(want, byNumber) != "" {
		t.Errorf("by number: %v, %v", byNumber, err)
	}
	if u, err := db.User("77"); err != nil || u.UID != 77 || u.GID != 77 {
		t.Errorf("number without an account: %v, %v", u, err)
	}
	for _, name := range []string{"bad", "broken", "nobody-here", "", "-1", "4294967295"} {
		if u, err := db.User(name); !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("user %q: %v, %v", name, u, err)
		}
	}
	if g, err := db.Group("dev"); err != nil || g != 50 {
		t.Errorf("group dev: %v, %v", g, err)
	}
	if _, err := db.Group("nope"); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("unknown group: %v", err)
	}
	got := []string{db.UserName(1000), db.UserName(9), db.GroupName(51), db.GroupName(9)}
	if d := cmp.Diff([]string{"ann", "9", "ops", "9"}, got); d != "" {
		t.Error(d)
	}
}

func TestMissingFiles(t *testing.T) {
	db := accounts.New(filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "none"))
	if u, err := db.User("5"); err != nil || u.UID != 5 {
		t.Errorf("%v, %v", u, err)
	}
	if _, err := db.User("root"); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("%v", err)
	}
}

func TestEnsure(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("account files are root's")
	}
	root := t.TempDir()
	want := driver.Accounts{Users: []string{"ada"}, Groups: []driver.Group{{Name: "team", Users: []string{"ada", "bob"}}}}
	for range 2 { // idempotent, and from nothing
		if err := accounts.Ensure(root, want); err != nil {
			t.Fatal(err)
		}
	}
	db := accounts.New(filepath.Join(root, "etc/passwd"), filepath.Join(root, "etc/group"))
	ada, err := db.User("ada")
	if err != nil {
		t.Fatal(err)
	}
	team, err := db.Group("team")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(accounts.User{Name: "ada", UID: 1000, GID: 1000, Groups: []uint32{team}, Home: "/home/ada", Shell: "/sbin/nologin"}, ada); d != "" {
		t.Error(d)
	}
	if bob, err := db.User("bob"); err != nil || bob.UID != 1001 || !slices.Contains(bob.Groups, team) {
		t.Errorf("%+v, %v", bob, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(root, "home/ada"), &st); err != nil || st.Uid != 1000 || st.Gid != 1000 {
		t.Errorf("%+v, %v", st, err)
	}
	if u, err := db.User("ada:team"); err != nil || u.GID != team {
		t.Errorf("%+v, %v", u, err)
	}
	if u, err := db.User("ada:"); err != nil || u.GID != 1000 {
		t.Errorf("%+v, %v", u, err)
	}
	for _, name := range []string{"", "Ada", "a:b", "a\nb", "0day"} {
		if err := accounts.Ensure(root, driver.Accounts{Users: []string{name}}); !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}

	// What is there stays, comments and accounts of others too.
	other := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(other, "etc"), 0o755),
		os.WriteFile(filepath.Join(other, "etc/passwd"), []byte("# kept\nroot:x:0:0:root:/root:/bin/sh\nada:x:7:8::/srv:/bin/sh"), 0o640),
		os.WriteFile(filepath.Join(other, "etc/shadow"), []byte("root:*:::::::\n"), 0o600),
		accounts.Ensure(other, want),
	); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(other, "etc/passwd"))
	if err != nil || string(b) != "# kept\nroot:x:0:0:root:/root:/bin/sh\nada:x:7:8::/srv:/bin/sh\nbob:x:1000:1000::/home/bob:/sbin/nologin\n" {
		t.Errorf("%q, %v", b, err)
	}
	if st, err := os.Stat(filepath.Join(other, "etc/passwd")); err != nil || st.Mode().Perm() != 0o640 {
		t.Error(st.Mode(), err)
	}
	if b, err := os.ReadFile(filepath.Join(other, "etc/shadow")); err != nil || !strings.Contains(string(b), "\nbob:!:") {
		t.Errorf("%q, %v", b, err)
	}
}
