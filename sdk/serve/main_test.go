// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

// The test binary is its own driver binary, and the host that is killed.
const (
	asDriver = "BERTH_TEST_DRIVER"
	asHost   = "BERTH_TEST_HOST"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asDriver) != "":
		Main(func(l hclog.Logger) driver.Driver {
			fmt.Println("printed by the constructor")
			return &testDriver{log: l, marker: os.Getenv(asDriver)}
		})
	case os.Getenv(asHost) != "":
		beHost()
	}
	os.Exit(m.Run())
}

// testDriver keeps a file for each sandbox in the directory marker.
type testDriver struct {
	log    hclog.Logger
	marker string
}

func (d *testDriver) Describe() driver.Description {
	return driver.Description{
		Name: "test", Version: "0.1.0", Features: []driver.Feature{driver.ProcSignal},
		ProcessConfig: &schema.Schema{Block: schema.Block{Attributes: []schema.Attribute{
			{Name: "token", Type: schema.String, Sensitive: true}, {Name: "region", Type: schema.String, Default: "eu"},
		}}},
	}
}

func (d *testDriver) Configure(_ context.Context, h driver.Host, config schema.Value) []driver.Diagnostic {
	d.log.Debug("configured", "config", string(config.JSON))
	return []driver.Diagnostic{{Warning: true, Summary: "seen", Detail: string(config.JSON)}}
}

func (d *testDriver) Create(_ context.Context, r *driver.CreateRequest) (driver.Sandbox, error) {
	return testSandbox{d, r.SandboxID}, os.WriteFile(filepath.Join(d.marker, r.SandboxID), nil, 0o600)
}

func (d *testDriver) Resume(_ context.Context, r *driver.ResumeRequest) (driver.Sandbox, error) {
	if _, err := os.Stat(filepath.Join(d.marker, string(r.State.Data))); err != nil {
		return nil, errs.New(errs.SandboxGone, "no such file")
	}
	return testSandbox{d, string(r.State.Data)}, nil
}

type testSandbox struct {
	d  *testDriver
	id string
}

func (s testSandbox) State() driver.State { return driver.State{Data: []byte(s.id)} }

func (s testSandbox) Destroy(context.Context) error {
	return os.Remove(filepath.Join(s.d.marker, s.id))
}

func (s testSandbox) Run(_ context.Context, cmd *driver.Command, st driver.Streams) (driver.Exit, error) {
	st.OnStart(driver.Started{})
	secret := cmd.SecretEnv["S"]
	switch cmd.Argv[0] {
	case "env":
		fmt.Fprint(st.Stdout, strings.Join(os.Environ(), "\n"))
	case "print":
		fmt.Println("printed by Go")
		for range 2000 {
			fmt.Println(strings.Repeat("x", 100))
		}
		child := exec.Command("sh", "-c", "echo printed by a child; head -c 200000 /dev/zero | tr '\\0' y")
		child.Stdout = os.NewFile(1, "fd 1")
		return driver.Exit{}, child.Run()
	case "log":
		s.d.log.Debug("to hclog", "secret", secret, "n", 1)
		s.d.log.Trace("too fine")
		slog.Warn("to slog", "secret", secret, slog.Group("g", "k", "v"))
		log.Println("to log", secret)
		s.d.log.Error("long", "text", strings.Repeat("é", 100_000))
		panic("with " + secret)
	}
	return driver.Exit{}, nil
}

// process is a driver binary that runs.
type process struct {
	cmd    *exec.Cmd
	key    handshake.Key
	stdin  io.WriteCloser
	addr   string
	dir    string // of sockets
	stderr lockedBuffer
	more   lockedBuffer // of standard output, after the handshake
	exited chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func environment(marker, dir string, key handshake.Key) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), asDriver + "=" + marker, handshake.EnvCookie + "=" + handshake.CookieValue,
		handshake.EnvKey + "=" + key.Encode(), plugin.EnvUnixSocketDir + "=" + dir,
		"PLUGIN_PROTOCOL_VERSIONS=" + strconv.Itoa(handshake.ProtocolVersion),
	}
}

// launch starts the binary and reads its handshake.
func launch(t *testing.T, marker string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &process{key: handshake.NewKey(), dir: filepath.Join(dir, "s"), exited: make(chan error, 1)}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = environment(marker, p.dir, p.key)
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, w := io.Pipe()
	p.cmd.Stdout = w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		w.Close()
		p.exited <- err
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("stderr:\n%.4000s", p.stderr.String())
		}
	})
	r := bufio.NewReader(stdout)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("handshake: %v\n%s", err, p.stderr.String())
	}
	go io.Copy(&p.more, r)
	f := strings.Split(strings.TrimSpace(line), "|")
	if len(f) < 5 || f[0] != "1" || f[1] != "1" || f[2] != "unix" || f[4] != "grpc" {
		t.Fatalf("handshake %q", line)
	}
	p.addr = f[3]
	return p
}

