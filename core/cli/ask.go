// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/berth-dev/berth/core/approval"
	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/runner"
)

// asker asks the person at the terminal, one call after the other.
type asker struct {
	in   *os.File
	hold func(text string) (release func())

	turn  sync.Mutex // one question at a time
	once  sync.Once
	lines chan string // set by once; closed at the end of the input
}

// asker gives one when there is a terminal to ask at; nil = there is none.
func (a *app) asker(s show.Shower) *asker {
	h, ok := s.(show.Holder)
	if !ok || !a.interactive() {
		return nil
	}
	return &asker{in: a.In.(*os.File), hold: h.Hold} //nolint:errcheck // interactive has looked
}

// interactive reports whether there is a person who sees questions and can answer them.
func (a *app) interactive() bool {
	in, ok := a.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return false
	}
	_, ok = terminal(a.Err)
	return ok
}

// approve asks about a call until there is an answer or the context ends. The end of the input is no answer.
func (k *asker) approve(ctx context.Context, a runner.Approval) (runner.Decision, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	if ctx.Err() != nil {
		return runner.Decision{}, context.Cause(ctx)
	}
	keys := "[y]es, [n]o, or why not: "
	if a.Covers.Tool != "" {
		keys = fmt.Sprintf("[y]es, [n]o, [a]lways in this run (%s), or why not: ", approval.Describe(a.Covers))
	}
	if a.Unsure {
		keys = "make it (again)? [y]es, [n]o, or what the model should know: "
	}
	question := show.Question(a.Call.Name, a.Call.Arguments, a.Reason, a.Unsure) + "\n" + show.Lines(keys)
	k.once.Do(k.read)
	k.forget()
	release := k.hold(question)
	defer release()
	for {
		select {
		case line, ok := <-k.lines:
			if !ok {
				k.hold("\n")()
				return runner.Decision{}, runner.ErrUndecided
			}
			d := runner.Decision{By: "terminal"}
			switch answer := strings.TrimSpace(line); strings.ToLower(answer) {
			case "":
				k.hold(show.Lines(keys))()
				continue
			case "y", "yes":
				d.Allow = true
			case "a", "always":
				if a.Covers.Tool == "" {
					k.hold(show.Lines(keys))()
					continue
				}
				d.Allow, d.Always = true, true
			case "n", "no":
			default:
				d.Message = answer
			}
			return d, nil
		case <-ctx.Done():
			k.hold("\n")()
			return runner.Decision{}, context.Cause(ctx)
		}
	}
}

// read reads lines for as long as the process lives: a read of a terminal cannot be given up.
func (k *asker) read() {
	k.lines = make(chan string)
	go func() {
		defer close(k.lines)
		const most = 64 << 10
		r := bufio.NewReader(k.in)
		for {
			line, err := r.ReadString('\n')
			if err != nil && (line == "" || err != io.EOF) { // bufio gives it bare
				return
			}
			if len(line) <= most {
				k.lines <- line
			}
		}
	}()
}

// forget drops what was typed before the question: it answers something else.
func (k *asker) forget() {
	_ = flushInput(int(k.in.Fd())) // a terminal that cannot do it keeps what was typed
	for {
		select {
		case _, ok := <-k.lines:
			if !ok {
				return
			}
		default:
			return
		}
	}
}
