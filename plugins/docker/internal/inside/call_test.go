// SPDX-License-Identifier: Apache-2.0

//go:build linux

package inside

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
)

// knocked answers a knock: it calls at the socket that is named.
func knocked(t *testing.T, std net.Conn, dir string) net.Conn {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := std.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(buf[:n], []byte("call-"))
	if at < 0 {
		t.Fatalf("no name in %q", buf[:n])
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	caller, err := net.Dial("unix", filepath.Join(short(d), string(buf[at:n])))
	if err != nil {
		t.Fatal(err)
	}
	return caller
}

// Only the container's first process may call. Whoever else does is turned away, and the engine's streams go on.
func TestKnock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"first process": os.Getpid(), "another": 1} {
		t.Run(name, func(t *testing.T) {
			c := &container.InspectResponse{
				State:  &container.State{Pid: pid},
				Mounts: []container.MountPoint{{Type: mount.TypeBind, Source: dir, Destination: Dir}},
			}
			std, other := net.Pipe()
			defer std.Close()
			got := make(chan net.Conn, 1)
			var k Calls
			go func() { got <- k.Knock(t.Context(), c, std) }()
			caller := knocked(t, other, dir)
			defer caller.Close()
			if pid == os.Getpid() {
				conn := <-got
				if conn == nil {
					t.Fatal("it was turned away")
				}
				defer conn.Close()
				go other.Write([]byte("still"))
				b := make([]byte, 5)
				if _, err := io.ReadFull(std, b); err != nil || string(b) != "still" {
					t.Errorf("the engine's stream: %q, %v", b, err)
				}
			} else {
				if _, err := caller.Read(make([]byte, 1)); err == nil {
					t.Error("it was served")
				}
				_ = other.Close() // the container ends
				if conn := <-got; conn != nil {
					t.Error("it was taken for the first process")
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}
