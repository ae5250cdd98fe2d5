// SPDX-License-Identifier: Apache-2.0

// Package hostproc runs a command on the host in the words in which drivers run one in a sandbox, for the tools and
// servers of a project that say so and whose host allows it. It decides nothing: the policy is looked at when a project
// is read.
//
// A command gets few variables of this process's environment, and ends with everything that stayed in its process group.
package hostproc

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Host runs commands.
type Host struct {
	Dir string // where relative directories start; empty = the working directory
}

// inherited are the variables that a command gets from this process.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// Run performs a command to its end. When the context ends, the command is asked to end, and killed after its grace.
func (h Host) Run(ctx context.Context, c *driver.Command, s driver.Streams) (driver.Exit, error) {
	if len(c.Argv) == 0 {
		return driver.Exit{}, errs.New(errs.InvalidArgument, "there is no command")
	}
	if c.TTY || c.User != "" {
		return driver.Exit{}, errs.New(errs.Unsupported, "commands on the host have no terminal and no other user")
	}
	ctx, end, err := ops.Begin(ctx, nil, ops.Op{Kind: ops.HostExec, Detail: map[string]any{"argv": c.Argv, "dir": h.dir(c.Dir)}})
	if err != nil {
		return driver.Exit{}, err
	}
	exit, err := h.run(ctx, c, s)
	out := ops.End{Err: err}
	if err == nil {
		out.Code = &exit.Code
	}
	end(out)
	return exit, err
}

func (h Host) run(ctx context.Context, c *driver.Command, s driver.Streams) (driver.Exit, error) {
	work := ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		work, cancel = context.WithTimeoutCause(ctx, c.Timeout, errs.New(errs.ExecTimeout, "the command took longer than %s", c.Timeout))
		defer cancel()
	}
	cmd := exec.CommandContext(work, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = h.dir(c.Dir)
	cmd.Env = environment(c)
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	grace := c.KillGrace
	if grace == 0 {
		grace = driver.DefaultKillGrace
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = grace
	// The pipe is ours, so that a reader which never ends keeps nothing waiting.
	var stdin io.WriteCloser
	if s.Stdin != nil {
		var err error
		if stdin, err = cmd.StdinPipe(); err != nil {
			return driver.Exit{}, err
		}
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return driver.Exit{}, startError(c.Argv[0], err)
	}
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, s.Stdin) // a command may end without reading all
			_ = stdin.Close()              // likewise
		}()
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // mostly nothing is left
	exit := driver.Exit{Ran: time.Since(began)}
	if ctx.Err() != nil {
		return exit, context.Cause(ctx)
	}
	exit.TimedOut = work.Err() != nil
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		exit.Code, exit.Signal = 128+int(status.Signal()), signalName(status.Signal())
	case ok:
		exit.Code = status.ExitStatus()
	}
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed && !exit.TimedOut && !errors.Is(err, exec.ErrWaitDelay) {
		return exit, err
	}
	return exit, nil
}

func (h Host) dir(dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(h.Dir, dir)
}

func environment(c *driver.Command) []string {
	var env []string
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for _, more := range []map[string]string{c.Env, c.SecretEnv} {
		for name, v := range more {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func startError(program string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return errs.New(errs.ExecNotFound, "this machine cannot start %q: %v", program, err)
	}
	return err
}

func signalName(s syscall.Signal) string {
	for name, number := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ABRT": syscall.SIGABRT, "KILL": syscall.SIGKILL,
		"SEGV": syscall.SIGSEGV, "PIPE": syscall.SIGPIPE, "TERM": syscall.SIGTERM,
	} {
		if s == number {
			return name
		}
	}
	return strings.ToUpper(s.String())
}
