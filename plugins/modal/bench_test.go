// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
)

// What the driver adds to a call of the vendor's: each operation beside Modal's own exec of the same, over the same fake.
func BenchmarkOperations(b *testing.B) {
	f := newFixture(b)
	req := request(b, nil)
	s := f.create(b, req)
	sb, err := f.c.Sandboxes.FromID(b.Context(), f.vendor.ByName(req.SandboxID), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("modal-exec", func(b *testing.B) {
		for b.Loop() {
			p, err := sb.Exec(b.Context(), []string{"true"}, nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("run", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Run(b.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Stat(b.Context(), []string{"."}, driver.StatOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write-1KiB", func(b *testing.B) {
		content := strings.Repeat("x", 1<<10)
		for b.Loop() {
			if _, err := s.Write(b.Context(), "f", driver.WriteOptions{}, strings.NewReader(content)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
