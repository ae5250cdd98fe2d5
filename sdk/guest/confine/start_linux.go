// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
	"github.com/berth-dev/berth/sdk/guest/confine/internal/vfork"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
)

// startTimeout bounds how long a guest may take to be ready; the machine may be full of others.
const startTimeout = 60 * time.Second

// Inside is the user that commands are by default.
const Inside = 1000

// IDMap says how users of the host appear inside.
type IDMap struct {
	Kind MapKind
	// Host is the first of Count users and groups of the host, for MapRange and MapHelper.
	Host, HostGroup, Count int
}

// MapKind is a way of mapping users.
type MapKind int

// The ways.
const (
	MapNone   MapKind = iota // no user namespace
	MapOne                   // the driver's user is user 1000
	MapRange                 // a range that belongs to nobody; by root
	MapHelper                // newuidmap: the driver's user is 1000, and a subordinate range has the others
)

// Launch is what it takes to start a guest.
type Launch struct {
	Program  *os.File // the guest program
	Config   guest.Config
	Spec     Spec
	IDs      IDMap
	Listener *os.File   // the control socket; nil = none
	Keep     []*os.File // locks that the guest shall hold
	OwnTasks []*os.File // see Spec.OwnTasks
	Tasks    []*os.File // see Spec.SpawnTasks
	Stderr   *os.File   // nil = thrown away
	Cgroup   *os.File   // directory of a cgroup v2 to begin in; nil = the driver's
}

// Guest is a guest that was started.
type Guest struct {
	PID   int
	done  chan struct{}
	state *os.ProcessState
	err   error
}

// Done is closed when the guest has ended.
func (g *Guest) Done() <-chan struct{} { return g.done }

// Kill ends the guest, and at level 2 and above everything in it.
func (g *Guest) Kill() {
	select {
	case <-g.done:
	default:
		_ = syscall.Kill(g.PID, syscall.SIGKILL) // it may just have ended
	}
}

// Start starts a guest and returns when it is confined, tested, and about to serve. A failure is errs.StartFailed
// with the step and the errno in its context.
func Start(ctx context.Context, l *Launch) (*Guest, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the guest was not ready after %s", startTimeout))
	defer cancel()
	run, err := l.start()
	if err != nil {
		return nil, failed(err)
	}
	g := &Guest{PID: run.process.Pid, done: make(chan struct{})}
	go func() {
		g.state, g.err = run.process.Wait()
		close(g.done)
	}()
	if err := run.wait(ctx, g); err != nil {
		g.Kill()
		<-g.done
		return nil, failed(err)
	}
	return g, nil
}

// launched is a process in stage 0.
type launched struct {
	process *os.Process
	status  *os.File
}

func (l *Launch) start() (run *launched, err error) {
	var opened, inherited []*os.File
	defer func() {
		for _, f := range opened {
			_ = f.Close() // the guest has its own
		}
	}()
	pass := func(f *os.File) int {
		inherited = append(inherited, f)
		return 2 + len(inherited)
	}
	pipe := func() (*os.File, *os.File, error) {
		r, w, err := os.Pipe()
		if err == nil {
			opened = append(opened, r, w)
		}
		return r, w, err
	}
	configR, configW, err := pipe()
	if err != nil {
		return nil, fmt.Errorf("make the configuration pipe: %w", err)
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the status pipe: %w", err)
	}
	defer func() {
		_ = statusW.Close()
		if err != nil {
			_ = statusR.Close()
		}
	}()

	spec, cfg := l.Spec, l.Config
	config := pass(configR)
	spec.Status = pass(statusW)
	spec.Program = pass(l.Program)
	spec.Pass = []int{spec.Status, spec.Program}
	if l.Listener != nil {
		cfg.Listen = pass(l.Listener)
		spec.Pass = append(spec.Pass, cfg.Listen)
	}
	for _, f := range l.Keep {
		spec.Keep = append(spec.Keep, pass(f))
	}
	for _, f := range l.Tasks {
		spec.SpawnTasks = append(spec.SpawnTasks, pass(f))
	}
	spec.Pass = slices.Concat(spec.Pass, spec.Keep, spec.SpawnTasks)
	next, err := spec.stage1(cfg)
	if err != nil {
		return nil, err
	}
	opened = append(opened, next)
	spec.Next = pass(next)
	for _, f := range l.OwnTasks {
		spec.OwnTasks = append(spec.OwnTasks, pass(f))
	}
	spec.Binds = append([]rootfs.Bind(nil), spec.Binds...)
	for i := range spec.Binds {
		f, err := spec.Binds[i].Detach()
		if err != nil {
			return nil, err
		}
		if f != nil {
			opened = append(opened, f)
			spec.Binds[i].FD = pass(f)
		}
	}
	if l.IDs.Kind == MapRange || l.IDs.Kind == MapHelper {
		spec.Identity.Setup = true
	}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the null device: %w", err)
	}
	opened = append(opened, null)
	stderr := l.Stderr
	if stderr == nil {
		stderr = null
	}
	program := &vfork.Program{
		File: l.Program, Args: append([]string{"berth-guest"}, guest.Args(config)...), Env: startEnv(),
		Files: append([]*os.File{null, null, stderr}, inherited...), Namespaces: l.Spec.Namespaces.flags(),
		Cgroup: l.Cgroup,
	}
	// The maps are written once the program runs. Until then it is nobody; ambient capabilities are what it has.
	if l.Spec.Namespaces.User {
		program.Caps = setupCaps
	}
	process, err := vfork.Start(program)
	late := l.Cgroup != nil && errors.Is(err, unix.ENOSYS)
	if late {
		program.Cgroup = nil
		process, err = vfork.Start(program)
	}
	if err != nil {
		return nil, &step.Error{Step: "clone", Err: err}
	}
	_ = configR.Close()
	run = &launched{process: process, status: statusR}
	if late {
		err = l.enterCgroup(process.Pid)
	}
	if err == nil {
		err = l.handOver(process.Pid, configW, &spec)
	}
	if err != nil {
		_ = process.Kill()
		_, _ = process.Wait() // its end is the point
		return nil, err
	}
	return run, nil
}

