// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// between passes connections on to the engine, until the test ends.
type between struct {
	address string
	passed  atomic.Int64           // bytes that the engine said
	swallow atomic.Pointer[string] // the answer to the next request that holds this is lost
	mu      sync.Mutex
	conns   []net.Conn
}

func newBetween(t testing.TB, f *fixture) *between { return betweenAt(t, f, "tcp", "127.0.0.1:0") }

func betweenAt(t testing.TB, f *fixture, kind, at string) *between {
	t.Helper()
	network, address, _ := strings.Cut(f.e.DaemonHost(), "://")
	l, err := net.Listen(kind, at)
	if err != nil {
		t.Fatal(err)
	}
	b := &between{address: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial(network, address)
			if err != nil {
				_ = c.Close()
				continue
			}
			b.mu.Lock()
			b.conns = append(b.conns, c, up)
			b.mu.Unlock()
			all.Go(func() { b.pass(c, up) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.cut()
		all.Wait()
	})
	return b
}

// cut ends all connections.
func (b *between) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *between) pass(c, up net.Conn) {
	var lose atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := c.Read(buf)
			if want := b.swallow.Load(); want != nil && bytes.Contains(buf[:n], []byte(*want)) {
				b.swallow.Store(nil)
				lose.Store(true)
			}
			if _, e := up.Write(buf[:n]); e != nil || err != nil {
				if h, ok := up.(interface{ CloseWrite() error }); ok {
					_ = h.CloseWrite()
				}
				return
			}
		}
	})
	both.Go(func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := up.Read(buf)
			b.passed.Add(int64(n))
			if lose.Load() {
				err = io.EOF
				n = 0
			}
			if _, e := c.Write(buf[:n]); e != nil || err != nil {
				_, _ = c.Close(), up.Close()
				return
			}
		}
	})
	both.Wait()
}

// What an engine on this machine has started speaks with the driver itself: what it says does not go through the engine.
func TestGuestCalls(t *testing.T) {
	t.Parallel()
	near := newFixture(t)
	dir, err := os.MkdirTemp("/tmp", "bd") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := betweenAt(t, near, "unix", filepath.Join(dir, "s"))
	f := fixtureIn(t, driver.Host{}, map[string]any{"host": "unix://" + b.address})
	// Also where nobody inside is root.
	for _, config := range []map[string]any{nil, {"capabilities": []string{}, "user": "1234:1234"}} {
		s := f.create(t, request(t, with(config, map[string]any{"guest": settings.GuestRequired})))
		before := b.passed.Load()
		var n atomic.Int64
		exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"head", "-c", "10000000", "/dev/zero"}}, driver.Streams{Stdout: writerFunc(func(p []byte) (int, error) {
			n.Add(int64(len(p)))
			return len(p), nil
		})})
		if err != nil || exit.Code != 0 || n.Load() != 10_000_000 {
			t.Errorf("%+v, %v, %d bytes", exit, err, n.Load())
		}
		if got := b.passed.Load() - before; got > 100_000 {
			t.Errorf("%d bytes went through the engine", got)
		}
		if got := sh(t, s, "ls /.berth"); got != "berth-guest" {
			t.Errorf("what is left in the guest's directory: %q", got)
		}
	}
}

