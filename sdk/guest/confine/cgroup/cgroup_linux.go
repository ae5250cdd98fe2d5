// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// family is the group below which those of all sandboxes are.
const family = "berth"

// Versions of the hierarchy in which a controller is.
const (
	V1 = "cgroup v1"
	V2 = "cgroup v2"
)

// Limits bound the commands of a sandbox; zero = no limit.
type Limits struct {
	Processes   uint32
	MemoryBytes uint64
	CPUs        float64
}

// Tree is where this process may make groups.
type Tree struct {
	v1     map[string]string // controller to the directory of this process's group
	v2     string            // the same in the unified hierarchy; empty = none
	v2Ctrl []string          // controllers that can be given to groups there
}

// Open finds where this process may make groups, by making one. A machine without any is no error.
func Open() (*Tree, error) {
	own, err := ownGroups()
	if err != nil {
		return nil, err
	}
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	t := &Tree{v1: map[string]string{}}
	for controller, m := range mounts {
		path, ok := own[controller]
		if !ok {
			continue
		}
		dir := filepath.Join(m.point, strings.TrimPrefix(path, m.root))
		if controller == "" {
			t.openV2(dir)
			continue
		}
		if slices.Contains([]string{"pids", "memory", "cpu", "freezer"}, controller) && prepare(filepath.Join(dir, family)) == nil {
			t.v1[controller] = filepath.Join(dir, family)
		}
	}
	return t, nil
}

func (t *Tree) openV2(own string) {
	dir := filepath.Join(own, family)
	if prepare(dir) != nil {
		return
	}
	t.v2 = dir
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for c := range strings.FieldsSeq(string(b)) {
		if !slices.Contains([]string{"pids", "memory", "cpu"}, c) {
			continue
		}
		if os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0) == nil {
			t.v2Ctrl = append(t.v2Ctrl, c)
		}
	}
}

// prepare makes the family's group and sees whether groups can be made in it.
func prepare(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	trial := filepath.Join(dir, "trial-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(trial, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Remove(trial)
}

type mount struct{ root, point string }

// mountPoints finds the hierarchies: by controller, and "" for the unified one.
func mountPoints() (map[string]mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close()
	found := map[string]mount{}
	for s := bufio.NewScanner(f); s.Scan(); {
		left, right, ok := strings.Cut(s.Text(), " - ")
		fields, kind := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{root: fields[3], point: fields[4]}
		switch kind[0] {
		case "cgroup2":
			found[""] = m
		case "cgroup":
			for o := range strings.SplitSeq(kind[2], ",") {
				found[o] = m
			}
		}
	}
	return found, nil
}

// ownGroups gives this process's group in each hierarchy.
func ownGroups() (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	own := map[string]string{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			own[c] = parts[2]
		}
	}
	return own, nil
}

// Can says which kind of group limits a controller (pids, memory, cpu), or "" when none does.
func (t *Tree) Can(controller string) string {
	switch {
	case t.v1[controller] != "":
		return V1
	case slices.Contains(t.v2Ctrl, controller):
		return V2
	}
	return ""
}

