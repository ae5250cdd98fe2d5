// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package execs is the execs of a sandbox of the fake vendor: real processes whose output is kept whole, on disk, and read
// from any offset, and whose input is written by offset. Errors are those that the router answers.
package execs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"sync"
	"syscall"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugins/modal/internal/fake/cell"
)

// Exec is one exec.
type Exec struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended and its output is complete
	out    [2]*spool
	onEnd  func()
	code   int            // read after done
	signal syscall.Signal // read after done; 0 = it exited
	tty    *os.File       // the master, when it has a terminal

	writing sync.Mutex // held while input is written
	mu      sync.Mutex
	stdin   *os.File // guarded by mu; nil = closed
	fed     uint64   // guarded by mu
}

// spool is output: all of it is kept on disk, and read from any offset, also after the end.
type spool struct {
	mu      sync.Mutex
	file    *os.File      // guarded by mu; nil = removed
	size    int64         // guarded by mu
	closed  bool          // guarded by mu
	changed chan struct{} // guarded by mu; closed when there is more
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "spool-")
	if err != nil {
		return nil, err
	}
	return &spool{file: f, changed: make(chan struct{})}, os.Remove(f.Name())
}

// Write appends output.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return len(p), nil // nobody can read it any more
	}
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	close(s.changed)
	s.changed = make(chan struct{})
	return n, err
}

func (s *spool) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *spool) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close() // it has no name any more
		s.file = nil
	}
}

// read gives what there is from an offset on, or waits for more. io.EOF is the end.
func (s *spool) read(ctx context.Context, p []byte, at int64) (int, error) {
	for {
		s.mu.Lock()
		switch {
		case s.file == nil:
			s.mu.Unlock()
			return 0, status.Error(codes.NotFound, "the exec is gone")
		case at < s.size:
			n, err := s.file.ReadAt(p[:min(int64(len(p)), s.size-at)], at)
			s.mu.Unlock()
			if n > 0 {
				err = nil
			}
			return n, err
		case s.closed:
			s.mu.Unlock()
			return 0, io.EOF
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// Options describe an exec.
type Options struct {
	Cell    *cell.Cell
	Root    string // of the cell, on this machine
	Spool   string // directory for output
	Env     map[string]string
	Dir     string // empty = /
	Request *pb.TaskExecStartRequest
	OnEnd   func() // called when it has ended
}

// Start starts an exec.
func Start(opts Options) (*Exec, error) {
	r := opts.Request
	if opts.Dir != "" {
		if info, err := os.Stat(path.Join(opts.Root, opts.Dir)); err != nil || !info.IsDir() {
			return nil, status.Errorf(codes.InvalidArgument, "the working directory %q does not exist", opts.Dir)
		}
	}
	e := &Exec{cmd: opts.Cell.Command(r.GetCommandArgs(), opts.Env, opts.Dir), done: make(chan struct{}), onEnd: opts.OnEnd}
	var given []*os.File // to the child
	defer func() {
		for _, f := range given {
			_ = f.Close() // the child has its own
		}
	}()
	var outputs [2]*os.File
	for i := range e.out {
		var err error
		if e.out[i], err = newSpool(opts.Spool); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if r.GetPtyInfo().GetEnabled() {
		slave, err := e.terminal(r.GetPtyInfo())
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		given = append(given, slave)
		e.cmd.Stdin, e.cmd.Stdout, e.cmd.Stderr = slave, slave, slave
		e.cmd.SysProcAttr.Setctty = true
		e.cmd.Env = append(e.cmd.Env, "TERM="+r.GetPtyInfo().GetEnvTerm(), "COLORTERM="+r.GetPtyInfo().GetEnvColorterm())
		e.stdin, outputs[0] = e.tty, e.tty
	} else {
		in, w, err := os.Pipe()
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		given = append(given, in)
		e.cmd.Stdin, e.stdin = in, w
		for i, keep := range []bool{
			r.GetStdoutConfig() == pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE,
			r.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE,
		} {
			if !keep {
				continue
			}
			from, to, err := os.Pipe()
			if err != nil {
				return nil, status.Error(codes.Internal, err.Error())
			}
			given = append(given, to)
			outputs[i] = from
			if i == 0 {
				e.cmd.Stdout = to
			} else {
				e.cmd.Stderr = to
			}
		}
		if r.GetStderrConfig() == pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_STDOUT {
			e.cmd.Stderr = e.cmd.Stdout
		}
	}
	if err := e.cmd.Start(); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	go e.follow(outputs, time.Duration(r.GetTimeoutSecs())*time.Second)
	return e, nil
}

// terminal opens a terminal of the size that was asked for.
func (e *Exec) terminal(info *pb.PTYInfo) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(info.GetWinszRows()), Col: uint16(info.GetWinszCols())})
	}
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	if err := unix.SetNonblock(fd, true); err != nil { // Fd made it blocking
		return nil, errors.Join(err, master.Close())
	}
	e.tty = master
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
}

