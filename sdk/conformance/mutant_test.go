// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/fake"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve"
)

// full is everything that the fake driver's sandboxes are.
type full interface {
	driver.Sandbox
	driver.Stopper
	driver.Pauser
	driver.Inspector
	driver.Preserved
	driver.Reattached
	driver.DeadlineExtender
	driver.Watcher
	driver.FileSystem
	driver.FileWatcher
	driver.TreeIO
	driver.ProcessTable
	driver.NativeSnapshotter
	driver.PortExposer
	driver.PortForwarder
	driver.Mounter
	driver.AccountKeeper
}

// mutant is the fake driver with something broken; nil = nothing.
type mutant struct {
	*fake.Driver
	describe func(*driver.Description)
	create   func(*driver.CreateRequest)
	resume   func(context.Context, *fake.Driver, *driver.ResumeRequest) (driver.Sandbox, error)
	box      func(full) full
	deaf     bool // takes no notice of its configuration
	// forgetful does not know the states of earlier versions.
	forgetful bool
	more      []driver.Feature // that the fake claims besides
}

func (m *mutant) wrap(s driver.Sandbox, err error) (driver.Sandbox, error) {
	if err != nil || m.box == nil {
		return s, err
	}
	return m.box(s.(full)), nil
}

func (m *mutant) Describe() driver.Description {
	d := m.Driver.Describe()
	if m.describe != nil {
		m.describe(&d)
	}
	return d
}

func (m *mutant) Create(ctx context.Context, r *driver.CreateRequest) (driver.Sandbox, error) {
	if m.create != nil {
		m.create(r)
	}
	return m.wrap(m.Driver.Create(ctx, r))
}

func (m *mutant) Configure(ctx context.Context, h driver.Host, v schema.Value) []driver.Diagnostic {
	if m.deaf {
		v = schema.Value{}
	}
	return m.Driver.Configure(ctx, h, v)
}

func (m *mutant) Validate(ctx context.Context, v schema.Value, online bool) []driver.Diagnostic {
	if m.deaf {
		v = schema.Value{}
	}
	return m.Driver.Validate(ctx, v, online)
}

func (m *mutant) UpgradeState(from uint32, data []byte) ([]byte, error) {
	if m.forgetful {
		return nil, errs.New(errs.DriverIncompatible, "the state has version %d", from)
	}
	return m.Driver.UpgradeState(from, data)
}

func (m *mutant) Resume(ctx context.Context, r *driver.ResumeRequest) (driver.Sandbox, error) {
	if m.resume != nil {
		return m.resume(ctx, m.Driver, r)
	}
	return m.wrap(m.Driver.Resume(ctx, r))
}

type (
	alwaysZero   struct{ full }
	noSize       struct{ full }
	noOffset     struct{ full }
	noLimits     struct{ full }
	anybody      struct{ full }
	immortal     struct{ full }
	plainErrors  struct{ full }
	talkative    struct{ full }
	halfWritten  struct{ full }
	neverRunning struct{ full }
	boundless    struct{ full }
	trusting     struct{ full }
	oneKey       struct{ full }
	hanging      struct{ full }
	crashing     struct{ full }
	nowhere      struct{ full }
	orphaning    struct{ full }
	proxied      struct {
		full
		over    context.Context
		before  func(w http.ResponseWriter, r *http.Request, to http.Handler)
		headers map[string]string
	}
)

// Import takes what comes out of a compressed archive whatever its size.
func (b boundless) Import(ctx context.Context, o driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	o.Limits = driver.TreeLimits{MaxInputBytes: o.Limits.MaxInputBytes}
	return b.full.Import(ctx, o, r)
}

// Import takes host references from anybody.
func (b trusting) Import(ctx context.Context, o driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	o.HostReferences = true
	return b.full.Import(ctx, o, r)
}

// Import keeps the result under the one key.
func (b oneKey) Import(ctx context.Context, o driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	if o.Template != "" {
		o.Template = "the one"
	}
	return b.full.Import(ctx, o, r)
}

// smallDisk has a directory, small, that a file of more than a mebibyte does not fit into.
type smallDisk struct {
	full
	left    bool // what was written so far stays
	untyped bool // the error says nothing
	silent  bool // there is no error
}

