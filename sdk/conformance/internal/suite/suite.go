// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// Label marks the sandboxes of one run of the suite.
const Label = "berth.conformance"

// openTimeout bounds the first driver process and its first sandbox.
const openTimeout = 5 * time.Minute

// Suite is one run.
type Suite struct {
	opts   Options
	groups []Group
	dir    string
	host   driver.Host
	run    string // value of [Label]
	// Canary is a secret that every sandbox gets, in the variable [CanaryName].
	Canary string

	exclusive sync.RWMutex // a check that must be alone holds it alone

	sharing sync.Mutex     // held while the shared sandbox is made
	box     *rpc.Sandbox   // guarded by sharing; nil = none yet
	retired []*rpc.Sandbox // guarded by sharing; replaced, but checks may still use them

	mu      sync.Mutex
	main    *Process                   // guarded by mu
	spoilt  bool                       // guarded by mu: the shared sandbox is to be replaced
	has     map[string]bool            // guarded by mu; tools
	times   map[string][]time.Duration // guarded by mu
	results []Result                   // guarded by mu
	kept    []string                   // guarded by mu; ids of sandboxes that were left
	figures []Figure                   // guarded by mu
	spent   spent                      // guarded by mu
	began   time.Time
	sum     string // of the program, in hexadecimal
}

// CanaryName is the variable that holds [Suite.Canary].
const CanaryName = "BERTH_CANARY"