// CanKill says what ends all processes of a group at once: "cgroup.kill", "freezer" or "".
func (t *Tree) CanKill() string {
	switch {
	case t.v2 != "" && exists(filepath.Join(t.v2, "cgroup.kill")):
		return "cgroup.kill"
	case t.v1["freezer"] != "":
		return "freezer"
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Group is the groups of one sandbox.
type Group struct {
	guest []string // v1 groups for the guest
	work  []string // v1 groups for the commands
	v2    string
	oom   string
}

// New makes the groups of a sandbox. kill asks for a group to kill by, where nothing else would end everything. With no
// limit and no kill nothing is made.
func (t *Tree) New(name string, l Limits, kill bool) (g *Group, err error) {
	g = &Group{}
	defer func() {
		if err != nil {
			_ = g.Remove() // the first error is the one to tell
			g = nil
		}
	}()
	useV2 := kill && t.CanKill() == "cgroup.kill"
	for controller, values := range map[string]map[string]string{
		"pids":   l.pids(),
		"memory": l.memory(t.Can("memory") == V2),
		"cpu":    l.cpu(t.Can("cpu") == V2),
	} {
		if len(values) == 0 {
			continue
		}
		switch t.Can(controller) {
		case V2:
			useV2 = true
		case V1:
			work, err := g.addV1(filepath.Join(t.v1[controller], name))
			if err != nil {
				return g, err
			}
			if err := write(work, values); err != nil {
				return g, err
			}
			if controller == "memory" {
				g.oom = filepath.Join(work, "memory.oom_control")
			}
		}
	}
	if kill && !useV2 && t.CanKill() == "freezer" {
		if _, err := g.addV1(filepath.Join(t.v1["freezer"], name)); err != nil {
			return g, err
		}
	}
	if !useV2 {
		return g, nil
	}
	g.v2 = filepath.Join(t.v2, name)
	if err := os.Mkdir(g.v2, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return g, fmt.Errorf("make a cgroup: %w", err)
	}
	for controller, values := range map[string]map[string]string{
		"pids": l.pids(), "memory": l.memory(true), "cpu": l.cpu(true),
	} {
		if len(values) == 0 || t.Can(controller) != V2 {
			continue
		}
		if err := write(g.v2, values); err != nil {
			return g, err
		}
		if controller == "memory" {
			g.oom = filepath.Join(g.v2, "memory.events")
		}
	}
	return g, nil
}

func (g *Group) addV1(dir string) (work string, err error) {
	guest, work := filepath.Join(dir, "guest"), filepath.Join(dir, "work")
	for _, d := range []string{dir, guest, work} {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make a cgroup: %w", err)
		}
	}
	g.guest, g.work = append(g.guest, guest), append(g.work, work)
	return work, nil
}

func write(dir string, values map[string]string) error {
	for name, v := range values {
		path := filepath.Join(dir, name)
		if strings.HasPrefix(name, "?") { // not on every machine
			if path = filepath.Join(dir, name[1:]); !exists(path) {
				continue
			}
		}
		if err := os.WriteFile(path, []byte(v), 0); err != nil {
			return fmt.Errorf("limit a cgroup: %w", err)
		}
	}
	return nil
}

func (l Limits) pids() map[string]string {
	if l.Processes == 0 {
		return nil
	}
	return map[string]string{"pids.max": strconv.FormatUint(uint64(l.Processes), 10)}
}

func (l Limits) memory(v2 bool) map[string]string {
	if l.MemoryBytes == 0 {
		return nil
	}
	n := strconv.FormatUint(l.MemoryBytes, 10)
	if v2 {
		return map[string]string{"memory.max": n, "?memory.swap.max": "0"}
	}
	return map[string]string{"memory.limit_in_bytes": n}
}

func (l Limits) cpu(v2 bool) map[string]string {
	if l.CPUs <= 0 {
		return nil
	}
	const period = 100_000
	quota := strconv.FormatInt(max(1000, int64(l.CPUs*period)), 10)
	if v2 {
		return map[string]string{"cpu.max": quota + " " + strconv.Itoa(period)}
	}
	return map[string]string{"cpu.cfs_quota_us": quota}
}

// Unified opens the unified hierarchy's group, which the guest begins in; nil when there is none. The caller closes it.
func (g *Group) Unified() (*os.File, error) {
	if g.v2 == "" {
		return nil, nil
	}
	f, err := os.Open(g.v2)
	if err != nil {
		return nil, fmt.Errorf("open a cgroup: %w", err)
	}
	return f, nil
}

// Tasks opens what the guest, and in it the thread that starts commands, write themselves to. The caller closes the
// files, also when there is an error.
func (g *Group) Tasks() (guest, work []*os.File, err error) {
	if guest, err = openTasks(g.guest); err != nil {
		return guest, nil, err
	}
	work, err = openTasks(g.work)
	return guest, work, err
}

func openTasks(dirs []string) (files []*os.File, err error) {
	for _, d := range dirs {
		f, err := os.OpenFile(filepath.Join(d, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			return files, fmt.Errorf("open a cgroup: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

// OOMFile is a file with a line "oom_kill N", which rises when the kernel ends a command for lack of memory; empty =
// memory is not limited.
func (g *Group) OOMFile() string { return g.oom }

// Kill ends every process in the groups, the guest's own included.
func (g *Group) Kill() error {
	// A driver that was killed may have started a guest that nobody has a record of.
	for _, dir := range g.guest {
		for _, pid := range pids(dir) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may be dead
		}
	}
	if g.v2 != "" && os.WriteFile(filepath.Join(g.v2, "cgroup.kill"), []byte("1"), 0) == nil {
		return nil
	}
	i := slices.IndexFunc(g.work, func(d string) bool { return exists(filepath.Join(d, "freezer.state")) })
	if i < 0 {
		return nil
	}
	state := filepath.Join(g.work[i], "freezer.state")
	if err := os.WriteFile(state, []byte("FROZEN"), 0); err != nil {
		return fmt.Errorf("freeze a cgroup: %w", err)
	}
	// A process that forks while it is being frozen is there with its child afterwards; nothing forks once frozen.
	for range 1000 {
		b, err := os.ReadFile(state)
		if err != nil || strings.TrimSpace(string(b)) == "FROZEN" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, pid := range pids(g.work[i]) {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be dead
	}
	return os.WriteFile(state, []byte("THAWED"), 0)
}

func pids(dir string) []int {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var list []int
	for f := range strings.FieldsSeq(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// Remove removes the groups. It waits a moment for processes that are ending.
func (g *Group) Remove() error {
	var dirs []string
	for i := range g.guest {
		dirs = append(dirs, g.guest[i], g.work[i], filepath.Dir(g.work[i]))
	}
	if g.v2 != "" {
		dirs = append(dirs, g.v2)
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, removeGroup(d))
	}
	return errors.Join(errs...)
}

func removeGroup(dir string) error {
	var err error
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		if err = unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}

// Find gives the groups that a sandbox may have had, to end and remove what an earlier process left.
func (t *Tree) Find(name string) *Group {
	g := &Group{}
	for _, dir := range t.v1 {
		if d := filepath.Join(dir, name); exists(d) {
			g.guest, g.work = append(g.guest, filepath.Join(d, "guest")), append(g.work, filepath.Join(d, "work"))
		}
	}
	if d := filepath.Join(t.v2, name); t.v2 != "" && exists(d) {
		g.v2 = d
	}
	return g
}
