// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pump

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// arrivals says which pipe is to be read: they come in the order in which they came to be readable, which is all that
// pipes tell about the order of what was written. A pipe is taken from the queue when it is empty, so that its next
// arrival has a place of its own.
type arrivals struct {
	f       *os.File
	fd      int // of f, an epoll instance
	streams []*Stream
	queue   []*Stream
	found   []unix.EpollEvent
}

func newArrivals(streams []*Stream) (*arrivals, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	unix.SetNonblock(fd, true) //nolint:errcheck // of a descriptor just made
	a := &arrivals{f: os.NewFile(uintptr(fd), "arrivals"), fd: fd, streams: streams, found: make([]unix.EpollEvent, len(streams))}
	for _, s := range streams {
		if err := a.watch(s); err != nil {
			a.f.Close()
			return nil, err
		}
	}
	return a, nil
}

// watch takes a pipe in. What it holds already counts as arriving now.
func (a *arrivals) watch(s *Stream) error {
	s.bulk = false
	i := int32(slices.Index(a.streams, s)) // there are two
	return unix.EpollCtl(a.fd, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: i})
}

// unwatch takes a pipe out. One that is watched wakes the watcher at each write, also when nobody waits for it, which
// costs a quick process more than the write itself.
func (a *arrivals) unwatch(s *Stream) {
	s.bulk = unix.EpollCtl(a.fd, unix.EPOLL_CTL_DEL, s.fd, nil) == nil
}

// look queues what has arrived since the last look.
func (a *arrivals) look() error {
	n, err := unix.EpollWait(a.fd, a.found, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(a.fd, a.found, 0)
	}
	if err != nil {
		return err
	}
	for _, e := range a.found[:n] {
		s := a.streams[e.Fd]
		s.over = s.over || e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0
		if s.fd >= 0 && !s.bulk && !slices.Contains(a.queue, s) {
			a.queue = append(a.queue, s)
		}
	}
	return nil
}

// lookAgain also finds what a short read left behind, as it does when the process writes packets.
func (a *arrivals) lookAgain() error {
	if err := a.look(); err != nil || len(a.queue) > 0 {
		return err
	}
	for _, s := range a.streams {
		if !s.touched || s.bulk {
			continue
		}
		s.touched = false
		if s.Pending() == 0 {
			continue
		}
		// What has just arrived is told by the next look, in its place; the rest was here.
		if err := a.look(); err != nil || len(a.queue) > 0 {
			s.touched = true
			return err
		}
		a.queue = append(a.queue, s)
		return nil
	}
	return nil
}

// next is the pipe to read, which leaves the queue.
func (a *arrivals) next() *Stream {
	s := a.queue[0]
	a.queue = a.queue[1:]
	return s
}

// again queues a pipe that there may be more in.
func (a *arrivals) again(s *Stream) { a.queue = append(a.queue, s) }
