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

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/fork"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/core/spec"
)

func (a *app) sessionFork(project *projectFlags) *cobra.Command {
	var o fork.Options
	var block string
	c := &cobra.Command{
		Use: "fork [flags] SESSION", Short: "Make a session with the same workspace", Args: just("a session"),
		Long: `Makes another session whose workspace holds what that of the session holds now, and prints its id. Nothing of the two is
shared: what one changes the other does not see. Where the driver can, the new workspace is a layer over the old contents;
no command runs in it. With --sandbox it is made of another sandbox block.

Only the fork of a container by its own driver has also what is installed outside of the workspace.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Session = args[0]
			return a.copySession(cmd, project, &o, block, fork.Fork)
		},
	}
	c.Flags().StringVar(&o.Key, "key", "", "the `KEY` by which it is found")
	c.Flags().StringVar(&block, "sandbox", "", "`NAME` of the sandbox block, or of a driver, that it is made of")
	return c
}

func (a *app) sessionMove(project *projectFlags) *cobra.Command {
	var o fork.Options
	var block string
	c := &cobra.Command{
		Use: "move [flags] SESSION --sandbox NAME", Short: "Put a session into another kind of sandbox", Args: just("a session"),
		Long: `Makes a sandbox of another block, fills it with what the session's workspace holds, gives it the session's key and run, and
removes the old one. The new session's id is printed. When something fails, the session is as it was.

What runs in the old sandbox ends. A run of the session goes on in the new sandbox, whatever block it names.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if block == "" {
				return usage("--sandbox is missing: the block, or the driver, that the session is moved to")
			}
			o.Session = args[0]
			return a.copySession(cmd, project, &o, block, fork.Move)
		},
	}
	c.Flags().StringVar(&block, "sandbox", "", "`NAME` of the sandbox block, or of a driver, that it is moved to")
	return c
}

// copySession makes a session of another and prints its id.
func (a *app) copySession(cmd *cobra.Command, f *projectFlags, o *fork.Options, block string,
	do func(context.Context, *berth.Harness, *spec.Project, fork.Options) (string, error),
) error {
	h, p, _, err := a.sessions(cmd.Context(), f)
	if err != nil {
		return err
	}
	if block != "" {
		if o.Sandbox, err = choose.Sandbox(p, &spec.Run{}, block); err != nil {
			return err
		}
		if err := allowed(p, a.host, h.DriverOf(o.Sandbox)); err != nil {
			return err
		}
	}
	var mu sync.Mutex // news of the driver comes from goroutines of its own
	o.What = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	o.Emit = func(d event.Data) {
		if w, ok := d.(event.Warning); ok {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(a.Err, "warning:", a.redact(w.Message))
		}
	}
	o.Left = func(left []index.Left) {
		for _, l := range left {
			fmt.Fprintf(a.Err, "left out: %s: %s\n", onLine(l.Path), l.Reason)
		}
	}
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	defer onInterrupt(func(int, os.Signal) { cancel(errors.New("interrupted")) })()
	id, err := do(ctx, h, p, *o)
	if id != "" {
		fmt.Fprintln(a.Out, id)
	}
	return err
}