var errNoRoom = errs.New(errs.NoSpace, "no space is left")

func (b smallDisk) fits(p string, r io.Reader) ([]byte, bool, error) {
	if !strings.HasPrefix(p, "small") {
		return nil, true, nil
	}
	data, err := io.ReadAll(io.LimitReader(r, 1<<20+1))
	return data, len(data) <= 1<<20, err
}

func (b smallDisk) Write(ctx context.Context, p string, o driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	data, fits, err := b.fits(p, r)
	if err != nil {
		return driver.WriteResult{}, err
	}
	if data != nil {
		r, o.Parents = bytes.NewReader(data), true
	}
	if fits || b.silent {
		return b.full.Write(ctx, p, o, r)
	}
	if b.left {
		if _, err := b.full.Write(ctx, p+".part", o, r); err != nil {
			return driver.WriteResult{}, err
		}
	}
	if b.untyped {
		return driver.WriteResult{}, errs.New(errs.VendorFailed, "write error")
	}
	return driver.WriteResult{}, errNoRoom
}

func (b smallDisk) Import(ctx context.Context, o driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	_, fits, err := b.fits(o.Path, r)
	if err != nil || fits {
		return b.full.Import(ctx, o, r)
	}
	if b.untyped {
		return driver.ImportResult{}, errs.New(errs.VendorFailed, "write error")
	}
	return driver.ImportResult{}, errNoRoom
}

// Expose gives an address of its own, where nobody listens.
func (nowhere) Expose(context.Context, uint16, string, bool) (driver.Endpoint, error) {
	return driver.Endpoint{Host: "127.0.0.1", Port: 1}, nil
}

// Expose gives an address with something before the server inside.
func (b proxied) Expose(ctx context.Context, port uint16, protocol string, public bool) (driver.Endpoint, error) {
	at, err := b.full.Expose(ctx, port, protocol, public)
	if err != nil {
		return at, err
	}
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.before(w, r, to) }))
	context.AfterFunc(b.over, s.Close)
	at.Port = uint16(s.Listener.Addr().(*net.TCPAddr).Port)
	at.Headers = b.headers
	return at, nil
}

// Run starts what nobody ends for a while, whatever becomes of the driver.
func (b orphaning) Run(ctx context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	if !cmd.Detached || !strings.Contains(strings.Join(cmd.Argv, " "), "sleep") {
		return b.full.Run(ctx, cmd, s)
	}
	run := exec.Command("sh", append([]string{"-c", "echo up; sleep 20; true"}, cmd.Argv[3:]...)...)
	run.SysProcAttr, run.Stdout = &syscall.SysProcAttr{Setsid: true}, s.Stdout
	if err := run.Start(); err != nil {
		return driver.Exit{}, err
	}
	s.OnStart(driver.Started{ProcessID: "orphan"})
	return driver.Exit{}, run.Wait()
}

// Stat never returns, whatever becomes of its caller.
func (hanging) Stat(context.Context, []string, driver.StatOptions) ([]driver.StatResult, error) {
	select {}
}

// Stat ends the process of the driver.
func (crashing) Stat(context.Context, []string, driver.StatOptions) ([]driver.StatResult, error) {
	os.Exit(3)
	return nil, nil
}

func (b alwaysZero) Run(ctx context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	e, err := b.full.Run(ctx, cmd, s)
	e.Code = 0
	return e, err
}

func (b noSize) Run(ctx context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	c := *cmd
	c.Size = driver.Size{}
	return b.full.Run(ctx, &c, s)
}

func (b noOffset) Open(ctx context.Context, p string, o driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	o.Offset = 0
	return b.full.Open(ctx, p, o)
}

func (b noLimits) Import(ctx context.Context, o driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	o.Limits = driver.TreeLimits{}
	return b.full.Import(ctx, o, r)
}

func (anybody) Dial(context.Context, uint16) (net.Conn, error) {
	a, _ := net.Pipe()
	return a, nil
}

func (immortal) Destroy(context.Context) error { return nil }

