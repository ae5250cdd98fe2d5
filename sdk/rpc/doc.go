// SPDX-License-Identifier: Apache-2.0

// Package rpc is the core's side of the driver protocol: a [Driver] over a gRPC connection that implements
// driver.Driver, whose sandboxes implement driver.Sandbox, and all of their optional interfaces. What the driver at the
// other end lacks is errs.Unsupported.
//
// Nothing is repeated and nothing is restarted here: an error says whether the link or the driver broke
// (errs.ExecTransport, errs.DriverCrashed) and whether the call may have had an effect, and the caller decides.
package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

// describeTimeout bounds [Driver.Describe], which has no context.
const describeTimeout = 5 * time.Second

// Config says what the client knows of the other end.
type Config struct {
	// Gone tells whether the driver process has ended, and how: the error is given in place of the transport's. It is
	// called after a transport fault only and may wait a moment for the process to be reaped. Nil = not known.
	Gone func() error
}

// Driver is a driver at the other end of a connection.
type Driver struct {
	gone func() error

	driver    pb.DriverClient
	sandboxes pb.SandboxesClient
	processes pb.ProcessesClient
	files     pb.FilesClient
	snapshots pb.SnapshotsClient
	ports     pb.PortsClient
	mounts    pb.MountsClient

	mu   sync.Mutex
	desc *driver.Description // guarded by mu
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.Configurer    = (*Driver)(nil)
	_ driver.Validator     = (*Driver)(nil)
	_ driver.HealthWatcher = (*Driver)(nil)
	_ driver.Lister        = (*Driver)(nil)
	_ driver.Drainer       = (*Driver)(nil)
	_ driver.SnapshotStore = (*Driver)(nil)
)

// DialOptions are what a connection to a driver should be made with, beside its credential.
func DialOptions() []grpc.DialOption {
	return append(stream.ClientOptions(), grpc.WithDefaultCallOptions(callOptions()...))
}

func callOptions() []grpc.CallOption {
	return []grpc.CallOption{
		grpc.ForceCodecV2(stream.Codec{}), grpc.MaxCallRecvMsgSize(handshake.MaxMessageBytes),
		grpc.MaxCallSendMsgSize(handshake.MaxMessageBytes),
	}
}

// New makes a client of the driver at the other end of conn. The caller keeps conn.
func New(conn grpc.ClientConnInterface, cfg Config) *Driver {
	c := codecConn{conn, callOptions()}
	d := &Driver{
		gone: cfg.Gone, driver: pb.NewDriverClient(c), sandboxes: pb.NewSandboxesClient(c),
		processes: pb.NewProcessesClient(c), files: pb.NewFilesClient(c), snapshots: pb.NewSnapshotsClient(c),
		ports: pb.NewPortsClient(c), mounts: pb.NewMountsClient(c),
	}
	if d.gone == nil {
		d.gone = func() error { return nil }
	}
	return d
}

// codecConn makes every call use the chunk codec, whatever the connection was made with.
type codecConn struct {
	grpc.ClientConnInterface
	options []grpc.CallOption
}

func (c codecConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, c.with(opts)...)
}

func (c codecConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(ctx, desc, method, c.with(opts)...)
}

func (c codecConn) with(opts []grpc.CallOption) []grpc.CallOption {
	all := make([]grpc.CallOption, 0, len(c.options)+len(opts))
	return append(append(all, c.options...), opts...)
}

// Describe gives the description that [Driver.Load] got last; the zero Description when there is none to be had.
func (d *Driver) Describe() driver.Description {
	d.mu.Lock()
	known := d.desc
	d.mu.Unlock()
	if known != nil {
		return *known
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), describeTimeout,
		errs.New(errs.DriverStartFailed, "the driver did not describe itself within %s", describeTimeout))
	defer cancel()
	desc, err := d.Load(ctx)
	if err != nil {
		return driver.Description{}
	}
	return desc
}

// Load asks the driver to describe itself.
func (d *Driver) Load(ctx context.Context) (driver.Description, error) {
	resp, err := d.driver.Describe(ctx, &pb.DescribeRequest{})
	if err != nil {
		return driver.Description{}, d.fail(ctx, "describe", err)
	}
	desc, err := wire.Description(resp)
	if err != nil {
		return driver.Description{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.desc = &desc
	return desc, nil
}

// Setup configures the driver process. Features are those that the core accepts.
func (d *Driver) Setup(ctx context.Context, host driver.Host, features []driver.Feature, config schema.Value) ([]driver.Diagnostic, error) {
	resp, err := d.driver.Configure(ctx, wire.HostProto(host, features, wire.ValueProto(config)))
	if err != nil {
		return nil, d.fail(ctx, "configure", err)
	}
	return wire.Diagnostics(resp.GetDiagnostics()), nil
}

// Configure is [Driver.Setup] with every feature that the driver has. An error becomes a finding.
func (d *Driver) Configure(ctx context.Context, host driver.Host, config schema.Value) []driver.Diagnostic {
	ds, err := d.Setup(ctx, host, d.Describe().Features, config)
	if err != nil {
		return []driver.Diagnostic{{Summary: "The driver could not be configured", Detail: err.Error()}}
	}
	return ds
}

// Check validates a sandbox configuration.
func (d *Driver) Check(ctx context.Context, config schema.Value, online bool) ([]driver.Diagnostic, error) {
	resp, err := d.driver.Validate(ctx, &pb.ValidateRequest{Config: wire.ValueProto(config), Online: online})
	if err != nil {
		return nil, d.fail(ctx, "validate", err)
	}
	return wire.Diagnostics(resp.GetDiagnostics()), nil
}

// Validate is [Driver.Check] without the error of a driver that does not check. Another error becomes a finding.
func (d *Driver) Validate(ctx context.Context, config schema.Value, online bool) []driver.Diagnostic {
	ds, err := d.Check(ctx, config, online)
	if err != nil && errs.CodeOf(err) != errs.Unsupported {
		return []driver.Diagnostic{{Summary: "The driver could not check the configuration", Detail: err.Error()}}
	}
	return ds
}
