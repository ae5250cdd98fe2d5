// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/fsys"
)

func openRepo(t testing.TB, dir string) (*snapshot.Repo, error) {
	t.Helper()
	f, err := objects.NewFolder(dir)
	if err != nil {
		return nil, err
	}
	return snapshot.Open(t.Context(), f, snapshot.Options{})
}

// tmpfs mounts one, or skips the test.
func tmpfs(t testing.TB, data string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, data); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

const role = "BERTH_SNAPSHOT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		if err := other(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// paused stops in the middle of an export, until a line comes.
type paused struct{ *fsys.FS }

func (p paused) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	first := true
	return p.FS.Export(ctx, opts, writerFunc(func(b []byte) (int, error) {
		if first {
			first = false
			n, err := w.Write(b)
			fmt.Println("in the middle")
			if _, rerr := bufio.NewReader(os.Stdin).ReadString('\n'); rerr != nil {
				return n, rerr
			}
			return n, err
		}
		return w.Write(b)
	}))
}

// other is the other process: it takes a snapshot of a directory into a store.
func other() error {
	store, dir := os.Args[1], os.Args[2]
	f, err := objects.NewFolder(store)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := snapshot.Open(ctx, f, snapshot.Options{})
	if err != nil {
		return err
	}
	fs, err := fsys.Open(dir, fsys.Options{})
	if err != nil {
		return err
	}
	rec, _, err := r.Take(ctx, paused{fs}, snapshot.TakeOptions{})
	if err == nil {
		fmt.Println(rec.ID)
	}
	return err
}

type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, store, dir string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], store, dir)}
	p.Env = append(os.Environ(), role+"=1")
	p.Stderr = os.Stderr
	var err error
	p.in, err = p.StdinPipe()
	must(t, err)
	out, err := p.StdoutPipe()
	must(t, err, p.Start())
	p.out = bufio.NewReader(out)
	if line := p.line(t); line != "in the middle" {
		t.Fatal(line)
	}
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	must(t, err)
	return strings.TrimSpace(line)
}

// A sweep waits for a process that is writing, and takes nothing away that it counts on: here a chunk that no snapshot
// needs any more, which the other process found in the store.
func TestSweepBesideWriter(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	for i := range 40 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), random(uint64(i), 100<<10), 0o644))
	}
	r := repo(t, store)
	rec, _ := take(t, r, dir, snapshot.TakeOptions{})
	must(t, r.Remove(t.Context(), rec))
	p := start(t, store, dir)

	soon, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("it is busy"))
	defer cancel()
	if _, err := r.Sweep(soon, false); err == nil || !strings.Contains(err.Error(), "it is busy") {
		t.Fatalf("a sweep did not wait for a writer: %v", err)
	}
	swept := make(chan error, 1)
	go func() {
		_, err := r.Sweep(t.Context(), false)
		swept <- err
	}()
	must(t, p.in.Close())
	_ = p.Wait() // its input ended before it was told to go on
	must(t, <-swept)
	if n := len(objectsOf(t, store, "packs")); n != 0 {
		t.Errorf("%d packs are left of a snapshot that was removed and of one that failed", n)
	}

	rec, _ = take(t, r, dir, snapshot.TakeOptions{})
	must(t, r.Remove(t.Context(), rec))
	p = start(t, store, dir)
	go func() {
		_, err := r.Sweep(t.Context(), false)
		swept <- err
	}()
	_, err := io.WriteString(p.in, "\n")
	must(t, err)
	id := p.line(t)
	must(t, p.Wait(), <-swept)
	got, err := repo(t, store).Find(t.Context(), id)
	must(t, err)
	restore(t, repo(t, store), got)
}

// A writer that is killed leaves a store in which everything holds.
func TestKilledWriter(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	for i := range 40 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), random(uint64(i), 1<<20), 0o644))
	}
	r := repo(t, store)
	p := start(t, store, dir)
	must(t, p.Process.Kill())
	_ = p.Wait() // it was killed
	rec, _ := take(t, r, dir, snapshot.TakeOptions{})
	if recs, err := r.List(t.Context()); err != nil || len(recs) != 1 {
		t.Errorf("%v, %v", recs, err)
	}
	if _, err := r.Sweep(t.Context(), false); err != nil {
		t.Error(err)
	}
	restore(t, repo(t, store), rec)
}

// Two processes take the same workspace at once.
func TestTwoWriters(t *testing.T) {
	store, dir := t.TempDir(), t.TempDir()
	for i := range 40 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), random(uint64(i), 100<<10), 0o644))
	}
	one, two := start(t, store, dir), start(t, store, dir)
	for _, p := range []*process{one, two} {
		_, err := io.WriteString(p.in, "\n")
		must(t, err)
	}
	ids := []string{one.line(t), two.line(t)}
	must(t, one.Wait(), two.Wait())
	r := repo(t, store)
	for _, id := range ids {
		rec, err := r.Find(t.Context(), id)
		must(t, err)
		restore(t, r, rec)
	}
	if problems, err := r.Verify(t.Context(), nil); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
