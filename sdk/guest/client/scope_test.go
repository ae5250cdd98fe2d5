// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
)

// nobody is a user that owns no process of this machine.
const nobody = 712345

// A guest confined by Landlock alone, with no namespace and no cgroup, ends everything through its signal scope, and
// neither it nor its commands can signal anything outside, of the same user.
func TestSignalScope(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become a user without processes")
	}
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	if errno != 0 || abi < 6 {
		t.Skip("needs Landlock with signal scopes (ABI 6)")
	}
	shared, err := os.MkdirTemp("", "berth-scope-") //nolint:usetesting // another user has to reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	root, socket := filepath.Join(shared, "root"), filepath.Join(shared, "s")
	os.Chmod(shared, 0o755)
	os.Mkdir(root, 0o777)
	os.Chmod(root, 0o777)
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared, "berth-guest"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	prog, err := os.Open(filepath.Join(shared, "berth-guest"))
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	lf, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer lf.Close()

	outsider := exec.Command("sleep", "100")
	outsider.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := outsider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		outsider.Process.Kill()
		outsider.Wait()
	})

	spec := confine.Spec{Identity: confine.Identity{UID: nobody, GID: nobody, Become: true}, Landlock: int(abi), Network: "host"}
	for _, p := range []string{"/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", filepath.Join(shared, "berth-guest")} {
		spec.Binds = append(spec.Binds, rootfs.Bind{Source: p, Target: p, Optional: true})
	}
	for _, p := range []string{root, "/dev/null"} {
		spec.Binds = append(spec.Binds, rootfs.Bind{Source: p, Target: p, Write: true, Device: p == "/dev/null"})
	}
	g, err := confine.Start(t.Context(), &confine.Launch{
		Program: prog, Spec: spec, Listener: lf, Stderr: os.Stderr,
		Config: guest.Config{Key: key, Root: root, Kill: guest.KillConfig{SignalScope: true}, Env: map[string]string{"PATH": os.Getenv("PATH")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill()
		<-g.Done()
	})
	c := (&running{socket: socket}).connect(t)
	out := newLines()
	go c.Run(t.Context(), sh(`kill -0 $PPID 2>/dev/null || echo no; `+stray+`sleep 100`), driver.Streams{Stdout: out})
	out.until(t, "no\n") // a command cannot signal its guest
	pid := strayPID(t, out)
	// What the guest's helper does, with a signal that harms nobody: it is in the scope, and may.
	if _, er, exit := run(t, c, sh(filepath.Join(shared, "berth-guest")+` -signal 0 $PPID`), nil); exit.Code != 0 {
		t.Errorf("the helper: %+v %s", exit, er)
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-g.Done()
	if alive(pid) {
		t.Error("a process is left")
	}
	if !alive(outsider.Process.Pid) {
		t.Error("a process outside was ended")
	}
}
