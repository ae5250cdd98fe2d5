// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
)

// killTime bounds the killing of one group.
const killTime = 10 * time.Second

// PIDs reads a cgroup's list of processes, without this program.
func PIDs(file string) []int {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Groups makes a cgroup (v2) for each command.
type Groups struct {
	dir    string
	Broken atomic.Bool // processes cannot be started in one
}

// OpenGroups makes sure that groups can be made in dir.
func OpenGroups(dir string) (*Groups, error) {
	g := &Groups{dir: dir}
	probe, fd, err := g.Make(0)
	if err != nil {
		return nil, fmt.Errorf("make a cgroup for a command: %w", err)
	}
	unix.Close(fd)
	defer g.Remove(probe)
	if _, err := os.Stat(filepath.Join(dir, probe, "cgroup.kill")); err != nil {
		return nil, fmt.Errorf("use %s to end commands: %w", dir, err)
	}
	return g, nil
}

// Make makes the group of a mark and opens its directory.
func (g *Groups) Make(mark uint64) (name string, fd int, err error) {
	name = "cmd-" + strconv.FormatUint(mark&lower, 36)
	dir := filepath.Join(g.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", 0, err
	}
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		os.Remove(dir)
		return "", 0, err
	}
	return name, fd, nil
}

// Remove removes the group of a command of which nothing is left; else it stays until everything is ended.
func (g *Groups) Remove(name string) {
	if name != "" {
		os.Remove(filepath.Join(g.dir, name)) // not empty: a background process is in it
	}
}

// Members are the processes in a group.
func (g *Groups) Members(name string) []int {
	return PIDs(filepath.Join(g.dir, name, "cgroup.procs"))
}

// Kill kills a group and returns when nothing is left in it.
func (g *Groups) Kill(name string) error {
	if err := os.WriteFile(filepath.Join(g.dir, name, "cgroup.kill"), []byte("1"), 0); err != nil {
		return errs.Wrap(errs.StopFailed, "process.kill", err)
	}
	deadline := time.Now().Add(killTime)
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(g.dir, name, "cgroup.events"))
		if err != nil || strings.Contains(string(b), "populated 0") {
			return nil //nolint:nilerr // a group that is gone is empty
		}
		if time.Now().After(deadline) {
			return errs.New(errs.StopFailed, "processes did not end when killed")
		}
		time.Sleep(wait)
	}
}

// KillEverything kills every group.
func (g *Groups) KillEverything() error {
	names, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.IsDir() && strings.HasPrefix(n.Name(), "cmd-") {
			if err := g.Kill(n.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
