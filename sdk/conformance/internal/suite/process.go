// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/adapter"
)

const (
	startTimeout = 30 * time.Second
	// endTimeout is more than a driver has to park its sandboxes.
	endTimeout = 20 * time.Second
	// keepBytes bounds what is kept of a driver's output.
	keepBytes = 4 << 20
)

// passed are the variables that a driver process inherits.
var passed = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "BERTH_GUEST",
}

// Process is one driver process, or a value that stands for one.
type Process struct {
	Driver *rpc.Driver
	Desc   driver.Description
	Conn   *grpc.ClientConn
	PID    int // 0 = it is no process of the suite's

	suite   *Suite
	program *Program // nil = in process, or somebody else's
	server  *grpc.Server
	served  chan struct{}
	ending  sync.Once
}

// Program is a driver binary that was started.
type Program struct {
	Line   string // the handshake
	Key    handshake.Key
	Exited chan struct{}
	Stdout *Buffer // after the handshake
	Stderr *Buffer
	Dir    string // of its socket

	cmd      *exec.Cmd
	lifeline *os.File
	state    *os.ProcessState // read after Exited
}

// Buffer keeps the beginning of what is written. It may be used from several goroutines.
type Buffer struct {
	mu   sync.Mutex
	b    []byte    // guarded by mu
	also io.Writer // nil = nobody
}

// Write keeps p, within bounds.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.also != nil {
		_, _ = b.also.Write(p) // what a log says of itself is not ours to tell
	}
	b.b = append(b.b, p[:min(len(p), max(0, keepBytes-len(b.b)))]...)
	return len(p), nil
}

// String gives what was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

// Launch says how a program is started.
type Launch struct {
	Versions string // list of protocol versions; empty = ours
	NoCookie bool
	NoKey    bool
	Args     []string
}

