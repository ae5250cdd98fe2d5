// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/berth-dev/berth/core/catalog/digest"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
)

// DefaultStartTimeout is the time from exec to the handshake when a [Spec] says nothing else.
const DefaultStartTimeout = 30 * time.Second

// askTimeout is how long a driver may take to end when it is asked to. go-plugin's own 2 s come first.
const askTimeout = 3 * time.Second

// errorBytes is how much of one line of a driver's is put into an error.
const errorBytes = 300

// Spec says what to start.
type Spec struct {
	Name    string // of the driver, for errors and logs
	Path    string // absolute
	SHA256  string // the file must have it, in hexadecimal; empty = any
	Environ []string
	Dir     string // of this process, see [RunDir.New]; removed when the process has ended

	Digests *digest.Cache
	Log     hclog.Logger // takes what the driver writes; nil = nowhere
	Redact  *redact.Set  // nil = nothing is secret

	StartTimeout time.Duration     // 0 = DefaultStartTimeout
	DialOptions  []grpc.DialOption // besides the credential and the message limits
}

// Process is a running driver process.
type Process struct {
	spec   Spec
	client *plugin.Client
	run    *runner
	conn   *grpc.ClientConn
}

// Start starts a driver and waits for its handshake. When ctx ends first, nothing is left behind.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if spec.Log == nil {
		spec.Log = hclog.NewNullLogger()
	}
	if spec.StartTimeout == 0 {
		spec.StartTimeout = DefaultStartTimeout
	}
	key := handshake.NewKey()
	run := newRunner(spec, key)
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: map[int]plugin.PluginSet{handshake.ProtocolVersion: {handshake.PluginName: connection{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc:       run.take,
		SkipHostEnv:      true,
		StartTimeout:     spec.StartTimeout,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: spec.Dir},
		SyncStdout:       &lines{relog: run.log.sibling()},
		SyncStderr:       &lines{relog: run.log.sibling()},
		Logger:           hclog.NewNullLogger(), // the runner logs what the driver writes
		GRPCDialOptions: append([]grpc.DialOption{
			grpc.WithTransportCredentials(handshake.Core(key)),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(handshake.MaxMessageBytes),
				grpc.MaxCallSendMsgSize(handshake.MaxMessageBytes)),
		}, spec.DialOptions...),
	})
	p := &Process{spec: spec, client: client, run: run}
	stop := context.AfterFunc(ctx, func() { run.end(0) })
	err := p.connect()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.Kill()
		return nil, p.startError(ctx, err)
	}
	return p, nil
}

func (p *Process) connect() error {
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(handshake.PluginName)
	if err != nil {
		return err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return fmt.Errorf("go-plugin gave a %T, not a connection", raw)
	}
	p.conn = conn
	return nil
}

// connection is go-plugin's view of a driver: nothing but the connection.
type connection struct{ plugin.NetRPCUnsupportedPlugin }

// GRPCServer is for the other side.
func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("the core serves no driver")
}

// GRPCClient hands the connection on.
func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// Conn is the connection to the driver.
func (p *Process) Conn() *grpc.ClientConn { return p.conn }

// PID is the process id.
func (p *Process) PID() int { return p.run.pid() }

// SHA256 is the digest of the file that runs.
func (p *Process) SHA256() string { return p.run.sum }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.run.exited }

// Broken reports that the connection has failed. It cannot come back: a driver serves its core, and no other.
func (p *Process) Broken() bool {
	s := p.conn.GetState()
	return s == connectivity.TransientFailure || s == connectivity.Shutdown
}

// Crash describes how the process ended. It waits until the process has ended.
func (p *Process) Crash() *Crash { return p.run.crash() }

// Kill ends the process: it is asked to, then told to (TERM, a second, KILL, to its whole group). Kill returns when it
// has ended and its directory is removed.
func (p *Process) Kill() {
	// go-plugin asks without a deadline; a driver that does not answer is ended all the same.
	force := time.AfterFunc(askTimeout, func() { p.run.end(killGrace) })
	p.client.Kill()
	force.Stop()
	p.run.end(killGrace)
	os.RemoveAll(p.spec.Dir)
}

// startError says why a driver did not start. Precondition: the process has ended or was never there.
func (p *Process) startError(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err
	}
	out := errs.New(errs.DriverStartFailed, "driver %q did not start", p.spec.Name).With("driver", p.spec.Name).With("path", p.spec.Path)
	if ctx.Err() != nil {
		out.Code, out.Err = errs.Canceled, context.Cause(ctx)
		return out
	}
	line := p.run.firstLine()
	if v, ok := protocolVersion(line); ok && v != handshake.ProtocolVersion {
		return incompatible(p.spec.Name, p.spec.Path, v)
	}
	switch {
	case !p.run.started():
		out.Err = err
	case p.run.timedOut(err):
		out.Err = fmt.Errorf("no handshake within %s", p.spec.StartTimeout)
	case line != "":
		out.Err = fmt.Errorf("%q is not a handshake: %w", shorten(p.spec.Redact.String(line)), p.Crash())
	default:
		out.Err = p.Crash()
	}
	return out.WithHint("run %s describe --json by hand to see whether it is a driver", p.spec.Path)
}

// incompatible refuses a driver that speaks another protocol.
func incompatible(name, path string, protocol int) error {
	return errs.New(errs.DriverIncompatible, "driver %q (%s) speaks protocol %d, this berth speaks %d", name, path, protocol, handshake.ProtocolVersion).
		With("driver", name).With("path", path).WithHint("install a version of the driver that speaks protocol %d", handshake.ProtocolVersion)
}

// protocolVersion reads the second field of go-plugin's handshake line.
func protocolVersion(line string) (int, bool) {
	parts := strings.Split(line, "|")
	if len(parts) < 4 {
		return 0, false
	}
	v, err := strconv.Atoi(parts[1])
	return v, err == nil
}

// Crash is the end of a process that nobody wished for, with its last lines.
type Crash struct {
	Driver string
	Path   string
	PID    int
	Status string // "exit status 2", "signal: killed"
	Log    []string
	Ran    time.Duration
}

// Error says how the process ended, with the one line that most likely says why.
func (c *Crash) Error() string {
	s := fmt.Sprintf("the process of driver %q (%d) ended: %s", c.Driver, c.PID, c.Status)
	if l := c.lastWords(); l != "" {
		s += "; it said: " + shorten(l)
	}
	return s
}

// shorten cuts a line that a driver wrote to what an error can hold. The log has all of it.
func shorten(line string) string {
	if len(line) <= errorBytes {
		return line
	}
	return strings.ToValidUTF8(line[:errorBytes], "") + "…"
}

// lastWords is the first line of a panic, else the last line.
func (c *Crash) lastWords() string {
	for _, l := range c.Log {
		if strings.HasPrefix(l, "panic: ") || strings.HasPrefix(l, "fatal error: ") {
			return l
		}
	}
	if len(c.Log) == 0 {
		return ""
	}
	return c.Log[len(c.Log)-1]
}
