// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package pump moves what a process writes out of the kernel, without waking up for each piece of it, and in the order in
// which it was written, as far as that can be known.
package pump

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/proc/output"
)

// Pump moves the output of one process until its end.
type Pump struct {
	out      *output.Output
	streams  []*Stream
	pace     pacer
	master   *os.File  // of a terminal
	arrivals *arrivals // of pipes
}

// Pipe is a pipe to read from. Its descriptor does not block and belongs to the pump.
type Pipe struct {
	Stream uint8
	FD     int
	Room   int // bytes that the kernel holds for it
}

// Pipes reads from pipes.
func Pipes(out *output.Output, pipes ...Pipe) (*Pump, error) {
	p := &Pump{out: out, pace: newPacer(pipes[0].Room)}
	for _, pipe := range pipes {
		p.streams = append(p.streams, &Stream{out: out, name: pipe.Stream, fd: pipe.FD})
	}
	var err error
	if p.arrivals, err = newArrivals(p.streams); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Terminal reads from a terminal, which the pump closes at its end.
func Terminal(out *output.Output, master *os.File) (*Pump, error) {
	s := &Stream{out: out, name: output.Stdout}
	p := &Pump{out: out, pace: newPacer(0), master: master, streams: []*Stream{s}}
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, err
	}
	return p, raw.Control(func(fd uintptr) { s.fd = int(fd) })
}

// Streams are those of the pump.
func (p *Pump) Streams() []*Stream { return p.streams }

// Run moves everything, and returns at the end. It is called once.
func (p *Pump) Run() {
	defer p.Close()
	if p.master != nil {
		p.runTerminal(p.streams[0])
		return
	}
	for p.open() && p.wait() == nil {
		for len(p.arrivals.queue) > 0 {
			p.read(p.arrivals.next())
			if p.arrivals.look() != nil {
				return
			}
		}
	}
}

// Close lets go of the files. A pump that runs does it by itself.
func (p *Pump) Close() {
	for _, s := range p.streams {
		p.end(s)
	}
	if p.arrivals != nil {
		p.arrivals.f.Close()
	}
}

// end closes a stream.
func (p *Pump) end(s *Stream) {
	s.forget(func(fd int) {
		if p.master != nil {
			p.master.Close()
		} else {
			_ = unix.Close(fd)
		}
	})
}

func (p *Pump) open() bool {
	return slices.ContainsFunc(p.streams, func(s *Stream) bool { return s.fd >= 0 })
}

// runTerminal moves output until EOF, or EIO when nobody holds the terminal any more.
func (p *Pump) runTerminal(s *Stream) {
	raw, err := p.master.SyscallConn()
	if err != nil {
		return
	}
	for {
		p.out.Wait()
		var n, most int
		var rerr error
		err := raw.Read(func(uintptr) bool {
			p.pace.pause()
			n, most, rerr = s.fill()
			if errors.Is(rerr, unix.EAGAIN) {
				p.pace.full = false
				return false
			}
			return true
		})
		if err != nil || rerr != nil || n == 0 {
			return
		}
		p.pace.read(n, most)
	}
}

// wait waits until a pipe is in the queue, or looks by the clock while there is very much from one.
func (p *Pump) wait() error {
	if slices.ContainsFunc(p.streams, func(s *Stream) bool { return s.bulk }) {
		return p.tick()
	}
	raw, err := p.arrivals.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(uintptr) bool {
		p.pace.pause()
		failed = p.arrivals.lookAgain()
		if failed == nil && len(p.arrivals.queue) == 0 {
			p.pace.full = false
			return false
		}
		return true
	})
	return errors.Join(err, failed)
}

// tick reads the pipes that are not watched once in the time that it takes to fill them.
func (p *Pump) tick() error {
	time.Sleep(p.pace.time)
	for _, s := range p.streams {
		if !s.bulk {
			continue
		}
		got, err := p.drain(s)
		if err == nil && got < p.pace.much {
			p.pace.full, p.pace.since = false, time.Now()
			err = p.arrivals.watch(s)
		}
		if err != nil {
			p.end(s)
			s.bulk = false
		}
	}
	return p.arrivals.look()
}

// errEnd is the end of a pipe.
var errEnd = errors.New("the pipe has ended")

// drain reads what a pipe holds.
func (p *Pump) drain(s *Stream) (got int, err error) {
	for {
		p.out.Wait()
		n, most, err := s.fill()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return got, nil
		case err != nil:
			return got, err
		case n == 0:
			return got, errEnd
		}
		got += n
		if n < most {
			return got, nil
		}
	}
}

// read reads a pipe once.
func (p *Pump) read(s *Stream) {
	p.out.Wait()
	n, most, err := s.fill()
	switch {
	case errors.Is(err, unix.EAGAIN):
		return
	case err != nil || n == 0:
		p.end(s)
		return
	}
	s.touched = true
	p.pace.read(n, most)
	if p.pace.bulk() {
		p.arrivals.unwatch(s)
	}
	if !s.bulk && (n == most || s.over) {
		p.arrivals.again(s)
	}
}
