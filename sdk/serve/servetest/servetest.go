// SPDX-License-Identifier: Apache-2.0

// Package servetest puts a driver behind a real gRPC connection in the same process, with the codec, the limits and the
// interceptors of a driver binary. Tests of a driver and of its callers go through it and never use the bare value.
package servetest

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
	"github.com/berth-dev/berth/sdk/serve/adapter"
	"github.com/berth-dev/berth/sdk/stream"
)

// Pair serves d over memory until the test ends, as a driver binary would, and gives a connection to it.
func Pair(t testing.TB, d driver.Driver) *grpc.ClientConn {
	t.Helper()
	conn, _ := Serve(t, adapter.Config{Driver: d, Emulate: func(s driver.Sandbox, _ []driver.PathGrant) (driver.FileSystem, driver.TreeIO) {
		e := emul.New(s, emul.Options{})
		return e, e
	}})
	return conn
}

// Serve is [Pair] with a configuration of one's own.
func Serve(t testing.TB, cfg adapter.Config) (*grpc.ClientConn, *adapter.Server) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	return serve(t, cfg, l, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

// Socket is [Serve] over a unix socket.
func Socket(t testing.TB, cfg adapter.Config) (*grpc.ClientConn, *adapter.Server) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path) //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, cfg, l, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	})
}

func serve(t testing.TB, cfg adapter.Config, l net.Listener, dial func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, *adapter.Server) {
	t.Helper()
	s, err := adapter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(s.Options()...)
	s.Register(server)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:berth", append(stream.ClientOptions(), grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(stream.Codec{}), grpc.MaxCallRecvMsgSize(16<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close() // the test is over
		server.Stop()
		<-ended
	})
	return conn, s
}
