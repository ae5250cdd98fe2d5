// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/catalog"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/internal/version"
	"github.com/berth-dev/berth/sdk/driver"
)

// environment is berth as a user has it: the harness, and the driver in a process of its own.
type environment struct {
	plugins *plugin.Manager
	harness *berth.Harness
	project *spec.Project
	store   state.Store
}

func (b *bench) environment() (*environment, error) {
	if b.env != nil {
		return b.env, nil
	}
	bin, err := filepath.Abs(b.bin)
	if err != nil {
		return nil, err
	}
	cat, err := catalog.Open(catalog.Config{Bundle: bin, CacheDir: filepath.Join(b.dir, "cache")})
	if err != nil {
		return nil, err
	}
	store, err := state.Open(b.ctx, state.Config{Path: filepath.Join(b.dir, "state.db")})
	if err != nil {
		return nil, err
	}
	m := plugin.NewManager(plugin.Config{
		Resolve: func(ctx context.Context, name string, req spec.DriverRequirement) (catalog.Binary, error) {
			return cat.Resolve(ctx, b.dir, name, req)
		},
		CoreVersion: version.String(), CacheDir: filepath.Join(b.dir, "cache"), StateDir: filepath.Join(b.dir, "state"),
	})
	b.env = &environment{
		plugins: m, project: &spec.Project{}, store: store,
		harness: berth.New(berth.Config{
			Plugins: m, CacheDir: filepath.Join(b.dir, "cache"), RunsDir: filepath.Join(b.dir, "runs"), KeyFile: filepath.Join(b.dir, "session.key"),
			Store: func(context.Context) (state.Store, error) { return store, nil },
		}),
	}
	return b.env, nil
}

func (e *environment) close() {
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("the driver did not end"))
	defer cancel()
	_ = e.plugins.Close(ctx)
	_ = e.store.Close()
}

func (b *bench) open(m *spec.Manifest) (*session.Session, error) { return b.openIn(nil, m) }

// openIn opens a session in a sandbox as a block says; nil is the default driver's.
func (b *bench) openIn(in *spec.Sandbox, m *spec.Manifest) (*session.Session, error) {
	e, err := b.environment()
	if err != nil {
		return nil, err
	}
	if m == nil {
		m = &spec.Manifest{Root: spec.DefaultRoot}
	}
	return e.harness.Open(b.ctx, e.project, berth.SandboxOptions{ID: runlog.NewID(time.Now()), Sandbox: in, Manifest: m})
}

func (b *bench) closeSession(s *session.Session) error { return s.Close(b.ctx, run.Completed) }

// rss is the resident memory of the driver's process and of this one, in MiB.
func (b *bench) rss() string {
	var driver float64
	for _, s := range b.env.plugins.Statuses() {
		driver = max(driver, memoryOf(fmt.Sprint(s.PID), "VmRSS"))
	}
	return fmt.Sprintf("rss core %.0f MiB, driver %.0f MiB", memoryOf("self", "VmRSS"), driver)
}

// peak begins to watch the memory of both; the result tells the most that was resident since.
func (b *bench) peak() func() string {
	pids := []string{"self"}
	for _, s := range b.env.plugins.Statuses() {
		pids = append(pids, fmt.Sprint(s.PID))
	}
	runtime.GC()
	for _, pid := range pids {
		// 5 sets the mark to what is resident now.
		if err := os.WriteFile(filepath.Join("/proc", pid, "clear_refs"), []byte("5"), 0); err != nil {
			return func() string { return "peak unknown: " + err.Error() }
		}
	}
	return func() string {
		var driver float64
		for _, pid := range pids[1:] {
			driver = max(driver, memoryOf(pid, "VmHWM"))
		}
		return fmt.Sprintf("peak core %.0f MiB, driver %.0f MiB", memoryOf("self", "VmHWM"), driver)
	}
}

// memoryOf is a line of a process's status, in MiB, without the pages of program files: those are there once for all
// processes, and this program is larger than the core.
func memoryOf(pid, name string) float64 { return max(0, statusOf(pid, name)-statusOf(pid, "RssFile")) }

func statusOf(pid, name string) float64 {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(text)) {
		var kib float64
		if n, _ := fmt.Sscanf(l, name+": %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	return 0
}

func createTime(b *bench) error {
	product := func() error {
		s, err := b.open(nil)
		if err != nil {
			return err
		}
		return b.closeSession(s)
	}
	floor := func() error {
		d, err := os.MkdirTemp(b.dir, "x")
		if err != nil {
			return err
		}
		return os.Remove(d)
	}
	p, f, err := b.pairs(50, product, floor)
	if err != nil {
		return err
	}
	b.add(figure{name: "create_empty/unix-local", product: p, floor: f, floorIs: "mkdtemp+rmdir/go", note: "create and close; " + b.rss()})
	return nil
}

func execTime(b *bench) error {
	s, err := b.open(nil)
	if err != nil {
		return err
	}
	defer b.closeSession(s) //nolint:errcheck // the figures are taken
	for _, m := range []struct {
		name, floor string
		argv        []string
		ratio       float64
	}{
		{"exec_true/unix-local", "exec/true", []string{"/bin/true"}, 2.5},
		{"exec_true/unix-local/sh", "exec/sh -c true", []string{"sh", "-c", "true"}, 0},
		{"exec_true/unix-local/login", "exec/bash -lc true", []string{"bash", "-lc", "true"}, 0},
	} {
		p, f, err := b.pairs(200, func() error {
			exit, err := s.Run(b.ctx, &driver.Command{Argv: m.argv}, driver.Streams{Stdout: io.Discard, Stderr: io.Discard})
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("%v ended with %d", m.argv, exit.Code)
			}
			return err
		}, func() error { return plainExec(b.ctx, io.Discard, m.argv...) })
		if err != nil {
			return err
		}
		b.add(figure{name: m.name, product: p, floor: f, floorIs: m.floor, ratio: m.ratio})
	}
	return nil
}

