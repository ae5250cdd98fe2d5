// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
)

// Attached is a driver process that somebody else started, for a debugger. It is never ended from here.
type Attached struct {
	conn *grpc.ClientConn
	gone chan struct{} // closed when the connection has ended
}

// Attach connects to a driver that runs already. Protocol, user and key are checked as for one that is started.
func Attach(ctx context.Context, name string, at handshake.Reattach, options ...grpc.DialOption) (*Attached, error) {
	if at.Protocol != handshake.ProtocolVersion {
		return nil, incompatible(name, at.Addr, at.Protocol)
	}
	key, err := readKey(at.KeyFile)
	if err != nil {
		return nil, attachError(name, at, err)
	}
	// A connection that is not used stays: its end is how the end of the driver is seen.
	conn, err := grpc.NewClient(at.Network+":"+at.Addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(handshake.Core(key)), grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(handshake.MaxMessageBytes), grpc.MaxCallSendMsgSize(handshake.MaxMessageBytes)),
	}, options...)...)
	if err != nil {
		return nil, attachError(name, at, err)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "plugin"}); err != nil {
		conn.Close() // the call's error is what matters
		if ctx.Err() != nil {
			return nil, errs.Wrap(errs.Canceled, "attach to driver "+name, context.Cause(ctx))
		}
		return nil, attachError(name, at, errors.New(status.Convert(err).Message()))
	}
	a := &Attached{conn: conn, gone: make(chan struct{})}
	go func() { //nolint:gosec // it outlives the request
		defer close(a.gone)
		conn.WaitForStateChange(context.Background(), connectivity.Ready)
	}()
	return a, nil
}

func attachError(name string, at handshake.Reattach, err error) error {
	e := errs.New(errs.DriverStartFailed, "driver %q at %s, which %s names, cannot be used", name, at.Addr, handshake.EnvReattach).
		With("driver", name).With("path", at.Addr)
	e.Err = err
	return e.WithHint("start it again with the command serve and set %s to what it prints, or unset the variable", handshake.EnvReattach)
}

// readKey reads a key that nobody but this user can have read or written.
func readKey(path string) (handshake.Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return handshake.Key{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return handshake.Key{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || ok && int(st.Uid) != os.Geteuid() {
		return handshake.Key{}, errs.New(errs.PermissionDenied, "the key file %s is not a file of user %d that only he may read (mode %04o)",
			path, os.Geteuid(), info.Mode().Perm())
	}
	const most = 1 << 10
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return handshake.Key{}, err
	}
	key, err := handshake.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return handshake.Key{}, errs.New(errs.AuthFailed, "the key file %s does not hold a driver's key", path)
	}
	return key, nil
}

// errDetached is how an attached process ends for us.
var errDetached = errors.New("the driver closed the connection: it ended, or a debugger ended it")

// Conn is the connection to the driver.
func (a *Attached) Conn() *grpc.ClientConn { return a.conn }

// Exited is closed when the connection has ended: the driver is gone.
func (a *Attached) Exited() <-chan struct{} { return a.gone }

// Crash says that the connection ended; what the process did is for its debugger to tell. It waits for the end.
func (a *Attached) Crash() error {
	<-a.gone
	return errDetached
}

// Close ends the connection and nothing else.
func (a *Attached) Close() {
	a.conn.Close() // it is closed twice, or it is closed
	<-a.gone
}
