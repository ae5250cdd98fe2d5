// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/adapter"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

// bulk is what the throughput benchmarks move each time.
const bulk = 64 << 20

func benchSandbox(b *testing.B) *rpc.Sandbox {
	b.Helper()
	f := newFake()
	f.wrap = withFiles
	conn, _ := servetest.Socket(b, adapter.Config{Driver: f})
	return create(b, rpc.New(conn, rpc.Config{}), "sb")
}

func BenchmarkExec(b *testing.B) {
	sb := benchSandbox(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sb.Exec(b.Context(), &driver.Command{Argv: []string{"exit", "0"}}, nil, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	sb := benchSandbox(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sb.Run(b.Context(), &driver.Command{Argv: []string{"exit", "0"}}, driver.Streams{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOutput(b *testing.B) {
	sb := benchSandbox(b)
	cmd := &driver.Command{Argv: []string{"zeros", fmt.Sprint(bulk)}}
	b.SetBytes(bulk)
	b.ReportAllocs()
	for b.Loop() {
		if exit, err := sb.Run(b.Context(), cmd, driver.Streams{Stdout: io.Discard}); err != nil || exit.OutputBytes != bulk {
			b.Fatal(exit, err)
		}
	}
}

func BenchmarkStdin(b *testing.B) {
	sb := benchSandbox(b)
	b.SetBytes(bulk)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sb.Run(b.Context(), &driver.Command{Argv: []string{"swallow"}}, driver.Streams{Stdin: io.LimitReader(zeros{}, bulk)}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	sb := benchSandbox(b)
	b.SetBytes(bulk)
	b.ReportAllocs()
	for b.Loop() {
		_, r, err := sb.Open(b.Context(), "endless", driver.ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, r, bulk); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func BenchmarkWrite(b *testing.B) {
	sb := benchSandbox(b)
	b.SetBytes(bulk)
	b.ReportAllocs()
	for b.Loop() {
		res, err := sb.Write(b.Context(), "null", driver.WriteOptions{}, io.LimitReader(zeros{}, bulk))
		if err != nil || res.Info.Size != bulk {
			b.Fatal(res, err)
		}
	}
}
