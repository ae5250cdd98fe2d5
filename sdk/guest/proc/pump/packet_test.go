// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pump_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/proc/output"
	"github.com/berth-dev/berth/sdk/guest/proc/pump"
)

// A read of a pipe that holds packets is short although there is more, and no arrival tells that.
func TestPacketsAreNotForgotten(t *testing.T) {
	var pair [2]int
	if err := unix.Pipe2(pair[:], unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_DIRECT); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1]) // of a test
	const packets = 5
	for range packets {
		if _, err := unix.Write(pair[1], []byte("packet")); err != nil {
			t.Fatal(err)
		}
	}
	out := output.New(1<<20, time.Minute)
	w, err := pump.Pipes(out, pump.Pipe{Stream: output.Stdout, FD: pair[0], Room: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	go w.Run()
	r := out.Reader(0)
	defer r.Close()
	for got := 0; got < packets*len("packet"); {
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, _, _ := r.Next(make([]byte, 100))
		got += n
	}
}