func (b plainErrors) Stat(ctx context.Context, paths []string, o driver.StatOptions) ([]driver.StatResult, error) {
	return nil, errors.New("something is wrong")
}

func (b talkative) State() driver.State {
	s := b.full.State()
	s.Display = map[string]string{"environment": fmt.Sprint(canaryOf)}
	return s
}

// canaryOf is the secret environment that the last create was given.
var canaryOf map[string]string

func (b halfWritten) Write(ctx context.Context, p string, o driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	o.Append = true
	return b.full.Write(ctx, p, o, r)
}

func (b neverRunning) Run(ctx context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	if slices.Equal(cmd.Argv, []string{"true"}) {
		return driver.Exit{}, errors.New("no more")
	}
	return b.full.Run(ctx, cmd, s)
}

// broken are the ways in which a driver program can be broken, as the value of this variable.
const broken = "BERTH_TEST_BROKEN"

// brokenProgram is a driver that breaks the rules of a program.
func brokenProgram(how string) {
	switch how {
	case "cookie":
		if os.Getenv(handshake.EnvCookie) == "" {
			fmt.Println("1|1|unix|/nowhere|grpc")
			os.Exit(0)
		}
		serve.Main(func(hclog.Logger) driver.Driver { return fake.New(fake.Options{}) })
	case "crash":
		serve.Main(func(hclog.Logger) driver.Driver {
			return &mutant{Driver: fake.New(fake.Options{Dir: os.Getenv(asDriver)}), box: func(f full) full { return crashing{f} }}
		})
	case "orphans":
		serve.Main(func(hclog.Logger) driver.Driver {
			return &mutant{Driver: fake.New(fake.Options{Dir: os.Getenv(asDriver)}), box: func(f full) full { return orphaning{f} }}
		})
	case "memory":
		serve.Main(func(hclog.Logger) driver.Driver { return fake.New(fake.Options{}) })
	}
}