func (p *process) dial(t *testing.T, key handshake.Key) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+p.addr, grpc.WithTransportCredentials(handshake.Core(key)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(stream.Codec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("the driver ended with %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Error("the driver did not end")
	}
}

func makeSandbox(t *testing.T, conn *grpc.ClientConn, id string) {
	t.Helper()
	st, err := pb.NewSandboxesClient(conn).Create(t.Context(), &pb.CreateRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := st.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetReady() != nil {
			return
		}
	}
}

func command(t *testing.T, conn *grpc.ClientConn, secret string, argv ...string) (string, error) {
	t.Helper()
	r, err := pb.NewProcessesClient(conn).Exec(t.Context(), &pb.ExecRequest{Start: &pb.Start{
		SandboxId: "sb", Argv: argv, SecretEnv: []*pb.SecretEnv{{Name: "S", Value: secret}},
	}})
	return string(r.GetStdout().GetHead()), err
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 15 s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestPrintsDoNoHarm(t *testing.T) {
	p := launch(t, t.TempDir())
	conn := p.dial(t, p.key)
	makeSandbox(t, conn, "sb")
	if _, err := command(t, conn, "", "print"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "prints on standard error", func() bool {
		s := p.stderr.String()
		return strings.Contains(s, "printed by the constructor") && strings.Contains(s, "printed by Go") &&
			strings.Contains(s, "printed by a child") && strings.Count(s, "y") > 200_000
	})
	if s := p.more.String(); s != "" {
		t.Errorf("on standard output after the handshake: %q", s)
	}
}

func TestTheKeyIsNotInherited(t *testing.T) {
	p := launch(t, t.TempDir())
	conn := p.dial(t, p.key)
	makeSandbox(t, conn, "sb")
	env, err := command(t, conn, "", "env")
	if err != nil || !strings.Contains(env, handshake.EnvCookie) || strings.Contains(env, handshake.EnvKey) {
		t.Errorf("%v, %q", err, env)
	}
}

func TestOtherKeysAreRefused(t *testing.T) {
	p := launch(t, t.TempDir())
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("no answer"))
	defer cancel()
	if _, err := pb.NewDriverClient(p.dial(t, handshake.NewKey())).Describe(ctx, &pb.DescribeRequest{}); err == nil {
		t.Error("a wrong key was accepted")
	}
	if _, err := pb.NewDriverClient(p.dial(t, p.key)).Describe(ctx, &pb.DescribeRequest{}); err != nil {
		t.Errorf("the right key: %v", err)
	}
}

func TestLifeline(t *testing.T) {
	for policy, want := range map[pb.OrphanPolicy]bool{
		pb.OrphanPolicy_ORPHAN_POLICY_PARK: true, pb.OrphanPolicy_ORPHAN_POLICY_DESTROY: false,
	} {
		marker := t.TempDir()
		p := launch(t, marker)
		conn := p.dial(t, p.key)
		if _, err := pb.NewDriverClient(conn).Configure(t.Context(), &pb.ConfigureRequest{OrphanPolicy: policy}); err != nil {
			t.Fatal(err)
		}
		makeSandbox(t, conn, "sb")
		p.stdin.Close()
		p.wait(t)
		if _, err := os.Stat(filepath.Join(marker, "sb")); (err == nil) != want {
			t.Errorf("%v: the sandbox's file: %v", policy, err)
		}
		if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: the socket's directory: %v", policy, err)
		}
	}
}

// beHost starts a driver, tells its process id and then does nothing until it is killed.
func beHost() {
	marker := os.Getenv(asHost)
	cmd := exec.Command(os.Args[0])
	cmd.Env = environment(marker, marker, handshake.NewKey())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The write end lives and dies with this process.
	if _, err := cmd.StdinPipe(); err != nil {
		panic(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		panic(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestTheHostIsKilled(t *testing.T) {
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), asHost+"="+dir)
	if _, err := host.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the driver does not run: %v", err)
	}
	host.Process.Kill()
	host.Wait() // it was killed
	waitFor(t, "end of the driver", func() bool {
		// Somebody else reaps it: a zombie has ended too.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) != nil
	})
}

func TestWaitsForADebugger(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(environment(dir, dir, handshake.NewKey()), handshake.EnvWait+"=1")
	var stdout, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process id", func() bool {
		return strings.Contains(stderr.String(), fmt.Sprint("process ", cmd.Process.Pid, " waits"))
	})
	if s := stdout.String(); s != "" {
		t.Errorf("it did not wait: %q", s)
	}
	waitFor(t, "the handshake", func() bool {
		cmd.Process.Signal(syscall.SIGUSR1)
		return stdout.String() != ""
	})
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSignals(t *testing.T) {
	p := launch(t, t.TempDir())
	conn := p.dial(t, p.key)
	makeSandbox(t, conn, "sb")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGHUP} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if _, err := command(t, conn, "", "true"); err != nil {
			t.Fatalf("after %v: %v", s, err)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
}

