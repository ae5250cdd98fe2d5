// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
)

// OwnerMap gives a user namespace in which the owner on disk is the user of the host that a sandbox's commands are:
// what a mount needs so that a granted directory belongs to the commands. Only for root.
func OwnerMap(program *os.File, uid, gid uint32, host int) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("map owners: %w", err)
	}
	defer r.Close()
	defer w.Close()
	// The process only holds the namespace: it waits for a configuration that never comes.
	cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", program.Fd()), guest.Args(3)...) //nolint:noctx // it ends by itself
	cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{}, "/", []*os.File{r}
	high, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, 16)
	if err != nil {
		return nil, fmt.Errorf("map owners: %w", err)
	}
	defer unix.Close(high)
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", high)
	// Where the program then runs as nobody, which it does not mind.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(uid), HostID: host, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(gid), HostID: host, Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("map owners: %w", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its end is the point
	}()
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		return nil, fmt.Errorf("map owners: %w", err)
	}
	return f, nil
}

// Remove removes directories that belong to mapped users, from inside the same map.
func Remove(ctx context.Context, program *os.File, ids IDMap, dirs ...string) error {
	spec := Spec{Remove: true, Namespaces: Namespaces{User: true}}
	for _, d := range dirs {
		spec.Binds = append(spec.Binds, rootfs.Bind{Source: d})
	}
	g, err := Start(ctx, &Launch{Program: program, Spec: spec, IDs: ids, Config: guest.Config{Key: make([]byte, 16)}})
	if err != nil {
		return err
	}
	<-g.Done()
	return nil
}