// TestEachGroupCanFail breaks one thing in a driver and wants that the checks of it, and the report, say so.
func TestEachGroupCanFail(t *testing.T) {
	wrap := func(f func(full) full) mutant { return mutant{box: f} }
	pass := func(w http.ResponseWriter, r *http.Request, to http.Handler) { to.ServeHTTP(w, r) }
	before := func(f func(http.ResponseWriter, *http.Request, http.Handler), headers map[string]string) func(full) full {
		return func(inner full) full { return proxied{inner, t.Context(), f, headers} }
	}
	for _, x := range []struct {
		check   string // that has to fail
		mutant  mutant
		program string // how the program is broken; empty = it is the value above, in process
		skipped bool   // the check cannot tell, and what is claimed is not proven
	}{
		{check: "handshake/no-cookie", program: "cookie"},
		{check: "schema/documented", mutant: mutant{describe: func(d *driver.Description) { d.SandboxConfig.Block.Attributes[0].Doc = "" }}},
		{check: "lifecycle/resume-destroyed", mutant: mutant{resume: func(ctx context.Context, d *fake.Driver, r *driver.ResumeRequest) (driver.Sandbox, error) {
			if s, err := d.Resume(ctx, r); err == nil {
				return s, nil
			}
			return d.Create(ctx, &driver.CreateRequest{SandboxID: r.SandboxID, Progress: r.Progress})
		}}},
		{check: "lifecycle/state-holds-no-secret", mutant: mutant{
			create: func(r *driver.CreateRequest) { canaryOf = r.SecretEnv }, box: func(f full) full { return talkative{f} },
		}},
		{check: "process/exit-codes", mutant: wrap(func(f full) full { return alwaysZero{f} })},
		{check: "pty/size", mutant: wrap(func(f full) full { return noSize{f} })},
		{check: "files/read-ranges", mutant: wrap(func(f full) full { return noOffset{f} })},
		{check: "files/write-and-read", mutant: wrap(func(f full) full { return halfWritten{f} })},
		{check: "files/stat", mutant: wrap(func(f full) full { return plainErrors{f} })},
		{check: "tree/import-bounded", mutant: wrap(func(f full) full { return noLimits{f} })},
		{check: "ports/forward-nobody-listens", mutant: wrap(func(f full) full { return anybody{f} })},
		{check: "accounts/at-create", mutant: mutant{create: func(r *driver.CreateRequest) { r.Accounts = driver.Accounts{} }}},
		{check: "faults/killed-while-idle", program: "memory"},
		{check: "perf/run", mutant: wrap(func(f full) full { return neverRunning{f} })},
		{check: "tree/zstd-bounded", mutant: mutant{box: func(f full) full { return boundless{f} }, more: everything}},
		{check: "tree/host-refs-not-allowed", mutant: mutant{box: func(f full) full { return trusting{f} }, more: everything}},
		// A driver that gives every key the same workspace.
		{check: "tree/template-of-another-key", mutant: mutant{create: func(r *driver.CreateRequest) {
			if r.Workspace.Template != "" {
				r.Workspace.Template = "the one"
			}
		}, box: func(f full) full { return oneKey{f} }, more: everything}},
		// A driver that takes no notice of the snapshot that it is to restore.
		{check: "snapshot/restore", mutant: mutant{create: func(r *driver.CreateRequest) { r.NativeSnapshot = "" }}},
		{check: "snapshot/unknown-id", mutant: mutant{create: func(r *driver.CreateRequest) { r.NativeSnapshot = "" }}},
		{check: "mounts/claimed", mutant: mutant{describe: func(d *driver.Description) {
			d.Mounts = []driver.MountSupport{{Kind: "s3", Strategies: []string{"fuse"}}}
		}}, skipped: true},
		{check: "schema/unknown-argument", mutant: mutant{deaf: true}},
		{check: "schema/unknown-argument-of-driver", mutant: mutant{deaf: true}},
		{check: "lifecycle/state-upgrade", mutant: mutant{forgetful: true}},
		{check: "files/write-without-room", mutant: wrap(func(f full) full { return smallDisk{full: f, untyped: true} })},
		{check: "files/write-without-room", mutant: wrap(func(f full) full { return smallDisk{full: f, left: true} })},
		{check: "files/append-without-room", mutant: wrap(func(f full) full { return smallDisk{full: f, silent: true} })},
		{check: "tree/import-without-room", mutant: wrap(func(f full) full { return smallDisk{full: f, untyped: true} })},
		{check: "ports/expose-tcp", mutant: wrap(func(f full) full { return nowhere{f} })},
		{check: "ports/expose-http", mutant: mutant{more: everything, box: before(func(w http.ResponseWriter, r *http.Request, to http.Handler) {
			r.Method = http.MethodGet
			to.ServeHTTP(w, r)
		}, nil)}},
		{check: "ports/expose-http-websocket", mutant: mutant{more: everything, box: before(func(w http.ResponseWriter, r *http.Request, to http.Handler) {
			r.Header.Del("Upgrade")
			r.Header.Del("Sec-WebSocket-Key")
			to.ServeHTTP(w, r)
		}, nil)}},
		// A token that is given and that nobody asks for.
		{check: "ports/expose-private", mutant: mutant{more: everything, box: before(pass, map[string]string{"X-Token": "t"})}},
		// A public address where the service asks everybody who they are.
		{check: "ports/expose-public", mutant: mutant{more: everything, box: before(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusUnauthorized)
		}, nil)}},
		{check: "faults/nobody-comes-back", program: "orphans"},
		{check: "leaks/sandboxes", mutant: wrap(func(f full) full { return immortal{f} })},
	} {
		t.Run(x.check, func(t *testing.T) {
			opts := conformance.Options{
				Only: []string{x.check}, Repeat: 1, Faults: true, Perf: true, Timeout: 5 * time.Second, Small: "small", States: keptStates,
			}
			if x.program != "" {
				opts.Binary, opts.Env = os.Args[0], []string{asDriver + "=" + t.TempDir(), broken + "=" + x.program}
			} else {
				backend := &fake.Backend{}
				opts.Driver = func() driver.Driver {
					m := x.mutant
					m.Driver = fake.New(fake.Options{Shared: backend, With: m.more})
					return &m
				}
			}
			report, err := conformance.Execute(t.Context(), opts, nil)
			if report == nil {
				t.Fatalf("the driver could not be tested: %v", err)
			}
			if report.OK() {
				t.Error("the report says that the driver conforms")
			}
			for _, r := range report.Results {
				if r.Group+"/"+r.Check == x.check && r.Status != conformance.Failed && !x.skipped {
					t.Errorf("the check %s: %s", r.Status, r.Reason)
				}
			}
		})
	}
}

