// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/portforward"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func (a *app) sessionPorts(project *projectFlags) *cobra.Command {
	var asJSON, watch bool
	c := &cobra.Command{
		Use:   "ports [flags] SESSION",
		Short: "Show the addresses of a session's ports",
		Long: `Shows the ports that the sandbox block exposes, with their addresses. A driver that gives none leaves it to berth session
forward. With --watch it tells instead of every server that listens inside, and of those that begin and end, until Ctrl-C.`,
		Args: just("a session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				if watch {
					return a.watchPorts(ctx, s, asJSON)
				}
				ports := []event.Port{}
				for _, p := range s.Ports() {
					if p.Here {
						p.URL = "" // it ends with this command
					}
					ports = append(ports, p)
				}
				if asJSON {
					return a.printJSON(ports)
				}
				if len(ports) == 0 {
					_, err := fmt.Fprintf(a.Err, "the session exposes no ports\nhint: berth session forward %s PORT reaches any of them\n", args[0])
					return err
				}
				w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
				fmt.Fprintln(w, "PORT\tADDRESS")
				for _, p := range ports {
					at := p.URL
					if p.Here {
						at = fmt.Sprintf("none: berth session forward %s %d", args[0], p.Port)
					}
					fmt.Fprintf(w, "%d\t%s\n", p.Port, at)
				}
				return w.Flush()
			})
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "tell of servers inside until Ctrl-C")
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON; with --watch one object a line")
	return c
}

// watchPorts tells of servers inside until it is interrupted.
func (a *app) watchPorts(ctx context.Context, s *session.Session, asJSON bool) error {
	watcher, ok := s.Sandbox.(driver.Watcher)
	if !ok {
		return errs.New(errs.Unsupported, "the session's driver does not tell of ports inside")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	interrupted := errors.New("interrupted")
	release := onInterrupt(func(int, os.Signal) { cancel(interrupted) })
	defer release()
	err := watcher.Watch(ctx, func(e driver.Event) {
		what := map[driver.EventKind]string{driver.EventPortOpened: "opened", driver.EventPortClosed: "closed"}[e.Kind]
		switch {
		case what == "":
		case asJSON:
			fmt.Fprintf(a.Out, "{\"port\":%d,\"event\":%q}\n", e.Port, what)
		default:
			fmt.Fprintf(a.Out, "%d %s\n", e.Port, what)
		}
	})
	if errors.Is(context.Cause(ctx), interrupted) {
		return nil
	}
	return err
}

func (a *app) sessionForward(project *projectFlags) *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "forward [flags] SESSION [LOCAL:]PORT...",
		Short: "Make ports of a session's sandbox reachable on this machine",
		Long: `Listens on this machine and passes every connection on to a port inside the sandbox, until Ctrl-C. LOCAL is the port here,
the same one when it is left out and any free one when it is 0. The sandbox needs no network for that.`,
		Example: `  berth session forward 06h3 8000
  berth session forward 06h3 8080:80 0:5432`,
		Args: atLeast(2, "a session and a port"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var wanted []forwarded
			for _, arg := range args[1:] {
				f, err := parseForward(arg)
				if err != nil {
					return err
				}
				wanted = append(wanted, f)
			}
			return a.inSession(cmd, project, args[0], func(ctx context.Context, s *session.Session) error {
				dialer, ok := s.Sandbox.(driver.PortForwarder)
				if !ok {
					return errs.New(errs.Unsupported, "the session's driver cannot connect to ports inside")
				}
				return a.forward(ctx, dialer, address, wanted)
			})
		},
	}
	c.Flags().StringVar(&address, "address", "127.0.0.1", "the `ADDRESS` to listen on")
	return c
}

type forwarded struct{ local, remote uint16 }

func parseForward(arg string) (forwarded, error) {
	local, remote, both := strings.Cut(arg, ":")
	if !both {
		remote = local
	}
	l, err := strconv.ParseUint(local, 10, 16)
	r, rerr := strconv.ParseUint(remote, 10, 16)
	if err != nil || rerr != nil || r == 0 {
		return forwarded{}, usage("%q is no port; it is PORT or LOCAL:PORT, from 1 to 65535", arg)
	}
	return forwarded{uint16(l), uint16(r)}, nil
}

// forward serves until it is interrupted. All ports are bound before the first connection is taken.
func (a *app) forward(ctx context.Context, dialer driver.PortForwarder, address string, wanted []forwarded) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	interrupted := errors.New("interrupted")
	release := onInterrupt(func(int, os.Signal) { cancel(interrupted) })
	defer release()
	var mu sync.Mutex
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		a.report(err)
	}
	var lines strings.Builder
	for _, w := range wanted {
		f, err := portforward.Listen(ctx, dialer, net.JoinHostPort(address, strconv.Itoa(int(w.local))), w.remote, failed)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(&lines, "%s -> %d\n", f.Addr(), f.Remote())
	}
	if _, err := io.WriteString(a.Out, lines.String()); err != nil {
		return err
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, interrupted) {
		return cause
	}
	return nil
}
