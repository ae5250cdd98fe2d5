// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/session"
)

// sessionUse are the commands that work in a session's sandbox.
func (a *app) sessionUse() []*cobra.Command {
	var project projectFlags
	subs := []*cobra.Command{
		a.sessionExec(&project), a.sessionShell(&project), a.sessionPS(&project), a.sessionAttach(&project),
		a.sessionKill(&project), a.sessionCP(&project), a.sessionLS(&project), a.sessionCat(&project),
		a.sessionPorts(&project), a.sessionForward(&project), a.sessionSnapshot(&project), a.sessionRestore(&project),
		a.sessionFork(&project), a.sessionMove(&project),
	}
	for _, c := range subs {
		project.add(c.Flags())
	}
	return subs
}

// inSession opens a session of the working directory's project, named by its id, the beginning of it, or its key, lets do
// work in it and puts it back as it was found.
func (a *app) inSession(cmd *cobra.Command, f *projectFlags, name string, do func(context.Context, *session.Session) error) (err error) {
	ctx := cmd.Context()
	h, p, _, err := a.sessions(ctx, f)
	if err != nil {
		return err
	}
	var mu sync.Mutex // news of the driver comes from goroutines of its own
	warn := func(d event.Data) {
		if w, ok := d.(event.Warning); ok {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(a.Err, "warning:", a.redact(w.Message))
		}
	}
	opening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	release := onInterrupt(func(int, os.Signal) { cancel(errors.New("interrupted")) })
	s, err := h.OpenSession(opening, p, name, strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), warn)
	release()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Release(context.WithoutCancel(ctx))) }()
	return do(ctx, s)
}
