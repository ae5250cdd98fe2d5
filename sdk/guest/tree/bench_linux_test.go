// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/tree"
)

// The floors stand beside: the same work by the plainest means that are known to be fast.

// small is an archive of 10,000 files of 1 KiB in 100 directories.
func small(b *testing.B) []byte {
	b.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	body := make([]byte, 1024)
	for d := range 100 {
		must(b, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%02d/", d), Mode: 0o755}))
		for f := range 100 {
			for i := range body {
				body[i] = byte(rand.IntN(256))
			}
			must(b, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%02d/f%02d", d, f), Mode: 0o644, Size: 1024}))
			_, err := w.Write(body)
			must(b, err)
		}
	}
	must(b, w.Close())
	return out.Bytes()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// fresh gives an empty directory and removes it outside of the measured time.
func fresh(b *testing.B) (string, func()) {
	b.Helper()
	b.StopTimer()
	dir, err := os.MkdirTemp(b.TempDir(), "x") //nolint:usetesting // a new one each time
	must(b, err)
	b.StartTimer()
	return dir, func() {
		b.StopTimer()
		must(b, os.RemoveAll(dir))
		b.StartTimer()
	}
}

func BenchmarkImport10000(b *testing.B) {
	data := small(b)
	b.Run("import", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			dir, done := fresh(b)
			_, err := importTree(b, dir, data, tree.ImportOptions{})
			must(b, err)
			done()
		}
	})
	b.Run("floor/tar", func(b *testing.B) {
		for range b.N {
			dir, done := fresh(b)
			cmd := exec.CommandContext(b.Context(), "tar", "-xf", "-", "-C", dir)
			cmd.Stdin = bytes.NewReader(data)
			must(b, cmd.Run())
			done()
		}
	})
}

// sourceTree is 10,000 files of 1 KiB and one of 256 MiB.
func sourceTree(b *testing.B) string {
	b.Helper()
	src := b.TempDir()
	_, err := importTree(b, src, small(b), tree.ImportOptions{})
	must(b, err)
	f, err := os.Create(src + "/big") //nolint:forbidigo // in a directory of the test
	must(b, err)
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(rand.IntN(256))
	}
	for range 256 {
		_, err = f.Write(chunk)
		must(b, err)
	}
	must(b, f.Close())
	return src
}

// references is an archive that names every file of src.
func references(b *testing.B, src string) []byte {
	b.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	must(b, filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		must(b, err)
		rel, _ := filepath.Rel(src, path)
		var st unix.Stat_t
		must(b, unix.Lstat(path, &st))
		h := &tar.Header{Typeflag: tar.TypeReg, Name: rel, Mode: int64(st.Mode & 0o7777), Format: tar.FormatPAX}
		if d.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, rel+"/"
		} else {
			h.PAXRecords = map[string]string{driver.PAXSource: path, driver.PAXSourceID: fmt.Sprintf("%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano())}
		}
		return w.WriteHeader(h)
	}))
	must(b, w.Close())
	return out.Bytes()
}

func BenchmarkHostReferences(b *testing.B) {
	src := sourceTree(b)
	data := references(b, src)
	b.Run("import", func(b *testing.B) {
		for range b.N {
			dir, done := fresh(b)
			_, err := importTree(b, dir, data, tree.ImportOptions{HostReferences: true})
			must(b, err)
			done()
		}
	})
	b.Run("floor/copy_file_range", func(b *testing.B) {
		for range b.N {
			dir, done := fresh(b)
			copyPlain(b, src, dir)
			done()
		}
	})
}

// copyPlain copies a tree with two workers and copy_file_range by path, with no check of anything.
func copyPlain(b *testing.B, src, dst string) {
	jobs := make(chan string, 64)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for rel := range jobs {
				in, err := os.Open(src + "/" + rel)
				must(b, err)
				st, err := in.Stat()
				must(b, err)
				out, err := os.OpenFile(dst+"/"+rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, st.Mode().Perm())
				must(b, err)
				for left := int(st.Size()); left > 0; {
					n, err := unix.CopyFileRange(int(in.Fd()), nil, int(out.Fd()), nil, left, 0)
					must(b, err)
					left -= n
				}
				_ = in.Close()
				_ = out.Close()
			}
		})
	}
	must(b, filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		must(b, err)
		rel, _ := filepath.Rel(src, path)
		if d.IsDir() {
			return os.MkdirAll(dst+"/"+rel, 0o755)
		}
		jobs <- rel
		return nil
	}))
	close(jobs)
	wg.Wait()
}

func BenchmarkExport(b *testing.B) {
	src := sourceTree(b)
	b.Run("export", func(b *testing.B) {
		b.ReportAllocs()
		fd := dirFD(b, src)
		for range b.N {
			must(b, tree.Export(b.Context(), fd, "", onlyWriter{io.Discard}, tree.ExportOptions{}))
		}
	})
	b.Run("floor/tar", func(b *testing.B) {
		for range b.N {
			cmd := exec.CommandContext(b.Context(), "tar", "-cf", "-", "-C", src, ".")
			cmd.Stdout = onlyWriter{io.Discard}
			must(b, cmd.Run())
		}
	})
}

// onlyWriter hides ReadFrom.
type onlyWriter struct{ io.Writer }
