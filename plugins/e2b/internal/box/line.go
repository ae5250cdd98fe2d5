// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/berth-dev/berth/plugins/e2b/client"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

// line opens connections to a guest: its standard input and output, which the service's daemon carries. They are one stream
// for all connections, one after the other; what is lost in between is sent again by the conversation.
type line struct {
	b      *Box
	pid    uint32
	first  *client.Process // follows a guest that was just started
	config []byte

	mu    sync.Mutex
	words []byte // guarded by mu; the last that the guest printed as errors
}

// dial opens a connection. Errors that end the conversation say what became of the sandbox.
func (l *line) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	c, err := l.open(ctx)
	if errors.Is(err, errs.AuthFailed) {
		// The token was changed, by a resume of somebody else's.
		if info, e := l.b.host.API.Get(ctx, l.b.st.Sandbox); e == nil {
			l.b.remote.Renew(info)
			c, err = l.open(ctx)
		}
	}
	if err == nil {
		return c, nil
	}
	return nil, l.b.explain(ctx, err)
}

func (l *line) open(ctx context.Context) (*pipe, error) {
	opening, proc := l.config, l.first
	l.first = nil
	// The connection outlives the dialling, which is bounded.
	whole, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	if proc == nil {
		// Whatever frame an earlier connection was cut off in ends within, and what follows is read as itself.
		opening = append(make([]byte, frame.HeaderSize+frame.MaxPayload), l.config...)
		var err error
		if proc, err = l.b.remote.Attach(whole, l.pid, asRoot); err != nil {
			cancel(err)
			return nil, err
		}
	}
	in, err := proc.Input(whole, false)
	if err == nil {
		if _, err = in.Write(opening); err != nil {
			_ = in.Close() // the first error is the one to tell
		}
	}
	if err != nil {
		proc.Close()
		cancel(err)
		return nil, err
	}
	c := &pipe{line: l, proc: proc, in: in, cancel: cancel}
	// What reads would wait for a guest that gets nothing.
	go func() {
		<-in.Done()
		_ = c.Close() // it never fails
	}()
	return c, nil
}

// said keeps what the guest prints as errors.
func (l *line) said(text []byte) {
	l.b.host.Log.Warn("the guest says", "sandbox", l.b.id, "text", string(text[:min(len(text), maxSaid)]))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.words = append(l.words, text...)
	l.words = l.words[max(0, len(l.words)-maxSaid):]
}

const maxSaid = 1 << 10

// ended is why there will be no other connection.
func (l *line) ended(e client.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	how := fmt.Sprintf("exit code %d", e.Code)
	if e.Signal != "" {
		how = e.Signal
	}
	if text := strings.TrimSpace(string(l.words)); text != "" {
		how += ", " + text
	}
	return errs.New(errs.ProcessUnknown, "berth's guest in sandbox %s has ended (%s)", l.b.id, how)
}

// pipe is one connection.
type pipe struct {
	line   *line
	proc   *client.Process
	in     *client.Input
	cancel context.CancelCauseFunc
	left   []byte // of the output that is being read
	once   sync.Once
}

// Read gives the guest's standard output.
func (p *pipe) Read(b []byte) (int, error) {
	for len(p.left) == 0 {
		e, err := p.proc.Next()
		if err != nil {
			return 0, err
		}
		switch e.Kind {
		case client.Stdout:
			p.left = e.Data
		case client.Stderr:
			p.line.said(e.Data)
		case client.Ended:
			return 0, p.line.ended(e)
		case client.Terminal:
		}
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

// Write gives to the guest's standard input.
func (p *pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends the connection; the guest goes on.
func (p *pipe) Close() error {
	p.once.Do(func() {
		p.cancel(errOver)
		p.proc.Close()
		_ = p.in.Close() // it was cancelled; the transport lets go of it only now
	})
	return nil
}