// Open starts the driver and makes the shared sandbox. The caller closes the suite.
func Open(ctx context.Context, opts Options, groups []Group) (*Suite, error) {
	opts.fill()
	if n := btoi(opts.Binary != "") + btoi(opts.Driver != nil) + btoi(opts.Reattach != nil); n != 1 {
		return nil, errs.New(errs.InvalidArgument, "exactly one of Binary, Driver and Reattach says which driver to test, not %d", n)
	}
	if err := opts.known(groups); err != nil {
		return nil, err
	}
	s := &Suite{
		opts: opts, groups: groups, run: newWord("run"), Canary: newWord("canary"), began: time.Now(),
		has: map[string]bool{}, times: map[string][]time.Duration{}, spent: spent{live: map[string]bool{}, all: map[string]bool{}},
	}
	var err error
	if s.dir, err = privateDir(); err != nil {
		return nil, err
	}
	s.host = driver.Host{
		CoreVersion: "conformance-" + Version, CoreID: s.run, LogLevel: "debug", Orphans: driver.OrphanPark,
		RunDir: filepath.Join(s.dir, "run"), CacheDir: filepath.Join(s.dir, "cache"), StateDir: filepath.Join(s.dir, "state"),
	}
	for _, dir := range []string{s.host.RunDir, s.host.CacheDir, s.host.StateDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.dir))
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("the driver was not ready within %s", openTimeout))
	defer cancel()
	if opts.Binary != "" {
		if s.opts.Binary, err = filepath.Abs(opts.Binary); err == nil {
			s.sum, err = digest(s.opts.Binary)
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.dir))
		}
	}
	if s.main, err = s.spawn(ctx); err == nil {
		err = s.probe(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // it was read
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// known refuses names of checks that do not exist.
func (o *Options) known(groups []Group) error {
	all := map[string]bool{}
	for _, g := range groups {
		all[g.Name] = true
		for _, c := range g.Checks {
			all[g.Name+"/"+c.Name] = true
		}
	}
	names := slices.Clone(o.Only)
	for n, reason := range o.Skip {
		if reason == "" {
			return errs.New(errs.InvalidArgument, "the skip of %s gives no reason", n)
		}
		names = append(names, n)
	}
	for _, n := range names {
		if !all[n] {
			return errs.New(errs.InvalidArgument, "there is no check or group %q", n).WithHint("list them with --list")
		}
	}
	return nil
}

// probe makes sure that commands run at all.
func (s *Suite) probe(ctx context.Context) error {
	box, err := s.shared(ctx)
	if err != nil {
		return fmt.Errorf("no sandbox could be created: %w", err)
	}
	var out bytes.Buffer
	exit, err := box.Run(ctx, &driver.Command{Argv: []string{"sh", "-c", "echo ready"}}, driver.Streams{Stdout: &out, Stderr: &out})
	if err == nil && (exit.Code != 0 || out.String() != "ready\n") {
		err = fmt.Errorf("exit %d, output %q", exit.Code, out.String())
	}
	if err != nil {
		return fmt.Errorf("the sandbox has no POSIX shell that works (sh -c 'echo ready'): %w", err)
	}
	return nil
}

// Close ends the driver and removes everything that the suite made.
func (s *Suite) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the suite is over"))
	defer cancel()
	s.sharing.Lock()
	defer s.sharing.Unlock()
	err := s.endSharedLocked(ctx)
	if p := s.Main(); p != nil {
		err = errors.Join(err, p.End())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) > 0 {
		return err // they need the driver's state
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// EndShared destroys the sandboxes that checks share, but those that are kept. The next check that asks gets another.
func (s *Suite) EndShared(ctx context.Context) error {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	return s.endSharedLocked(ctx)
}

func (s *Suite) endSharedLocked(ctx context.Context) error {
	var all error
	if s.box != nil {
		s.retired = append(s.retired, s.box)
	}
	for _, box := range s.retired {
		if !s.Kept(box.ID()) {
			all = errors.Join(all, box.Destroy(ctx))
		}
	}
	s.box, s.retired = nil, nil
	return all
}

// Groups are the parts of the suite.
func (s *Suite) Groups() []Group { return s.groups }

// Options are those that the suite runs with.
func (s *Suite) Options() Options { return s.opts }

// Host is what driver processes are told of the host.
func (s *Suite) Host() driver.Host { return s.host }

// Main is the driver process that all checks share.
func (s *Suite) Main() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.main
}

// revive starts another driver process in place of one that has ended. The sandboxes that checks shared are left to it.
func (s *Suite) revive(ctx context.Context) error {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	old := s.Main()
	if old.ended() == nil {
		return nil
	}
	p, err := s.spawn(ctx)
	if err != nil {
		return fmt.Errorf("the driver process had ended, and another one does not start: %w", err)
	}
	s.mu.Lock()
	s.main = p
	s.mu.Unlock()
	if s.box != nil {
		s.retired, s.box = append(s.retired, s.box), nil
	}
	for i, box := range s.retired {
		s.retired[i] = p.Driver.Handle(box.ID(), box.State())
	}
	return old.End()
}

// Figure notes a measurement.
func (s *Suite) Figure(name string, value float64, unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures = append(s.figures, Figure{name, value, unit})
}

// Kept says whether a sandbox is left for a look.
func (s *Suite) Kept(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.kept, id)
}

// spoil makes the next check get another shared sandbox, and keeps this one if that is wanted.
func (s *Suite) spoil() {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoilt = true
	if s.opts.KeepOnFail && s.box != nil && !slices.Contains(s.kept, s.box.ID()) {
		s.kept = append(s.kept, s.box.ID())
	}
}

// Request describes a sandbox with everything that the options say.
func (s *Suite) Request() *driver.CreateRequest {
	return &driver.CreateRequest{
		SandboxID: ulid.Make().String(), Config: s.opts.SandboxConfig, Workspace: driver.Workspace{Root: s.opts.Workspace},
		Env: map[string]string{"BERTH_PLAIN": "plain"}, SecretEnv: map[string]string{CanaryName: s.Canary},
		Labels: map[string]string{Label: s.run}, Progress: func(driver.Progress) {},
	}
}

// Resumption is what finds a sandbox again.
func (s *Suite) Resumption(box *rpc.Sandbox) *driver.ResumeRequest {
	r := s.Request()
	return &driver.ResumeRequest{
		SandboxID: box.ID(), State: box.State(), Config: r.Config, Env: r.Env, SecretEnv: r.SecretEnv, Progress: r.Progress,
	}
}

// Labels find the sandboxes of this run.
func (s *Suite) Labels() map[string]string { return map[string]string{Label: s.run} }

// shared gives the sandbox that all checks share.
func (s *Suite) shared(ctx context.Context) (*rpc.Sandbox, error) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	s.mu.Lock()
	spoilt := s.spoilt
	s.spoilt = false
	s.mu.Unlock()
	if s.box != nil && spoilt {
		s.retired = append(s.retired, s.box)
		s.box = nil
	}
	if s.opts.Budget.Sandboxes > 0 && s.box == nil {
		// Checks run one at a time, so nobody uses what was replaced.
		if err := s.endSharedLocked(ctx); err != nil {
			return nil, err
		}
	}
	if s.box == nil {
		box, err := s.Main().Create(ctx, s.Request())
		if err != nil {
			return nil, err
		}
		s.box = box
	}
	return s.box, nil
}