// An engine elsewhere does not see this machine's files: the guest is copied to it, everything else goes through the
// connection. What is reached and how comes from a context of the docker command.
func TestRemoteEngine(t *testing.T) {
	near := newFixture(t)
	b := newBetween(t, near)
	dir := t.TempDir()
	meta := filepath.Join(dir, "contexts/meta", strings.TrimPrefix(digest([]byte("far")), "sha256:"))
	content, err := json.Marshal(map[string]any{"Name": "far", "Metadata": map[string]any{}, "Endpoints": map[string]any{"docker": map[string]any{"Host": "tcp://" + b.address, "SkipTLSVerify": false}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(meta, 0o700), os.WriteFile(filepath.Join(meta, "meta.json"), content, 0o600),
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"currentContext":"far"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	f := fixtureIn(t, driver.Host{}, map[string]any{"config_dir": dir})
	req := request(t, map[string]any{"guest": settings.GuestRequired, "network": "bridge"})
	req.Ports = []uint16{8080}
	t.Cleanup(func() { removeGuests(t, near) })
	s := f.create(t, req)
	if got := sh(t, s, "echo works; (echo x > /.berth/x) 2>/dev/null || echo read-only"); got != "works\nread-only" {
		t.Errorf("%q", got)
	}
	server(t, s, 8080)
	// The published port is another machine's own; the tunnel is not.
	at, err := s.(driver.PortExposer).Expose(t.Context(), 8080, "http", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, at); got != "from inside" {
		t.Errorf("%q at %+v", got, at)
	}

	// Every connection breaks in the middle of a transfer: nothing is lost or doubled.
	const size = 30 << 20
	var n atomic.Int64
	var once sync.Once
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"head", "-c", "31457280", "/dev/zero"}}, driver.Streams{Stdout: writerFunc(func(p []byte) (int, error) {
		if n.Add(int64(len(p))) > size/3 {
			once.Do(b.cut)
		}
		return len(p), nil
	})})
	if err != nil || exit.Code != 0 || n.Load() != size {
		t.Errorf("%+v, %v, %d bytes", exit, err, n.Load())
	}
	var once2 sync.Once
	sent := &counted{r: io.LimitReader(zeros{}, size), at: size / 3, hit: func() { once2.Do(b.cut) }}
	if res, err := s.(driver.FileSystem).Write(t.Context(), "big", driver.WriteOptions{}, sent); err != nil || res.Info.Size != size {
		t.Errorf("%+v, %v", res, err)
	}

	granted := request(t, nil)
	granted.Grants = []driver.PathGrant{{Path: "/data", HostPath: dir}}
	if _, err := f.Create(t.Context(), granted); !errors.Is(err, errs.Unsupported) {
		t.Errorf("a grant of a file that the engine does not see: %v", err)
	}
	if _, err := fixtureIn(t, driver.Host{}, map[string]any{"config_dir": dir, "context": "nowhere"}).Create(t.Context(), request(t, nil)); !errors.Is(err, errs.ConfigInvalid) {
		t.Errorf("a context that is not there: %v", err)
	}
	if _, err := fixtureIn(t, driver.Host{}, map[string]any{"host": "tcp://127.0.0.1:1"}).Create(t.Context(), request(t, nil)); !errors.Is(err, errs.StartFailed) {
		t.Errorf("an engine that is not there: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counted struct {
	r   io.Reader
	n   int64
	at  int64
	hit func()
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.at {
		c.hit()
	}
	return n, err
}

// removeGuests removes the volumes that hold guests, as `docker volume prune` would.
func removeGuests(t testing.TB, f *fixture) {
	list, err := f.e.VolumeList(context.WithoutCancel(t.Context()), client.VolumeListOptions{Filters: client.Filters{}.Add("label", inside.LabelGuest)})
	if err != nil {
		t.Error(err)
	}
	for _, v := range list.Items {
		if _, err := f.e.VolumeRemove(context.WithoutCancel(t.Context()), v.Name, client.VolumeRemoveOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// The engine made the container, and its answer never came.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	near := newFixture(t)
	b := newBetween(t, near)
	f := fixtureIn(t, driver.Host{}, map[string]any{"host": "tcp://" + b.address})
	if _, err := f.reach(t.Context()); err != nil {
		t.Fatal(err)
	}
	req := request(t, map[string]any{"guest": settings.GuestNever})
	path := "/containers/create"
	b.swallow.Store(&path)
	s := f.create(t, req)
	if b.swallow.Load() != nil {
		t.Fatal("no answer was lost")
	}
	if got := sh(t, s, "echo works"); got != "works" {
		t.Errorf("%q", got)
	}
	if n := f.containers(t, req.SandboxID); n != 1 {
		t.Errorf("%d containers", n)
	}

	// The caller is gone before the answer comes: nothing is left.
	left := request(t, map[string]any{"guest": settings.GuestNever})
	ctx, cancel := context.WithCancelCause(t.Context())
	left.Progress = func(p driver.Progress) {
		if p.Phase == "creating" {
			cancel(errLeft)
		}
	}
	if _, err := f.Create(ctx, left); !errors.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
	if n := f.containers(t, left.SandboxID); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}

// ssh:// goes through the ssh program, which here is this test program.
func TestSSH(t *testing.T) {
	near := newFixture(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "ssh")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(envSSH, near.e.DaemonHost())
	f := fixtureIn(t, driver.Host{}, map[string]any{"host": "ssh://somebody@somewhere.invalid"})
	t.Cleanup(func() { removeGuests(t, near) })
	s := f.create(t, request(t, map[string]any{"guest": settings.GuestRequired}))
	if got := sh(t, s, "echo works"); got != "works" || f.engine.Local {
		t.Errorf("%q", got)
	}
}

// envSSH makes this program stand in for ssh: it names the engine that is reached.
const envSSH = "BERTH_TEST_SSH"

// standIn is `ssh somebody@somewhere docker system dial-stdio`.
func standIn() {
	if args := strings.Join(os.Args, " "); !strings.HasSuffix(args, " somewhere.invalid docker system dial-stdio") {
		os.Exit(2)
	}
	network, address, _ := strings.Cut(os.Getenv(envSSH), "://")
	c, err := net.Dial(network, address)
	if err != nil {
		os.Exit(3)
	}
	go func() {
		_, _ = io.Copy(c, os.Stdin)
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	}()
	_, _ = io.Copy(os.Stdout, c)
	os.Exit(0)
}
