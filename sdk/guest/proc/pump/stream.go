// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pump

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/proc/output"
)

// Stream is one stream of output.
type Stream struct {
	out     *output.Output
	name    uint8
	drained atomic.Int64

	mu sync.Mutex // held to close the descriptor, and to use it beside the pump
	fd int        // -1 = closed

	// For the one goroutine that reads a pipe:
	over    bool // nobody can write any more
	touched bool // it was read since somebody looked whether it is empty
	bulk    bool // so much comes that it is looked for by the clock
}

// fill reads once, and tells how much it could have been.
func (s *Stream) fill() (n, most int, err error) {
	n, err = s.out.Fill(s.name, func(b []byte) (int, error) {
		most = len(b)
		for {
			n, err := unix.Read(s.fd, b)
			if !errors.Is(err, unix.EINTR) {
				return n, err
			}
		}
	})
	s.drained.Add(int64(max(n, 0)))
	return n, most, err
}

// forget has Pending look no more, after the descriptor was closed with f.
func (s *Stream) forget(f func(fd int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		f(s.fd)
	}
	s.fd = -1
}

// Pending is how much waits to be read.
func (s *Stream) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return 0
	}
	n, err := unix.IoctlGetInt(s.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// Drained is how many bytes were read.
func (s *Stream) Drained() int64 { return s.drained.Load() }
