// SPDX-License-Identifier: Apache-2.0

// Command berth-mount-rclone speaks with remote storage for the core: it serves it as file systems to sandboxes. It is the
// only program that links rclone. Credentials come to it in messages and stay in its memory: they
// are in no argument, no environment and no file.
//
// One process serves the mounts of one session that have the same time limits, since rclone has those once in a process.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	rfs "github.com/rclone/rclone/fs"
	"google.golang.org/grpc"

	_ "github.com/berth-dev/berth/mounts/rclone/internal/backends"
	"github.com/berth-dev/berth/mounts/rclone/internal/server"
	"github.com/berth-dev/berth/sdk/handshake"
	pb "github.com/berth-dev/berth/sdk/proto/berth/storage/v1"
)

func main() { os.Exit(run()) }

// drainTime bounds the end when the core is gone; every mount has a bound of its own within it.
const drainTime = 5 * time.Minute

func run() int {
	if os.Getenv(handshake.EnvCookie) != handshake.CookieValue {
		fmt.Fprintln(os.Stderr, "berth-mount-rclone mounts storage for berth, which starts it by itself. There is nothing to run by hand.")
		return 1
	}
	key, err := handshake.KeyFromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// No other process of this user may read what is in memory here, and no core dump holds it.
	if err := keepPrivate(); err != nil {
		fmt.Fprintln(os.Stderr, "keep the memory private:", err)
		return 1
	}
	stderr := os.Stderr // go-plugin puts another in its place
	log := hclog.New(&hclog.LoggerOptions{Name: "mount", Output: stderr, JSONFormat: true, Level: hclog.Info})
	last := &lastWords{}
	rfs.SetLogger(slog.NewTextHandler(last, &slog.HandlerOptions{Level: slog.LevelError}))

	p := &program{log: log, mounts: &server.Server{Log: log, Last: last.get}, ended: make(chan struct{})}
	// Taken and not ignored; the terminal's signals are for the core.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		p.end()
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
		p.end()
	}()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: map[int]plugin.PluginSet{handshake.ProtocolVersion: {handshake.PluginName: services{p: p}}},
		Logger:           hclog.NewNullLogger(),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			p.server = grpc.NewServer(append(opts, grpc.Creds(handshake.Driver(key)), grpc.MaxRecvMsgSize(handshake.MaxMessageBytes))...)
			return p.server
		},
	})
	p.end()
	return 0
}

// program is one run of it.
type program struct {
	log    hclog.Logger
	mounts *server.Server
	server *grpc.Server
	once   sync.Once
	ended  chan struct{}
}

// end sends the last writes and makes the server return.
func (p *program) end() {
	p.once.Do(func() {
		defer close(p.ended)
		ctx, cancel := context.WithTimeoutCause(context.Background(), drainTime, fmt.Errorf("not within %s", drainTime))
		defer cancel()
		p.mounts.End(ctx)
		if p.server != nil {
			p.server.Stop()
		}
	})
	<-p.ended
}

// services registers what is served.
type services struct {
	plugin.NetRPCUnsupportedPlugin
	p *program
}

// GRPCServer registers the services.
func (s services) GRPCServer(_ *plugin.GRPCBroker, srv *grpc.Server) error {
	pb.RegisterMountsServer(srv, s.p.mounts)
	return nil
}

// GRPCClient is for the core's side.
func (services) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("this is the server's side")
}

// lastWords keeps the last line of rclone's log. What it logs is told with the call that it is about, without secrets;
// as a log of its own it would hold what nobody has looked through.
type lastWords struct {
	mu   sync.Mutex
	line string // guarded by mu
}

// Write takes one record.
func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = string(b)
	return len(b), nil
}

func (l *lastWords) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}
