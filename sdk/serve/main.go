// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/internal/redact"
	"github.com/berth-dev/berth/sdk/serve/adapter"
)

const (
	// drainTimeout bounds the end of a driver whose core is gone.
	drainTimeout = 10 * time.Second
	// hurriedDrain is for a core that ended the connection first: go-plugin kills after 2 s.
	hurriedDrain = 1500 * time.Millisecond
)

// Main is the main function of a driver binary. It does not return.
func Main(newDriver func(log hclog.Logger) driver.Driver) {
	// Whatever prints from here on prints to standard error.
	stdout, err := divertStdout()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p := &program{newDriver: newDriver, stdout: stdout, stderr: os.Stderr, redact: new(redact.Set)}
	os.Exit(p.run(os.Args[1:]))
}

// program is one run of a driver binary.
type program struct {
	newDriver func(hclog.Logger) driver.Driver
	stdout    *os.File // the real one
	stderr    *os.File
	redact    *redact.Set
	log       hclog.Logger
	driver    driver.Driver
	adapter   *adapter.Server
	server    *grpc.Server

	ending   sync.Once
	ended    chan struct{} // closed when the shutdown that began is over
	diverted sync.Once
}

func (p *program) run(args []string) int {
	name := strings.TrimPrefix(filepath.Base(os.Args[0]), "berth-driver-")
	if len(args) > 0 {
		return p.command(name, args)
	}
	if os.Getenv(handshake.EnvCookie) != handshake.CookieValue {
		fmt.Fprintf(p.stderr, refusal, filepath.Base(os.Args[0]), name)
		return 1
	}
	p.log = newLogger("driver."+name, p.stderr, p.redact)
	key, err := handshake.KeyFromEnvironment()
	if err != nil {
		p.log.Error("driver key", "error", err)
		return 1
	}
	if os.Getenv(handshake.EnvWait) == "1" {
		fmt.Fprintf(p.stderr, "driver process %d waits for a debugger, or for SIGUSR1\n", os.Getpid())
		waitForDebugger()
	}
	if err := p.prepare(); err != nil {
		p.log.Error("driver is faulty", "error", err)
		return 1
	}
	p.watchSignals()
	go p.watchLifeline(os.Stdin)
	os.Stdout = p.stdout // go-plugin prints the handshake to it
	plugin.Serve(p.serveConfig(key))
	if p.server == nil {
		return 1 // the reason was logged
	}
	p.shutdown("the core ended the connection", hurriedDrain)
	<-p.ended
	return 0
}

const refusal = `%[1]s makes sandboxes for berth, which starts it by itself. There is nothing to run by hand.

To use it:   sandbox "NAME" { driver = %[2]q }
To look:     %[1]s describe
`

// prepare makes the driver and what serves it.
func (p *program) prepare() error {
	p.ended = make(chan struct{})
	if p.driver = p.newDriver(p.log); p.driver == nil {
		return errs.New(errs.Internal, "the constructor gave no driver")
	}
	var err error
	p.adapter, err = adapter.New(adapter.Config{
		Driver: p.driver, Log: p.log, Redact: p.redact, Emulate: emulate,
		OnConfigure: func(h driver.Host) {
			if level := hclog.LevelFromString(h.LogLevel); level != hclog.NoLevel {
				p.log.SetLevel(level)
			}
		},
	})
	return err
}

// watchSignals keeps the terminal's signals away, and a closed standard error from ending the process: the core that
// read it may be gone while sandboxes are still to be parked. The signals are taken and not ignored, because children
// inherit ignored ones.
func (p *program) watchSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	// A channel of its own: a signal that finds the channel full is lost.
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		p.shutdown("SIGTERM", drainTimeout)
	}()
}

// watchLifeline waits for the end of standard input.
func (p *program) watchLifeline(stdin io.Reader) {
	// An error is an end too: there is no way to see the core any more.
	_, _ = io.Copy(io.Discard, stdin)
	p.shutdown("the core is gone", drainTimeout)
}

// shutdown ends the process: it drains once and then stops the server, which makes plugin.Serve return.
func (p *program) shutdown(reason string, timeout time.Duration) {
	p.ending.Do(func() {
		defer close(p.ended)
		p.log.Debug("driver ends", "reason", reason)
		policy := p.adapter.Host().Orphans
		ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errs.New(errs.StopFailed, "not parked within %s", timeout))
		defer cancel()
		drained := make(chan error, 1)
		go func() {
			drained <- p.adapter.Drain(ctx, policy, func(r driver.DrainResult) {
				p.log.Debug("session ends", "sandbox", r.SandboxID, "outcome", r.Outcome, "error", r.Err)
			})
		}()
		select {
		case err := <-drained:
			if err != nil && !errors.Is(err, errs.Unsupported) {
				p.log.Error("drain", "error", err)
			}
		case <-ctx.Done():
			p.log.Error("drain", "error", context.Cause(ctx))
		}
		if p.server != nil {
			p.server.Stop()
		}
		// The core removes the socket's directory, unless it is gone. The process may end as soon as this function has.
		if dir := os.Getenv(plugin.EnvUnixSocketDir); dir != "" {
			_ = os.Remove(dir) // it is not ours unless it is empty
		}
	})
	<-p.ended
}

// divert gives prints back to standard error: go-plugin points them at a service of its own, which blocks when the host
// does not read it.
func (p *program) divert() {
	p.diverted.Do(func() { os.Stdout, os.Stderr = p.stderr, p.stderr })
}

func (p *program) divertUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	p.divert()
	return next(ctx, req)
}

func (p *program) divertStream(srv any, st grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	p.divert()
	return next(srv, st)
}

// grpcPlugin registers the services with go-plugin.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	adapter *adapter.Server
}

// GRPCServer registers the driver's services.
func (g grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	g.adapter.Register(s)
	return nil
}

// GRPCClient is for the host's side, which is not here.
func (grpcPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errs.New(errs.Unsupported, "this is the driver's side")
}
