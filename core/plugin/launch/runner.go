// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	plugrunner "github.com/hashicorp/go-plugin/runner"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
)

const (
	// killGrace is the time between TERM and KILL.
	killGrace = time.Second
	// logGrace is how long the report of a crash waits for the last lines: a child may hold the pipe open.
	logGrace = 200 * time.Millisecond
)

// runner is the process as go-plugin sees it.
type runner struct {
	spec Spec
	key  handshake.Key
	sum  string // of the executed file; set by Start

	cmd      *exec.Cmd
	lifeline *os.File // never written to; its end is what tells the driver
	begun    time.Time

	toPlugin *io.PipeWriter
	stdout   *io.PipeReader
	log      *relog
	drained  sync.WaitGroup

	exited chan struct{} // closed when the process has ended

	mu       sync.Mutex
	up       bool            // guarded by mu: Start has succeeded
	unwanted bool            // guarded by mu: it was to end before it was up
	first    string          // guarded by mu: the first line of standard output
	state    *exec.ExitError // guarded by mu; nil = exit status 0
	ended    time.Time       // guarded by mu
}

func newRunner(spec Spec, key handshake.Key) *runner {
	r := &runner{spec: spec, key: key, exited: make(chan struct{})}
	r.stdout, r.toPlugin = io.Pipe()
	r.log = &relog{log: spec.Log, redact: spec.Redact, tail: &tail{}}
	return r
}

// take is go-plugin's RunnerFunc: cmd holds nothing but the handshake's environment.
func (r *runner) take(_ hclog.Logger, cmd *exec.Cmd, _ string) (plugrunner.Runner, error) {
	r.cmd = &exec.Cmd{
		Env: append(append(append([]string(nil), r.spec.Environ...), cmd.Env...), handshake.EnvKey+"="+r.key.Encode()),
		Dir: r.spec.Dir,
	}
	return r, nil
}

// Start starts the process.
func (r *runner) Start(context.Context) error {
	binary, err := os.Open(r.spec.Path)
	if err != nil {
		return err
	}
	defer binary.Close()
	if err := r.verify(binary); err != nil {
		return err
	}
	if err := execFrom(r.cmd, binary, r.spec); err != nil {
		return err
	}
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, lifeline.Close())
	}
	defer outW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, lifeline.Close(), outR.Close())
	}
	defer errW.Close()
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = stdin, outW, errW
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.begun = time.Now()
	if err := r.cmd.Start(); err != nil {
		return errors.Join(err, lifeline.Close(), outR.Close(), errR.Close())
	}
	r.lifeline = lifeline
	noCoreDumps(r.cmd.Process.Pid)
	r.mu.Lock()
	r.up = true
	unwanted := r.unwanted
	r.mu.Unlock()
	out := r.log.sibling()
	r.drained.Go(func() {
		handshakeLine(outR, r.toPlugin, r.setFirst, out)
		outR.Close()
	})
	r.drained.Go(func() {
		r.log.drain(errR)
		errR.Close()
	})
	go r.reap()
	if unwanted {
		r.end(0)
	}
	return nil
}

// verify hashes the open file.
func (r *runner) verify(binary *os.File) error {
	sum, err := r.spec.Digests.Sum(binary)
	if err != nil {
		return err
	}
	r.sum = sum
	if r.spec.SHA256 != "" && r.spec.SHA256 != sum {
		return errs.New(errs.DriverChecksum, "%s changed since it was checked: sha256 %s, expected %s", r.spec.Path, sum, r.spec.SHA256).
			With("driver", r.spec.Name).WithHint("run the command again")
	}
	return nil
}

// reap waits for the process. What it left in its group is ended while its id cannot yet be another's.
func (r *runner) reap() {
	err := waitGroup(r.cmd)
	r.lifeline.Close()
	r.mu.Lock()
	r.ended = time.Now()
	errors.As(err, &r.state)
	r.mu.Unlock()
	close(r.exited)
}

// end ends the process and waits for it: TERM, after the grace KILL. One that is being started is ended when it is up.
func (r *runner) end(grace time.Duration) {
	r.mu.Lock()
	r.unwanted = true
	up := r.up
	r.mu.Unlock()
	if !up {
		return
	}
	select {
	case <-r.exited:
		return
	default:
	}
	if grace > 0 {
		signalGroup(r.cmd.Process.Pid, syscall.SIGTERM)
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-r.exited:
			return
		case <-t.C:
		}
	}
	signalGroup(r.cmd.Process.Pid, syscall.SIGKILL)
	<-r.exited
}

func (r *runner) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up
}

func (r *runner) setFirst(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first = line
}

func (r *runner) firstLine() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// timedOut reports whether go-plugin gave up waiting: the process said nothing at all.
func (r *runner) timedOut(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first == "" && !r.ended.IsZero() && r.ended.Sub(r.begun) >= r.spec.StartTimeout && err != nil
}

func (r *runner) pid() int {
	if !r.started() {
		return 0
	}
	return r.cmd.Process.Pid
}

func (r *runner) crash() *Crash {
	<-r.exited
	done := make(chan struct{})
	go func() {
		r.drained.Wait()
		close(done)
	}()
	t := time.NewTimer(logGrace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Crash{
		Driver: r.spec.Name, Path: r.spec.Path, PID: r.cmd.Process.Pid, Status: "exit status 0",
		Log: r.log.tail.all(), Ran: r.ended.Sub(r.begun),
	}
	if r.state != nil {
		c.Status = r.state.Error()
	}
	return c
}

// Wait returns when the process has ended.
func (r *runner) Wait(ctx context.Context) error {
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Kill is what go-plugin calls when the driver did not end in time.
func (r *runner) Kill(context.Context) error {
	r.end(killGrace)
	return nil
}

// Stdout carries the handshake line and nothing else.
func (r *runner) Stdout() io.ReadCloser { return r.stdout }

// Stderr is empty: the runner logs by itself.
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name is the name of the driver.
func (r *runner) Name() string { return r.spec.Name }

// ID is the process id.
func (r *runner) ID() string {
	if !r.started() {
		return ""
	}
	return strconv.Itoa(r.cmd.Process.Pid)
}

// Diagnose has nothing to add: errors are made from the report of the crash.
func (r *runner) Diagnose(context.Context) string { return "" }

// PluginToHost changes nothing: both are on one host.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin changes nothing: both are on one host.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

func signalGroup(pgid int, sig syscall.Signal) {
	syscall.Kill(-pgid, sig) //nolint:errcheck // ESRCH: the group is gone, which is what was wished for
}
