// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/proc/pump"
	"github.com/berth-dev/berth/sdk/guest/proc/spawn"
)

const (
	// pipeSize is asked for: 64 MiB take less than half the time of pipes of the usual 64 KiB.
	pipeSize    = 1 << 20
	smallPipe   = 64 << 10
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultTerm = "xterm-256color"
)

// start starts the process; on an error nothing of it is left.
func (p *Process) start(cmd *driver.Command) (err error) {
	dir := cmd.Dir
	if !path.IsAbs(dir) {
		dir = path.Join(p.t.cfg.Root, dir)
	}
	name := cmd.User
	if name == "" {
		name = p.t.cfg.User
		p.user = name
	}
	who, err := spawn.Lookup(p.t.cfg.Etc, name)
	if err != nil {
		return err
	}
	env := p.environment(cmd, dir, who)
	if err := spawn.CheckDir(dir); err != nil {
		return err
	}
	file, err := spawn.LookPath(cmd.Argv[0], dir, env["PATH"])
	if err != nil {
		return err
	}

	var files cleanup
	defer files.close()
	attr := &syscall.ProcAttr{Dir: dir, Env: flatten(env), Sys: &syscall.SysProcAttr{Setsid: true, Credential: who.Credential()}}
	if cmd.TTY {
		attr.Sys.Setctty = true
		err = p.terminal(attr, cmd.Size, who, &files)
	} else {
		err = p.pipes(attr, &files)
	}
	if err != nil {
		p.closeFiles()
		return errs.Wrap(errs.QuotaExceeded, "process.start", err)
	}

	p.oomsAt = OOMKills(p.t.cfg.OOMFile)
	p.began = time.Now()
	p.pumped = make(chan struct{}) // before the fork: the process may have ended when that returns
	if err := p.t.fork(p, file, cmd.Argv, attr); err != nil {
		p.closeFiles()
		return spawn.Explain(cmd.Argv[0], file, dir, who, err)
	}
	go func() {
		p.pump.Run()
		close(p.pumped)
	}()
	return nil
}

func (p *Process) closeFiles() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	if p.pump != nil {
		p.pump.Close()
	}
}

// cleanup closes the child's ends, which are not needed once it runs.
type cleanup []int

func (c *cleanup) add(fd int) { *c = append(*c, fd) }

func (c *cleanup) close() {
	for _, fd := range *c {
		unix.Close(fd)
	}
}

// pipes makes standard input, output and error. Only this program's ends do not block.
func (p *Process) pipes(attr *syscall.ProcAttr, files *cleanup) error {
	fds := make([]uintptr, 3)
	var outputs []pump.Pipe
	var unowned cleanup
	defer func() { unowned.close() }()
	for i := range fds {
		var pair [2]int
		if err := unix.Pipe2(pair[:], unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		child, own := pair[1], pair[0]
		if i == 0 {
			child, own = pair[0], pair[1]
		}
		files.add(child)
		fds[i] = uintptr(child)
		unix.SetNonblock(own, true) //nolint:errcheck // of a descriptor just made
		room, err := unix.FcntlInt(uintptr(own), unix.F_SETPIPE_SZ, pipeSize)
		if err != nil {
			room = smallPipe // past the user's quota
		}
		if i == 0 {
			p.stdin = os.NewFile(uintptr(own), "stdin")
		} else {
			unowned.add(own)
			outputs = append(outputs, pump.Pipe{Stream: uint8(i), FD: own, Room: room})
		}
	}
	attr.Files = fds
	var err error
	p.pump, err = pump.Pipes(p.out, outputs...)
	unowned = nil // they are the pump's, also when it fails
	return err
}

// terminal makes a terminal, the child's on all three.
func (p *Process) terminal(attr *syscall.ProcAttr, size driver.Size, who *spawn.Account, files *cleanup) error {
	master, slave, err := spawn.OpenTerminal()
	if err != nil {
		return err
	}
	files.add(slave)
	unix.SetNonblock(master, true) //nolint:errcheck // of a descriptor just made
	p.master = os.NewFile(uintptr(master), "terminal")
	if p.pump, err = pump.Terminal(p.out, p.master); err != nil {
		return fmt.Errorf("watch the terminal: %w", err)
	}
	if who.Other {
		unix.Fchown(slave, int(who.UID), -1) //nolint:errcheck // where it is refused, the program only cannot open /dev/tty by its path
	}
	if err := spawn.SetSize(p.master, size); err != nil {
		return fmt.Errorf("set the terminal's size: %w", err)
	}
	attr.Files = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
	return nil
}

// environment is what the command sees: base, user, command, in rising order of right.
func (p *Process) environment(cmd *driver.Command, dir string, who *spawn.Account) map[string]string {
	env := maps.Clone(p.t.cfg.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, p.t.cfg.SecretEnv)
	if who.Home != "" && (cmd.User != "" || env["HOME"] == "") {
		env["HOME"], env["USER"], env["LOGNAME"] = who.Home, who.Name, who.Name
	}
	env["PWD"] = dir
	if cmd.TTY && env["TERM"] == "" {
		env["TERM"] = defaultTerm
	}
	maps.Copy(env, cmd.Env)
	maps.Copy(env, cmd.SecretEnv)
	if env["PATH"] == "" {
		env["PATH"] = defaultPath
	}
	return env
}

func flatten(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for k, v := range env {
		if strings.ContainsAny(k, "=\x00") || k == "" || strings.Contains(v, "\x00") {
			continue
		}
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}
