// SPDX-License-Identifier: Apache-2.0

package attach

import "testing"

func TestMounted(t *testing.T) {
	const table = `22 1 0:21 / /proc rw - proc proc rw
40 22 0:44 / /workspace/my\040data ro,nosuid,nodev - fuse.berth berth:a ro,user_id=0
41 40 0:45 / /workspace/my\040data ro,nosuid,nodev shared:3 - fuse.berth berth:a ro,user_id=0
42 22 0:46 / /workspace/other rw - fuse.rclone berth:a rw
`
	for _, tc := range []struct {
		path, name string
		want       int
	}{
		{"/workspace/my data", "berth:a", 2},
		{"/workspace/my data", "berth:b", 0},
		{"/workspace/other", "berth:a", 0}, // somebody else's
		{"/proc", "proc", 0},
	} {
		if got := mounted(table, tc.path, tc.name); got != tc.want {
			t.Errorf("%s %s: %d, want %d", tc.path, tc.name, got, tc.want)
		}
	}
}

func TestIDs(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1001:,,,:/home/agent:/bin/sh\nbroken\n"
	const group = "root:x:0:\ndevs:x:2000:agent\n"
	for _, tc := range []struct {
		user     string
		uid, gid int
		bad      bool
	}{
		{"0", 0, 0, false},
		{"agent", 1000, 1001, false},
		{"1000", 1000, 1001, false},
		{"4242", 4242, 0, false},
		{"agent:devs", 1000, 2000, false},
		{"7:8", 7, 8, false},
		{"agent:", 1000, 1001, false},
		{"ghost", 0, 0, true},
		{"agent:ghosts", 0, 0, true},
	} {
		uid, gid, err := passwdIDs(tc.user, passwd, group)
		if (err != nil) != tc.bad || uid != tc.uid || gid != tc.gid {
			t.Errorf("%s: %d %d %v", tc.user, uid, gid, err)
		}
	}
	if got, err := mapID("         0     100000      65536\n", 1000); err != nil || got != 101000 {
		t.Errorf("mapped to %d, %v", got, err)
	}
	if _, err := mapID("0 100000 10\n", 10); err == nil {
		t.Error("an id that is not mapped")
	}
}