// Start starts the driver's program and reads the first line that it prints. The caller ends it.
func (s *Suite) Start(ctx context.Context, how Launch) (*Program, error) {
	key := handshake.NewKey()
	dir, err := os.MkdirTemp(s.dir, "d")
	if err != nil {
		return nil, err
	}
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close() // the process has it
	p := &Program{
		Key: key, Dir: dir, Exited: make(chan struct{}), Stdout: &Buffer{}, Stderr: &Buffer{also: s.opts.Log},
		cmd: exec.Command(s.opts.Binary, how.Args...), lifeline: lifeline, //nolint:noctx // it is ended by Kill
	}
	p.cmd.Env = s.environ(how, key, dir)
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stderr = dir, stdin, p.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, lifeline.Close())
	}
	p.cmd.Stdout = w
	// What a process leaves behind may hold its standard error; that must not hide its end.
	p.cmd.WaitDelay = time.Second
	err = p.cmd.Start()
	w.Close() // the process has it
	if err != nil {
		return nil, errors.Join(err, lifeline.Close(), stdout.Close())
	}
	go func() {
		_ = p.cmd.Wait() // the state tells
		p.state = p.cmd.ProcessState
		close(p.Exited)
	}()
	line := make(chan string, 1)
	go func() {
		defer stdout.Close() // it was read to its end
		r := bufio.NewReader(stdout)
		first, _ := r.ReadString('\n') // no line at all is an answer too
		line <- first
		_, _ = io.Copy(p.Stdout, r) // the end of the process
	}()
	t := time.NewTimer(startTimeout)
	defer t.Stop()
	select {
	case p.Line = <-line:
		return p, nil
	case <-t.C:
		err = fmt.Errorf("no handshake within %s", startTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.Kill()
	return nil, err
}

func (s *Suite) environ(how Launch, key handshake.Key, dir string) []string {
	var env []string
	for _, name := range passed {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if how.Versions == "" {
		how.Versions = strconv.Itoa(handshake.ProtocolVersion)
	}
	env = append(env, plugin.EnvUnixSocketDir+"="+dir, "PLUGIN_PROTOCOL_VERSIONS="+how.Versions)
	if !how.NoCookie {
		env = append(env, handshake.EnvCookie+"="+handshake.CookieValue)
	}
	if !how.NoKey {
		env = append(env, handshake.EnvKey+"="+key.Encode())
	}
	return append(env, s.opts.Env...)
}

// Dial connects to the program with a key.
func (p *Program) Dial(key handshake.Key) (*grpc.ClientConn, error) {
	f := strings.Split(strings.TrimSpace(p.Line), "|")
	if len(f) < 5 || f[2] != "unix" || f[4] != "grpc" {
		return nil, fmt.Errorf("%q is no handshake of a driver; it said: %.2000s", p.Line, p.Stderr.String())
	}
	return grpc.NewClient("unix:"+f[3], append(rpc.DialOptions(), grpc.WithTransportCredentials(handshake.Core(key)))...)
}

// Signal sends a signal to the process alone.
func (p *Program) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Cut closes the lifeline, as the end of a core would.
func (p *Program) Cut() { p.lifeline.Close() } // it may be cut already

// Wait waits for the end of the process.
func (p *Program) Wait(ctx context.Context) error {
	select {
	case <-p.Exited:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// State is how the process ended; nil while it runs.
func (p *Program) State() *os.ProcessState {
	select {
	case <-p.Exited:
		return p.state
	default:
		return nil
	}
}

// Kill ends the process and its group at once and waits for it.
func (p *Program) Kill() {
	if p.State() == nil { // else the number may be another's
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended just now
	}
	<-p.Exited
	p.Cut()
	os.RemoveAll(p.Dir) // the suite's directory goes as a whole
}

// end closes the lifeline and waits; a process that does not end in time is killed.
func (p *Program) end() error {
	p.Cut()
	t := time.NewTimer(endTimeout)
	defer t.Stop()
	var err error
	select {
	case <-p.Exited:
	case <-t.C:
		err = fmt.Errorf("the driver process did not end within %s of its core", endTimeout)
	}
	p.Kill()
	return err
}

// spawn starts a driver and configures it.
func (s *Suite) spawn(ctx context.Context) (*Process, error) {
	p, err := s.spawnBare(ctx)
	if err != nil {
		return nil, err
	}
	found, err := p.Driver.Setup(ctx, s.host, p.Desc.Features, s.opts.ProcessConfig)
	for _, d := range found {
		if err == nil && !d.Warning {
			err = errs.New(errs.ConfigInvalid, "the driver refused its configuration: %s: %s", d.Summary, d.Detail)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.End())
	}
	return p, nil
}

// spawnBare starts a driver and asks what it is.
func (s *Suite) spawnBare(ctx context.Context) (*Process, error) {
	p := &Process{suite: s}
	var err error
	switch {
	case s.opts.Binary != "":
		err = p.startProgram(ctx)
	case s.opts.Driver != nil:
		err = p.serve()
	default:
		err = p.attach()
	}
	if err != nil {
		return nil, err
	}
	p.Driver = rpc.New(watched{p.Conn, s}, rpc.Config{Gone: p.gone})
	if p.Desc, err = p.Driver.Load(ctx); err != nil {
		return nil, errors.Join(err, p.End())
	}
	return p, nil
}

func (p *Process) startProgram(ctx context.Context) error {
	var err error
	if p.program, err = p.suite.Start(ctx, Launch{}); err != nil {
		return err
	}
	p.PID = p.program.cmd.Process.Pid
	if p.Conn, err = p.program.Dial(p.program.Key); err != nil {
		p.program.Kill()
	}
	return err
}

// serve serves a driver of this process over memory, as a binary would.
func (p *Process) serve() error {
	a, err := adapter.New(adapter.Config{Driver: p.suite.opts.Driver(), Emulate: func(b driver.Sandbox, grants []driver.PathGrant) (driver.FileSystem, driver.TreeIO) {
		var paths []string
		for _, g := range grants {
			paths = append(paths, g.Path)
		}
		e := emul.New(b, emul.Options{Grants: paths})
		return e, e
	}})
	if err != nil {
		return err
	}
	l := bufconn.Listen(1 << 20)
	p.server, p.served = grpc.NewServer(a.Options()...), make(chan struct{})
	a.Register(p.server)
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // it ends with Stop
	}()
	p.Conn, err = grpc.NewClient("passthrough:berth", append(rpc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	return err
}

func (p *Process) attach() error {
	at := p.suite.opts.Reattach
	text, err := os.ReadFile(at.KeyFile)
	if err != nil {
		return err
	}
	key, err := handshake.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	p.Conn, err = grpc.NewClient(at.Network+":"+at.Addr, append(rpc.DialOptions(), grpc.WithTransportCredentials(handshake.Core(key)))...)
	return err
}

// gone says how the process ended, if it did: the connection may tell first.
func (p *Process) gone() error {
	if p.program == nil {
		return nil
	}
	select {
	case <-p.program.Exited:
		return errs.New(errs.DriverCrashed, "the driver process ended: %s", p.program.state)
	case <-time.After(time.Second):
		return nil
	}
}

// ended is how the driver's program ended; nil while it runs, or when it is none of the suite's.
func (p *Process) ended() *os.ProcessState {
	if p.program == nil {
		return nil
	}
	return p.program.State()
}

// Program is the process; nil for a driver that is none of the suite's processes.
func (p *Process) Program() *Program { return p.program }

// Kill ends the driver as a crash would. Its connection stays, and tells whoever uses it.
func (p *Process) Kill() {
	if p.program != nil {
		p.program.Kill()
	}
}

// End ends the driver politely: its core goes away. Sandboxes stay as the orphan policy says.
func (p *Process) End() error {
	var err error
	p.ending.Do(func() {
		if p.program != nil && p.program.State() == nil {
			// As a core does it: ask, and let the lifeline go.
			ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Second, errors.New("no answer"))
			_ = p.Conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{}) // the end is what counts
			cancel()
			err = p.program.end()
		}
		p.close()
	})
	return err
}

func (p *Process) close() {
	if p.Conn != nil {
		p.Conn.Close() // nothing is under way
	}
	if p.server != nil {
		p.server.Stop()
		<-p.served
	}
}

// Claims says whether the driver claims a feature.
func (p *Process) Claims(f driver.Feature) bool { return slices.Contains(p.Desc.Features, f) }

// privateDir makes the suite's directory, with a name that is short enough for sockets.
func privateDir() (string, error) {
	base := os.TempDir()
	if len(base) > 40 {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "bc")
	if err != nil {
		return "", err
	}
	// The kernel gives the real name of a socket's directory.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return dir, nil
}

// newWord makes a word that nothing else has.
func newWord(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:16]) }
