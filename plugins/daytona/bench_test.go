// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/sdk/driver"
)

// BenchmarkRun says what a command costs beyond the time that its process ran inside. The target is 2 ms.
func BenchmarkRun(b *testing.B) {
	v := newVendor(b, fake.Options{})
	s := create(b, driverAt(b, v, b.TempDir()), request(b, nil))
	sh(b, s, "true")
	var ran time.Duration
	for b.Loop() {
		exit, err := s.Run(b.Context(), &driver.Command{Argv: []string{"/bin/true"}}, driver.Streams{})
		if err != nil {
			b.Fatal(err)
		}
		ran += exit.Ran
	}
	b.ReportMetric(float64((b.Elapsed()-ran).Microseconds())/float64(b.N), "overhead-µs/op")
}

// BenchmarkStat is a call of the guest that does next to nothing: what is left is the way there and back.
func BenchmarkStat(b *testing.B) {
	v := newVendor(b, fake.Options{})
	s := create(b, driverAt(b, v, b.TempDir()), request(b, nil))
	for b.Loop() {
		if _, err := s.Stat(b.Context(), []string{"."}, driver.StatOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVendor is the fake's own way there and back: a call of the toolbox that does next to nothing.
func BenchmarkVendor(b *testing.B) {
	v := newVendor(b, fake.Options{})
	d := driverAt(b, v, b.TempDir())
	s := create(b, d, request(b, nil))
	got, err := d.client.Sandbox(b.Context(), vendorID(s))
	if err != nil {
		b.Fatal(err)
	}
	t, err := d.client.Toolbox(got)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := t.Version(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
