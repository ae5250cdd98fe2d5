// SPDX-License-Identifier: Apache-2.0

package fsys_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
)

const large = 64 << 20

// chunks gives its bytes in the pieces that a stream of messages has.
type chunks struct{ left []byte }

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 256<<10)], c.left)
	c.left = c.left[n:]
	return n, nil
}

func BenchmarkWrite64MiB(b *testing.B) {
	w := newWorld(b)
	data := bytes.Repeat([]byte("0123456789abcdef"), large/16)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(large)
		b.ReportAllocs()
		for b.Loop() {
			_, err := w.Write(b.Context(), "big", driver.WriteOptions{}, &chunks{data})
			must(b, err)
		}
	})
	b.Run("floor/plain", func(b *testing.B) {
		b.SetBytes(large)
		for b.Loop() {
			f, err := os.Create(w.root + "/plain") //nolint:forbidigo // in a directory of the test
			must(b, err)
			for off := 0; off < large; off += 1 << 20 {
				_, err := f.Write(data[off : off+1<<20])
				must(b, err)
			}
			must(b, f.Close())
		}
	})
}

func BenchmarkRead64MiB(b *testing.B) {
	w := newWorld(b)
	must(b, os.WriteFile(w.root+"/big", make([]byte, large), 0o600))
	buf := make([]byte, 1<<20)
	b.Run("read", func(b *testing.B) {
		b.SetBytes(large)
		for b.Loop() {
			_, r, err := w.Open(b.Context(), "big", driver.ReadOptions{})
			must(b, err)
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
			must(b, err)
			must(b, r.Close())
		}
	})
	b.Run("floor/plain", func(b *testing.B) {
		b.SetBytes(large)
		for b.Loop() {
			f, err := os.Open(w.root + "/big")
			must(b, err)
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
			must(b, err)
			must(b, f.Close())
		}
	})
}

func BenchmarkSmall(b *testing.B) {
	w := newWorld(b)
	put(b, w.root+"/a/b/c/d/file", string(make([]byte, 1024)))
	for i := range 200 {
		put(b, fmt.Sprintf("%s/list/%03d", w.root, i), "x")
	}
	body := make([]byte, 1024)
	ctx := b.Context()
	paths := []string{"a/b/c/d/file"}
	for name, op := range map[string]func(){
		"stat":         func() { _, _ = w.Stat(ctx, paths, driver.StatOptions{}) },
		"stat/floor":   func() { _, _ = os.Lstat(w.root + "/a/b/c/d/file") },
		"read1k":       func() { _, _ = w.read(ctx, paths[0]) },
		"read1k/floor": func() { _, _ = os.ReadFile(w.root + "/a/b/c/d/file") },
		"write1k": func() {
			_, _ = w.Write(ctx, paths[0], driver.WriteOptions{}, bytes.NewReader(body))
		},
		"write1k/floor": func() {
			_ = os.WriteFile(w.root+"/a/b/c/d/tmp", body, 0o644)
			_ = os.Rename(w.root+"/a/b/c/d/tmp", w.root+"/a/b/c/d/file2")
		},
		"list200": func() {
			for range w.List(ctx, "list", driver.ListOptions{}) {
			}
		},
		"list200/floor": func() {
			entries, _ := os.ReadDir(w.root + "/list")
			for _, e := range entries {
				_, _ = e.Info()
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
}
