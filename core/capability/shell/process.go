// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// killTimeout bounds how long the end of a process is waited for once it was told to end.
const killTimeout = 10 * time.Second

// process is one command that was started.
type process struct {
	shell  *Shell
	id     string // the driver's
	number int    // the model's
	tty    bool
	out    *window
	keys   *keyboard // of a terminal
	began  time.Time
	done   chan struct{} // closed when exit and err are set
	exit   driver.Exit
	err    error
}

// start runs a command in the background. One that may have been started before, by a core that ended, is not run again
// but found again: who knows what it has done.
func (s *Shell) start(ctx context.Context, call tool.Call, cmd *driver.Command) (*process, error) {
	p := &process{
		shell: s, id: cmd.ID, tty: cmd.TTY, began: s.cfg.Now(), done: make(chan struct{}),
		out: newWindow(s.cfg.OutputBytes, s.cfg.OutputBytes, s.cfg.Now),
	}
	s.mu.Lock()
	if len(s.processes) >= s.cfg.MaxProcesses {
		s.mu.Unlock()
		return nil, errs.New(errs.QuotaExceeded, "%d commands are running already, which is the limit", s.cfg.MaxProcesses).
			WithHint("end some with write_stdin and \"\\u0003\", or wait for them")
	}
	p.number = s.next
	s.next++
	s.processes[p.number] = p
	s.mu.Unlock()

	live := newLive(call.Progress, s.cfg.Now)
	w := io.MultiWriter(p.out, live)
	streams := driver.Streams{Stdout: w, Stderr: w, OnGap: func(g driver.Gap) {
		fmt.Fprintf(p.out, "\n[%d bytes of output were lost]\n", g.To-g.From)
	}}
	if cmd.TTY {
		p.keys = newKeyboard()
		streams.Stdin = p.keys
	}
	life := ops.With(s.life, ops.Of(ctx))
	go func() {
		defer close(p.done)
		if call.Again {
			p.exit, p.err = s.sandbox.Attach(life, cmd.ID, 0, streams)
		} else {
			p.exit, p.err = s.sandbox.Run(life, cmd, streams)
		}
		live.stop()
		if p.keys != nil {
			p.keys.close()
		}
	}()
	return p, nil
}

// forget drops a process whose end the model has seen.
func (s *Shell) forget(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p.number)
}

func (s *Shell) find(number int) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[number]
}

// await returns when the process has ended, the time is over, or a terminal has said something and is quiet.
func (p *process) await(ctx context.Context, yield time.Duration) error {
	limit := time.NewTimer(yield)
	defer limit.Stop()
	quiet := time.NewTimer(yield)
	defer quiet.Stop()
	for {
		news, last, prompt, pending := p.out.wait()
		if p.tty && pending {
			d := quietTerminal
			if prompt {
				d = quietPrompt
			}
			quiet.Reset(d - p.shell.cfg.Now().Sub(last))
		}
		select {
		case <-p.done:
			return nil
		case <-limit.C:
			return nil
		case <-quiet.C:
			return nil
		case <-news:
		case <-ctx.Done():
			p.kill(context.WithoutCancel(ctx))
			p.shell.forget(p)
			return context.Cause(ctx)
		}
	}
}

// kill ends the whole tree and waits for it, within bounds.
func (p *process) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errs.New(errs.ExecTimeout, "the command did not end in %s", killTimeout))
	defer cancel()
	if err := p.shell.sandbox.Signal(ctx, p.id, driver.Signal{Name: "KILL"}); err != nil {
		return // it has ended, or the sandbox ends it with itself
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
