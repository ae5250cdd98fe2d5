// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
)

func BenchmarkCreateDestroy(b *testing.B) {
	f := newFixture(b, driver.Host{})
	if _, err := f.machine(); err != nil {
		b.Fatal(err)
	}
	begin := cpuTime(b)
	defer func() { b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/float64(b.N), "cpu-µs/op") }()
	for b.Loop() {
		s, err := f.Create(b.Context(), &driver.CreateRequest{
			SandboxID: ulid.Make().String(), Workspace: driver.Workspace{Root: "/workspace"},
		})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkExec(b *testing.B) {
	f := newFixture(b, driver.Host{})
	s := f.create(b, nil)
	begin := cpuTime(b)
	defer func() { b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/float64(b.N), "cpu-µs/op") }()
	for b.Loop() {
		if _, err := s.Run(b.Context(), &driver.Command{Argv: []string{"/bin/true"}}, driver.Streams{}); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime is what this process and the children that have ended used: on a busy machine it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return sum
}

// BenchmarkSpawn is what starting a program costs without any sandbox.
func BenchmarkSpawn(b *testing.B) {
	begin := cpuTime(b)
	defer func() { b.ReportMetric(float64((cpuTime(b)-begin).Microseconds())/float64(b.N), "cpu-µs/op") }()
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