func outputTime(b *bench) error {
	s, err := b.open(nil)
	if err != nil {
		return err
	}
	defer b.closeSession(s) //nolint:errcheck // the figures are taken
	argv := []string{"head", "-c", "67108864", "/dev/zero"}
	peak := b.peak()
	p, f, err := b.pairs(10, func() error {
		var n counter
		_, err := s.Run(b.ctx, &driver.Command{Argv: argv}, driver.Streams{Stdout: &n, Stderr: io.Discard})
		if err == nil && n != 64<<20 {
			err = fmt.Errorf("%d bytes arrived", n)
		}
		return err
	}, func() error { var n counter; return plainExec(b.ctx, &n, argv...) })
	if err != nil {
		return err
	}
	b.add(figure{name: "exec_out64/unix-local", product: p, floor: f, floorIs: "execout64/pipe 64 KiB", ratio: 3, note: peak()})
	return nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func ptyTime(b *bench) error {
	s, err := b.open(nil)
	if err != nil {
		return err
	}
	defer b.closeSession(s) //nolint:errcheck // the figures are taken
	p, _, err := b.pairs(50, func() error { return firstByte(b.ctx, s, "sh", "-c", "echo ready; read x") }, nil)
	if err != nil {
		return err
	}
	b.add(figure{name: "pty_start/unix-local", product: p, floorIs: "pty start to first byte", note: "start to first byte, and end"})
	return nil
}

// firstByte starts a command on a terminal, waits for what it says and ends it.
func firstByte(ctx context.Context, s *session.Session, argv ...string) error {
	first := &once{done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, &driver.Command{Argv: argv, TTY: true}, driver.Streams{Stdin: blocking{ctx}, Stdout: first})
		ended <- err
	}()
	select {
	case <-first.done:
	case err := <-ended:
		cancel(nil)
		return err
	}
	cancel(errors.New("seen"))
	<-ended //nolint:errcheck // only that it has ended counts
	return nil
}

// once closes done at the first byte.
type once struct {
	done chan struct{}
	seen bool
}

func (o *once) Write(p []byte) (int, error) {
	if !o.seen {
		o.seen = true
		close(o.done)
	}
	return len(p), nil
}

// blocking is a keyboard that nobody touches.
type blocking struct{ ctx context.Context } //nolint:containedctx // it ends with the command

func (r blocking) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, io.EOF
}

func fileTime(b *bench) error {
	s, err := b.open(nil)
	if err != nil {
		return err
	}
	defer b.closeSession(s) //nolint:errcheck // the figures are taken
	piece := bytes.Repeat([]byte("0123456789abcde\n"), 64<<10)
	plain := filepath.Join(b.dir, "plain")
	peak := b.peak()
	p, f, err := b.pairs(10, func() error {
		_, err := s.Write(b.ctx, "big", driver.WriteOptions{}, &repeated{piece: piece, left: 64 << 20})
		return err
	}, func() error { return writePlain(plain, piece, 64) })
	if err != nil {
		return err
	}
	b.add(figure{name: "write64/unix-local", product: p, floor: f, floorIs: "write64/go new file", ratio: 4, note: peak()})
	peak = b.peak()
	buf := make([]byte, 1<<20)
	p, f, err = b.pairs(10, func() error { return readAll(b.ctx, s, "big", 64<<20, buf) }, func() error { return readPlain(plain, buf) })
	if err != nil {
		return err
	}
	b.add(figure{name: "read64/unix-local", product: p, floor: f, floorIs: "read64/go 1 MiB buffer", ratio: 4, note: peak()})
	if _, err := s.Write(b.ctx, "small", driver.WriteOptions{}, bytes.NewReader(piece[:1024])); err != nil {
		return err
	}
	small := filepath.Join(b.dir, "small")
	if err := os.WriteFile(small, piece[:1024], 0o600); err != nil {
		return err
	}
	p, f, err = b.pairs(200, func() error { return readAll(b.ctx, s, "small", 1024, buf) }, func() error { return readPlain(small, buf) })
	if err != nil {
		return err
	}
	b.add(figure{name: "read1k/unix-local", product: p, floor: f, floorIs: "read1k/go"})
	return nil
}

// repeated is content that takes no memory of its size.
type repeated struct {
	piece []byte
	left  int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), r.left)]
	at := r.left % len(r.piece)
	n := copy(p, r.piece[(len(r.piece)-at)%len(r.piece):])
	r.left -= n
	return n, nil
}

// writePlain writes a piece to a new file some times.
func writePlain(path string, piece []byte, times int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for range times {
		if _, err := f.Write(piece); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

func readAll(ctx context.Context, s *session.Session, path string, want int64, buf []byte) error {
	_, r, err := s.Open(ctx, path, driver.ReadOptions{})
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
	if err == nil && n != want {
		err = fmt.Errorf("%d bytes read of %d", n, want)
	}
	return errors.Join(err, r.Close())
}

func readPlain(path string, buf []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
	return err
}