// drainTime is how long output is waited for after a process has ended: what it left running may hold the pipes.
const drainTime = time.Second

// follow keeps output until the process has ended.
func (e *Exec) follow(outputs [2]*os.File, limit time.Duration) {
	var reading sync.WaitGroup
	for i, f := range outputs {
		if f == nil {
			continue
		}
		reading.Go(func() {
			_, _ = io.Copy(e.out[i], f) // a terminal ends with an error
		})
	}
	if limit > 0 {
		t := time.AfterFunc(limit, e.kill)
		defer t.Stop()
	}
	err := e.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() { //nolint:errcheck // it is one on Linux
			e.signal = ws.Signal()
		} else {
			e.code = ws.ExitStatus()
		}
	}
	drained := make(chan struct{})
	go func() {
		reading.Wait()
		close(drained)
	}()
	t := time.NewTimer(drainTime)
	defer t.Stop()
	select {
	case <-drained:
	case <-t.C:
	}
	for _, f := range outputs {
		if f != nil {
			_ = f.Close() // it was read
		}
	}
	<-drained
	e.mu.Lock()
	if e.stdin != nil {
		_ = e.stdin.Close() // nobody reads it
		e.stdin = nil
	}
	e.mu.Unlock()
	for _, s := range e.out {
		s.close()
	}
	close(e.done)
	e.onEnd()
}

// kill ends the process group; what left it goes on until the sandbox ends.
func (e *Exec) kill() { _ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) } // it may have ended

// Over says whether it has ended.
func (e *Exec) Over() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// Remove forgets the output of an exec whose sandbox has ended.
func (e *Exec) Remove() {
	for _, s := range e.out {
		s.remove()
	}
}

// Feed writes input that begins at an offset. What was written before is skipped.
func (e *Exec) Feed(ctx context.Context, at uint64, p []byte, eof bool) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	e.mu.Lock()
	in, fed := e.stdin, e.fed
	e.mu.Unlock()
	if at > fed {
		return status.Errorf(codes.InvalidArgument, "standard input: offset %d is beyond the %d bytes that were written", at, fed)
	}
	p = p[min(uint64(len(p)), fed-at):]
	if in == nil {
		if len(p) == 0 && eof {
			return nil
		}
		return status.Error(codes.FailedPrecondition, "standard input is closed")
	}
	if len(p) > 0 {
		_ = in.SetWriteDeadline(time.Time{})                                                // pipes can
		stop := context.AfterFunc(ctx, func() { _ = in.SetWriteDeadline(time.Unix(1, 0)) }) // the same
		n, err := in.Write(p)
		stop()
		e.mu.Lock()
		e.fed += uint64(n)
		e.mu.Unlock()
		if err != nil {
			if ctx.Err() != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			return status.Error(codes.FailedPrecondition, "the process has closed its standard input")
		}
	}
	if eof {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.tty != nil {
			_, _ = e.tty.Write([]byte{4}) // it may have ended
		} else if e.stdin != nil {
			_ = e.stdin.Close() // that is what was asked for
			e.stdin = nil
		}
	}
	return nil
}

// Fed says how much input there was, and whether it is closed.
func (e *Exec) Fed() (n uint64, closed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fed, e.stdin == nil
}

// Done is closed when it has ended and its output is complete.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Exit is how it ended: a code, or a signal that is not 0. Preconditions: Done is closed.
func (e *Exec) Exit() (code, signal int32) { return int32(e.code), int32(e.signal) }

// Read gives output from an offset on, or waits for it. io.EOF is the end.
func (e *Exec) Read(ctx context.Context, stderr bool, p []byte, at int64) (int, error) {
	if stderr {
		return e.out[1].read(ctx, p, at)
	}
	return e.out[0].read(ctx, p, at)
}