// only gives what became of a check.
func only(t *testing.T, r *conformance.Report, name string) conformance.Result {
	t.Helper()
	for _, x := range r.Results {
		if x.Group+"/"+x.Check == name {
			return x
		}
	}
	t.Fatalf("%s is not in the report", name)
	return conformance.Result{}
}

// A method that never returns fails its check within its time, and the suite goes on.
func TestHanging(t *testing.T) {
	backend := &fake.Backend{}
	report, err := conformance.Execute(t.Context(), conformance.Options{
		Only: []string{"files/stat", "process/exit-codes"}, Timeout: 5 * time.Second,
		Driver: func() driver.Driver {
			return &mutant{Driver: fake.New(fake.Options{Shared: backend}), box: func(f full) full { return hanging{f} }}
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := only(t, report, "files/stat"); r.Status != conformance.Failed {
		t.Errorf("a check whose call never returned: %+v", r)
	}
	if r := only(t, report, "process/exit-codes"); r.Status != conformance.Passed {
		t.Errorf("the check after it: %+v", r)
	}
}

// A driver that ends in the middle of a check fails it, and the checks after it get another process.
func TestCrashing(t *testing.T) {
	report, err := conformance.Execute(t.Context(), conformance.Options{
		Only:   []string{"files/stat", "files/list", "files/mkdir", "process/exit-codes", "leaks/sandboxes"},
		Binary: os.Args[0], Env: []string{asDriver + "=" + t.TempDir(), broken + "=crash"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := only(t, report, "files/stat"); r.Status != conformance.Failed || !strings.Contains(strings.Join(r.Messages, "\n"), "the driver process ended: exit status 3") {
		t.Errorf("a check that ended the driver: %+v", r)
	}
	for _, name := range []string{"files/list", "leaks/sandboxes"} {
		if r := only(t, report, name); r.Status != conformance.Passed {
			t.Errorf("%s, after it: %+v", name, r)
		}
	}
}

func TestBudget(t *testing.T) {
	for name, x := range map[string]struct {
		budget conformance.Budget
		reason string
	}{
		"creates":      {conformance.Budget{Creates: 4}, "the budget of 4 creates is spent"},
		"at the time":  {conformance.Budget{Sandboxes: 2}, "more sandboxes than the budget of 2"},
		"out of time":  {conformance.Budget{Wall: time.Nanosecond}, "the budget of time is spent"},
		"all of them":  {conformance.Budget{Creates: 5, Sandboxes: 2, Wall: time.Hour}, "budget"},
		"plenty of it": {conformance.Budget{Creates: 1000, Sandboxes: 100, Wall: time.Hour}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var made sync.Map // ids
			backend := &fake.Backend{}
			report, err := conformance.Execute(t.Context(), conformance.Options{
				Only: []string{"lifecycle"}, Repeat: 1, Budget: x.budget, Parallel: 2,
				Driver: func() driver.Driver {
					return &mutant{
						Driver: fake.New(fake.Options{Shared: backend}),
						create: func(r *driver.CreateRequest) { made.Store(r.SandboxID, true) },
					}
				},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Failed > 0 || (report.NotRun > 0) != (x.reason != "") {
				t.Errorf("%d failed, %d not run", report.Failed, report.NotRun)
			}
			n := 0
			made.Range(func(any, any) bool { n++; return true })
			if x.budget.Creates > 0 && n > x.budget.Creates {
				t.Errorf("%d sandboxes were made", n)
			}
			for _, r := range report.Results {
				switch {
				case r.Status == conformance.Failed:
					t.Errorf("%s failed: %v", r.Check, r.Messages)
				case r.Why == conformance.OutOfBudget && !strings.Contains(r.Reason, x.reason):
					t.Errorf("%s was not run: %s", r.Check, r.Reason)
				}
			}
		})
	}
}
