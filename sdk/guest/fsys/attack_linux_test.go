// SPDX-License-Identifier: Apache-2.0

package fsys_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
)

func writeTar(t testing.TB, w io.Writer, name, body string) {
	t.Helper()
	tw := tar.NewWriter(w)
	must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644}))
	_, err := io.WriteString(tw, body)
	must(t, err)
	must(t, tw.Close())
}

// TestDeepTree works on 10,000 directories in each other: far beyond what a path or a stack of descriptors takes.
func TestDeepTree(t *testing.T) {
	const depth = 10_000
	w := newWorld(t)
	ctx := t.Context()
	path := strings.TrimSuffix(strings.Repeat("d/", depth), "/")
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = 256
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	// The archive of a file at the bottom makes them.
	var b bytes.Buffer
	writeTar(t, &b, path+"/bottom", "deep")
	_, err := w.Import(ctx, driver.ImportOptions{}, &b)
	must(t, err)
	if got, err := w.read(ctx, path+"/bottom"); err != nil || got != "deep" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = w.write(ctx, path+"/second", "x", driver.WriteOptions{})
	must(t, err)
	count := 0
	for _, err := range w.List(ctx, ".", driver.ListOptions{Recursive: true}) {
		must(t, err)
		count++
	}
	if count != depth+2 {
		t.Errorf("%d listed", count)
	}
	mode := uint32(0o750)
	must(t, w.SetMeta(ctx, "d", driver.MetaChange{Mode: &mode, Recursive: true}))
	must(t, w.Remove(ctx, "d", true, ""))
	entries, err := os.ReadDir(w.root)
	if err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestUnderAttack swaps a directory and a file for links to the outside while everything is tried on them.
func TestUnderAttack(t *testing.T) { bothWalks(t, testUnderAttack) }

func testUnderAttack(t *testing.T, w world) {
	ctx := t.Context()
	put(t, w.root+"/d/secret", "inside")
	sandbox, err := os.OpenRoot(w.root)
	must(t, err)
	defer func() { _ = sandbox.Close() }()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, path := range []string{"d", "d/secret"} {
		target := w.outside
		if path != "d" {
			target += "/secret"
		}
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = sandbox.Rename(path, path+".away")
				_ = sandbox.Symlink(target, path)
				_ = sandbox.Remove(path)
				_ = sandbox.Rename(path+".away", path)
			}
		})
	}
	var tries, ok atomic.Int64
	mode := uint32(0o777)
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		note := func(err error) {
			tries.Add(1)
			if err == nil {
				ok.Add(1)
			}
		}
		got, err := w.read(ctx, "d/secret")
		note(err)
		if got == "secret" {
			t.Fatal("read the file outside")
		}
		_, err = w.write(ctx, "d/secret", "inside", driver.WriteOptions{InPlace: tries.Load()%2 == 0})
		note(err)
		note(w.SetMeta(ctx, "d/secret", driver.MetaChange{Mode: &mode, ModTime: time.Unix(1, 0)}))
		_, err = w.write(ctx, "d/new", "x", driver.WriteOptions{})
		note(err)
		note(w.Move(ctx, "d/new", "d/newer", true, ""))
		note(w.Remove(ctx, "d/newer", true, ""))
		for fi, err := range w.List(ctx, "d", driver.ListOptions{Recursive: true}) {
			note(err)
			if fi.Size == uint64(len("secret")) && fi.Mode == 0o644 && fi.Type == driver.TypeRegular && fi.Path == "secret" && fi.ModTime.Year() > 1990 {
				var st unix.Stat_t
				must(t, unix.Stat(w.outside+"/secret", &st))
				if strings.Contains(fi.Version, fmt.Sprint(st.Ino)) {
					t.Fatal("listed the file outside")
				}
			}
		}
	}
	close(stop)
	wg.Wait()
	w.untouched(t)
	var st unix.Stat_t
	must(t, unix.Stat(w.outside+"/secret", &st))
	if st.Mode&0o777 != 0o644 || st.Mtim.Sec == 1 {
		t.Error("the attributes of the file outside have changed")
	}
	t.Logf("%d tries, %d of them done, none escaped", tries.Load(), ok.Load())
	if ok.Load() == 0 || ok.Load() == tries.Load() {
		t.Error("the attack never met an operation")
	}
}