// Create makes a sandbox.
func (p *Process) Create(ctx context.Context, req *driver.CreateRequest) (*rpc.Sandbox, error) {
	if err := p.suite.spend(ctx, req.SandboxID); err != nil {
		return nil, err
	}
	box, err := concrete(p.Driver.Create(ctx, req))
	if err != nil {
		p.suite.gone(req.SandboxID) // a create that fails leaves nothing, which its own checks prove
	}
	return box, err
}

// Resume finds a sandbox again.
func (p *Process) Resume(ctx context.Context, req *driver.ResumeRequest) (*rpc.Sandbox, error) {
	return concrete(p.Driver.Resume(ctx, req))
}

func concrete(box driver.Sandbox, err error) (*rpc.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return box.(*rpc.Sandbox), nil //nolint:errcheck // the client makes no other
}

// tools are things that a sandbox may lack, each with a script that prints "yes" last where it is there.
var tools = map[string]string{
	"jobs":   `sleep 0 & case $! in *[0-9]) echo yes;; esac`,
	"loops":  `i=0; while [ $i -lt 2 ]; do i=$((i+1)); done; [ $i -eq 2 ] && echo yes`,
	"setsid": `setsid sh -c 'echo yes'`,
	"head":   `[ "$(printf yesno | head -c 3)" = yes ] && echo yes`,
	"dd":     `printf yes | dd bs=3 count=1 2>/dev/null`,
	"wc":     `[ "$(printf yes | wc -c)" -eq 3 ] && echo yes`,
	"id":     `id -un && echo yes`,
	"trap":   `trap 'echo yes' USR1; kill -USR1 $$; sleep 0`,
	"ln":     `ln -s yes .probe-link-$$ && [ -L .probe-link-$$ ] && rm .probe-link-$$ && echo yes`,
	"hard":   `echo > .probe-a-$$ && ln .probe-a-$$ .probe-b-$$ && rm .probe-a-$$ .probe-b-$$ && echo yes`,
	"mkfifo": `mkfifo .probe-fifo-$$ && rm .probe-fifo-$$ && echo yes`,
	"sparse": `dd if=/dev/zero of=.probe-sparse-$$ bs=1 count=1 seek=1000000 2>/dev/null && rm .probe-sparse-$$ && echo yes`,
	"stty":   `stty size </dev/null >/dev/null 2>&1; [ $? -ne 127 ] && echo yes`,
	"kill":   `kill -0 $$ && echo yes`,
	"chmod":  `echo > .probe-c-$$ && chmod 600 .probe-c-$$ && rm .probe-c-$$ && echo yes`,
	"ps":     `[ -r /proc/self/stat ] && echo yes`,
}

// Has says whether the sandboxes have a tool.
func (s *Suite) Has(ctx context.Context, tool string) (bool, error) {
	s.mu.Lock()
	have, known := s.has[tool]
	s.mu.Unlock()
	if known {
		return have, nil
	}
	script, ok := tools[tool]
	if !ok {
		return false, errs.New(errs.Internal, "the suite knows no tool %q", tool)
	}
	box, err := s.shared(ctx)
	if err != nil {
		return false, err
	}
	var out bytes.Buffer
	exit, err := box.Run(ctx, &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{Stdout: &out})
	if err != nil {
		return false, err
	}
	have = exit.Code == 0 && (out.String() == "yes" || strings.HasSuffix(out.String(), "yes\n"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has[tool] = have
	return have, nil
}

func (s *Suite) took(method string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times[method] = append(s.times[method], d)
}
