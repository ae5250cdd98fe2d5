// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest"
)

// BenchmarkTrue compares a command through the guest with a plain fork and exec.
func BenchmarkTrue(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guest", func(b *testing.B) {
		c := begin(b, nil).connect(b)
		cmd := &driver.Command{Argv: []string{"/bin/true"}}
		for b.Loop() {
			if _, err := c.Run(b.Context(), cmd, driver.Streams{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOutput compares 64 MiB of output through the guest with a plain pipe.
func BenchmarkOutput(b *testing.B) {
	argv := []string{"head", "-c", "67108864", "/dev/zero"}
	var buf [128 << 10]byte
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(64 << 20)
		for b.Loop() {
			cmd := exec.Command(argv[0], argv[1:]...)
			r, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			if n, err := io.CopyBuffer(onlyWriter{io.Discard}, r, buf[:]); n != 64<<20 || err != nil {
				b.Fatal(n, err)
			}
			cmd.Wait()
		}
	})
	b.Run("guest", func(b *testing.B) {
		c := begin(b, nil).connect(b)
		b.SetBytes(64 << 20)
		for b.Loop() {
			exit, err := c.Run(b.Context(), &driver.Command{Argv: argv}, driver.Streams{Stdout: onlyWriter{io.Discard}})
			if err != nil || exit.OutputBytes != 64<<20 {
				b.Fatal(exit, err)
			}
		}
	})
}

type onlyWriter struct{ io.Writer }

// BenchmarkFile compares 64 MiB written and read through the guest with plain files.
func BenchmarkFile(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	b.Run("plain", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "f")
		b.SetBytes(128 << 20)
		for b.Loop() {
			if err := os.WriteFile(file, data, 0o644); err != nil {
				b.Fatal(err)
			}
			f, err := os.Open(file)
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(onlyWriter{io.Discard}, f)
			f.Close()
		}
	})
	b.Run("guest", func(b *testing.B) {
		c := begin(b, nil).connect(b)
		b.SetBytes(128 << 20)
		for b.Loop() {
			if _, err := c.Write(b.Context(), "f", driver.WriteOptions{}, bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
			_, r, err := c.Open(b.Context(), "f", driver.ReadOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(onlyWriter{io.Discard}, r); n != 64<<20 || err != nil {
				b.Fatal(n, err)
			}
			r.Close()
		}
	})
}

// BenchmarkStart is the time to the first answer; it reports the guest's memory and size too.
func BenchmarkStart(b *testing.B) {
	st, err := os.Stat(program)
	if err != nil {
		b.Fatal(err)
	}
	var rss int64
	for b.Loop() {
		g := begin(b, func(c *guest.Config) {})
		c := g.connect(b)
		rss = max(rss, memory(b, g.cmd.Process.Pid))
		if err := c.Shutdown(context.WithoutCancel(b.Context())); err != nil {
			b.Fatal(err)
		}
		g.waitEnd(b)
	}
	b.ReportMetric(float64(rss)/1024, "rss-MiB")
	b.ReportMetric(float64(st.Size())/(1<<20), "size-MiB")
}

// memory is the resident size in KiB.
func memory(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