func TestLogs(t *testing.T) {
	const canary, token = "canary-of-the-secret <&> \"q\"", "canary-of-the-token"
	p := launch(t, t.TempDir())
	conn := p.dial(t, p.key)
	r, err := pb.NewDriverClient(conn).Configure(t.Context(), &pb.ConfigureRequest{
		LogLevel: "debug", Config: &pb.DynamicValue{Json: []byte(`{"token":"` + token + `","region":"eu"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"token":"(sensitive value)","region":"eu"}`; len(r.GetDiagnostics()) != 1 || r.GetDiagnostics()[0].GetDetail() != want {
		t.Errorf("diagnostics %v", r.GetDiagnostics())
	}
	makeSandbox(t, conn, "sb")
	_, err = command(t, conn, canary, "log")
	if e, _ := wire.Error(err); !errors.Is(e, errs.Internal) || strings.Contains(e.Error(), "canary") {
		t.Errorf("panic: %v", err)
	}
	type entry struct {
		level, message string
		fields         map[string]any
	}
	found := map[string]entry{}
	waitFor(t, "the log", func() bool {
		for line := range strings.Lines(p.stderr.String()) {
			if len(line) > 48<<10 {
				t.Fatalf("a line of %d bytes", len(line))
			}
			var f map[string]any
			if json.Unmarshal([]byte(line), &f) == nil {
				m, _ := f["@message"].(string)
				l, _ := f["@level"].(string)
				found[m] = entry{l, m, f}
			}
		}
		return found["panic in the driver"].level != ""
	})
	for message, want := range map[string]string{
		"configured": "debug", "to hclog": "debug", "to slog": "warn", "long": "error", "panic in the driver": "error",
		"to log (sensitive value)": "info",
	} {
		if found[message].level != want {
			t.Errorf("%q: %+v", message, found[message])
		}
	}
	if found["too fine"].level != "" {
		t.Error("a trace line at level debug")
	}
	if f := found["to slog"].fields; f["g.k"] != "v" || f["secret"] != "(sensitive value)" {
		t.Errorf("%v", f)
	}
	if s, _ := found["panic in the driver"].fields["stack"].(string); !strings.Contains(s, "testSandbox") {
		t.Errorf("stack %q", s)
	}
	for _, c := range []string{"canary-of-the-secret", token} {
		if strings.Contains(p.stderr.String(), c) {
			t.Errorf("%q is in the log", c)
		}
	}
	// And the process goes on.
	if _, err := command(t, conn, "", "true"); err != nil {
		t.Error(err)
	}
}

func TestDescribeIsDescribe(t *testing.T) {
	p := launch(t, t.TempDir())
	want, err := pb.NewDriverClient(p.dial(t, p.key)).Describe(t.Context(), &pb.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out, stderr, code := byHand(t, t.TempDir(), "describe", "--json")
	d, err := wire.UnmarshalDescription([]byte(out))
	if err != nil || code != 0 {
		t.Fatalf("%v, exit code %d, %q", err, code, out)
	}
	got, err := wire.DescriptionProto(d)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(stderr, "printed by the constructor") {
		t.Errorf("stderr %q", stderr)
	}
}

// byHand runs the binary as a person would.
func byHand(t *testing.T, marker string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), asDriver + "=" + marker}
	var out, errw bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errw
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errw.String(), cmd.ProcessState.ExitCode()
}

func TestByHand(t *testing.T) {
	marker := t.TempDir()
	if out, stderr, code := byHand(t, marker); code != 1 || out != "" || !strings.Contains(stderr, "nothing to run by hand") {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	if out, stderr, code := byHand(t, marker, "dance"); code != 2 || out != "" || !strings.Contains(stderr, "usage:") {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	if out, _, code := byHand(t, marker, "version"); code != 0 || !strings.HasPrefix(out, "test 0.1.0, protocol 1, ") {
		t.Errorf("%d %q", code, out)
	}
	if out, _, code := byHand(t, marker, "describe"); code != 0 || !strings.Contains(out, "feature    proc.signal") {
		t.Errorf("%d %q", code, out)
	}
}

func TestCleanup(t *testing.T) {
	marker := t.TempDir()
	box, file := filepath.Join(marker, "sb"), filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(box, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// "c2I=" is "sb".
	if err := os.WriteFile(file, []byte(`{"configure": {"coreId": "c"}, "resume": {"sandboxId": "sb", "state": {"data": "c2I="}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is gone already
		if _, stderr, code := byHand(t, marker, "cleanup", "--state-file", file); code != 0 {
			t.Fatalf("%d %s", code, stderr)
		}
		if _, err := os.Stat(box); !errors.Is(err, os.ErrNotExist) {
			t.Error("it is still there")
		}
	}
	if _, stderr, code := byHand(t, marker, "cleanup"); code != 1 || !strings.Contains(stderr, "--state-file") {
		t.Errorf("%d %s", code, stderr)
	}
}
