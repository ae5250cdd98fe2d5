// SPDX-License-Identifier: Apache-2.0

//go:build linux

package spawn

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread is the thread that starts every process. A child gets the credentials and the confinement of the thread that
// forks it, so what is to hold for commands and not for this program is applied to this thread alone. It is never the
// main thread: other processes see that one's credentials as the program's, and could signal it.
type Thread struct {
	work chan func()
}

// Start makes the thread; prepare, if any, runs on it first.
func Start(prepare func() error) (*Thread, error) {
	s := &Thread{work: make(chan func())}
	ready := make(chan error)
	go s.run(prepare, ready)
	return s, <-ready
}

func (s *Thread) run(prepare func() error, ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if unix.Gettid() == os.Getpid() {
		// This goroutine happens to be on the main thread. While it holds it, another cannot be.
		started := make(chan error)
		go s.run(prepare, started)
		err := <-started
		runtime.UnlockOSThread()
		ready <- err
		return
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			ready <- err
			return
		}
	}
	ready <- nil
	for f := range s.work {
		f()
	}
}

// Do runs f on the thread and waits for it.
func (s *Thread) Do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		f()
		close(done)
	}
	<-done
}

// Close ends the thread.
func (s *Thread) Close() { close(s.work) }