// stage1 writes the configuration that stage 1 reads into a file of its own: stage 0 has no business with it.
func (s *Spec) stage1(cfg guest.Config) (*os.File, error) {
	next := *s
	next.Stage, next.Binds, next.Files, next.Pass = 1, nil, nil, nil
	b, err := next.config(cfg)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("keep the guest's configuration: %w", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	_, err = f.Write(b)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close() // the first error is the one to tell
		return nil, fmt.Errorf("keep the guest's configuration: %w", err)
	}
	return f, nil
}

// config is a guest's configuration with this confinement.
func (s *Spec) config(cfg guest.Config) ([]byte, error) {
	var err error
	if cfg.Confine, err = json.Marshal(s); err != nil {
		return nil, fmt.Errorf("write the confinement: %w", err)
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("write the guest's configuration: %w", err)
	}
	return b, nil
}

// enterCgroup moves a process where clone3 is refused: in containers with a filter of an older kind.
func (l *Launch) enterCgroup(pid int) error {
	fd, err := unix.Openat(int(l.Cgroup.Fd()), "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(strconv.Itoa(pid)))
		unix.Close(fd)
	}
	return step.At("enter the cgroup", err)
}

// handOver completes the process and lets it go on.
func (l *Launch) handOver(pid int, config io.Writer, spec *Spec) error {
	if err := l.IDs.write(pid); err != nil {
		return err
	}
	b, err := spec.config(guest.Config{})
	if err != nil {
		return err
	}
	if _, err := config.Write(b); err != nil {
		return fmt.Errorf("send the guest's configuration: %w", err)
	}
	if c, ok := config.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// flags are those of clone.
func (n Namespaces) flags() (flags uintptr) {
	for flag, want := range map[uintptr]bool{
		unix.CLONE_NEWUSER: n.User, unix.CLONE_NEWNS: n.Mount, unix.CLONE_NEWPID: n.PID, unix.CLONE_NEWIPC: n.IPC,
		unix.CLONE_NEWUTS: n.UTS, unix.CLONE_NEWNET: n.Network, unix.CLONE_NEWCGROUP: n.Cgroup,
	} {
		if want {
			flags |= flag
		}
	}
	return flags
}

// write gives a process in a new user namespace its map.
func (m IDMap) write(pid int) error {
	var files [][2]string
	switch m.Kind {
	case MapNone:
		return nil
	case MapHelper:
		return m.help(pid)
	case MapOne:
		files = [][2]string{
			{"setgroups", "deny"},
			{"uid_map", fmt.Sprintf("%d %d 1", Inside, os.Getuid())},
			{"gid_map", fmt.Sprintf("%d %d 1", Inside, os.Getgid())},
		}
	case MapRange:
		files = [][2]string{
			{"uid_map", fmt.Sprintf("0 %d %d", m.Host, m.Count)},
			{"gid_map", fmt.Sprintf("0 %d %d", m.HostGroup, m.Count)},
		}
	}
	for _, f := range files {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, f[0]), []byte(f[1]), 0); err != nil {
			return &step.Error{Step: "write " + f[0], Err: err}
		}
	}
	return nil
}

// help maps users with the set-user-ID programs of the uidmap package.
func (m IDMap) help(pid int) error {
	for _, p := range []struct {
		program   string
		own, from int
	}{{"newuidmap", os.Getuid(), m.Host}, {"newgidmap", os.Getgid(), m.HostGroup}} {
		args := []string{
			strconv.Itoa(pid),
			"0", strconv.Itoa(p.from), strconv.Itoa(Inside),
			strconv.Itoa(Inside), strconv.Itoa(p.own), "1",
			strconv.Itoa(Inside + 1), strconv.Itoa(p.from + Inside), strconv.Itoa(m.Count - Inside),
		}
		if out, err := exec.Command(p.program, args...).CombinedOutput(); err != nil { //nolint:noctx // it takes no time
			return &step.Error{Step: p.program, Err: fmt.Errorf("%w: %s", err, out)}
		}
	}
	return nil
}

// wait reads what the stages say.
func (r *launched) wait(ctx context.Context, g *Guest) error {
	defer r.status.Close()
	stop := context.AfterFunc(ctx, func() { _ = r.status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(r.status).ReadBytes('\n')
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		g.Kill()
		<-g.done
		if g.err != nil {
			return fmt.Errorf("the guest ended before it was ready, and cannot be waited for: %w", g.err)
		}
		return fmt.Errorf("the guest ended before it was ready (%s)", g.state)
	}
	var o outcome
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("read the guest's answer %q: %w", line, err)
	}
	if o.OK {
		return nil
	}
	return &refusal{o}
}

// refusal is a failure that a stage reported.
type refusal struct{ outcome }

func (r *refusal) Error() string { return r.Text }

func (r *refusal) Unwrap() error {
	if r.Errno == 0 {
		return nil
	}
	return unix.Errno(r.Errno)
}

// failed types an error of a start.
func failed(err error) error {
	e := &errs.Error{Code: errs.StartFailed, Op: "start the guest", Err: err}
	o := outcomeOf(err)
	if r, ok := errors.AsType[*refusal](err); ok {
		o = r.outcome
	}
	if o.Step != "" {
		e = e.With("step", o.Step)
	}
	if o.Errno != 0 {
		e = e.With("errno", unix.ErrnoName(unix.Errno(o.Errno)))
	}
	return e
}
