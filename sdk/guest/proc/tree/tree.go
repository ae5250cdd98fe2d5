// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A mark is the value of a soft limit that the command and its descendants share. Its upper half tells marks from limits
// that somebody set; a process without real-time scheduling does not feel it, and one with it may run for 73,000 years.
const (
	upper = 0x2be7_0000_0000_0000
	lower = 0x0000_ffff_ffff_ffff
)

// Mark makes the mark of a number.
func Mark(n uint64) uint64 { return upper | n&lower }

// RandomStart is where the numbers of a table start.
func RandomStart() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:]) & 0xffff_ff00_0000
}

// Number is the number in a mark; ok is false for what is none.
func Number(v uint64) (n uint64, ok bool) { return v & lower, isMark(v) }

func isMark(v uint64) bool { return v&^lower == upper }

// CanMark tells whether the limit can be set: where the hard limit is lower it cannot.
func CanMark() bool {
	var l unix.Rlimit
	return unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &l) == nil && l.Max >= Mark(1<<48-1)
}

// SetMark marks this program, and so the next child.
func SetMark(mark uint64) {
	var l unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &l) == nil {
		l.Cur = mark
		unix.Prlimit(0, unix.RLIMIT_RTTIME, &l, nil) //nolint:errcheck // CanMark has shown that it can be set
	}
}

// markOf reads the mark of another process; 0 when it has none.
func markOf(pid int, name string) uint64 {
	var l unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_RTTIME, nil, &l) == nil {
		if isMark(l.Cur) {
			return l.Cur
		}
		return 0
	}
	// Another user's: the kernel lets only its file be read.
	b, err := os.ReadFile("/proc/" + name + "/limits")
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(b, []byte("Max realtime timeout"))
	f := bytes.Fields(rest)
	if !ok || len(f) == 0 {
		return 0
	}
	v, err := strconv.ParseUint(string(f[0]), 10, 64)
	if err != nil || !isMark(v) {
		return 0
	}
	return v
}

// Process is what a scan of /proc sees of one process.
type Process struct {
	PID, Parent, Session int
	Dead, Stopped        bool
	Mark                 uint64 // 0 = none
}

// Scan reads /proc. It leaves this program out. Marks are read when they are in use. Whole is false when a process ended
// between the listing and the look at it: it may have left a child that was not listed.
func Scan(marks bool) (ps []Process, whole bool) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	self := os.Getpid()
	whole = true
	buf := make([]byte, 512)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		p, ok := readStat(name, pid, buf)
		if !ok {
			whole = false
			continue
		}
		if marks {
			p.Mark = markOf(pid, name)
		}
		ps = append(ps, p)
	}
	return ps, whole
}

func readStat(name string, pid int, buf []byte) (Process, bool) {
	fd, err := unix.Open("/proc/"+name+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	n, err := unix.Read(fd, buf)
	unix.Close(fd)
	if err != nil || n <= 0 {
		return Process{}, false
	}
	// "pid (name) state ppid pgrp session …", and a name may hold anything.
	i := bytes.LastIndexByte(buf[:n], ')')
	f := bytes.Fields(buf[i+1 : n])
	if i < 0 || len(f) < 4 {
		return Process{}, false
	}
	p := Process{PID: pid, Dead: f[0][0] == 'Z' || f[0][0] == 'X', Stopped: f[0][0] == 'T'}
	p.Parent, _ = strconv.Atoi(string(f[1]))
	p.Session, _ = strconv.Atoi(string(f[3]))
	return p, true
}
