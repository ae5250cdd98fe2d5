// SPDX-License-Identifier: Apache-2.0

//go:build linux

package output

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// model is the slow and obvious output: every byte with its stream, and what was dropped.
type model struct {
	bytes   []byte
	streams []uint8
}

func (m *model) append(stream uint8, p []byte) {
	for _, b := range p {
		m.bytes = append(m.bytes, b)
		m.streams = append(m.streams, stream)
	}
}

func feed(o *Output, stream uint8, p []byte) {
	for len(p) > 0 {
		n, _ := o.Fill(stream, func(b []byte) (int, error) { return copy(b, p), nil })
		p = p[n:]
	}
}

// FuzzOutput: whatever is written, and whenever somebody reads from wherever, what comes is what was written there, of the
// right stream, gaps are told exactly, a reader that is attached loses nothing, and no more is kept than allowed.
func FuzzOutput(f *testing.F) {
	f.Add([]byte{1, 10, 2, 20, 0, 5, 1, 200}, uint16(100))
	f.Add([]byte{1, 255, 1, 255, 1, 255, 3, 0, 0, 0, 2, 255, 0, 255}, uint16(10))
	f.Add([]byte{1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 0, 1, 3, 9, 0, 0}, uint16(0))
	f.Fuzz(func(t *testing.T, ops []byte, keep uint16) {
		o := New(uint64(keep), time.Minute)
		var m model
		var next byte
		live := o.Reader(0)
		livePos, liveGaps := uint64(0), 0
		check := func(r *Reader, pos uint64, size int) (uint64, int) {
			buf := make([]byte, size)
			n, stream, gap := r.Next(buf)
			if gap != (driver.Gap{}) {
				if gap.From != pos || gap.To <= gap.From || gap.To > uint64(len(m.bytes)) || n != 0 {
					t.Fatalf("gap %v at %d, with %d bytes", gap, pos, n)
				}
				return gap.To, 1
			}
			for i := range n {
				if at := pos + uint64(i); m.bytes[at] != buf[i] || m.streams[at] != stream {
					t.Fatalf("byte %d is %d of %d, not %d of %d", at, buf[i], stream, m.bytes[at], m.streams[at])
				}
			}
			if n == 0 && size > 0 && pos < uint64(len(m.bytes)) {
				t.Fatalf("nothing at %d of %d", pos, len(m.bytes))
			}
			return pos + uint64(n), 0
		}
		for len(ops) >= 2 {
			op, arg := ops[0], ops[1]
			ops = ops[2:]
			switch op % 4 {
			case 0:
				p, g := check(live, livePos, int(arg)*7)
				livePos, liveGaps = p, liveGaps+g
			case 1, 2:
				p := make([]byte, int(arg)*int(arg)/4)
				for i := range p {
					next++
					p[i] = next
				}
				if len(m.bytes)+len(p)-int(livePos) > minBuffer/2 {
					continue // the writer would wait
				}
				m.append(op%4, p)
				feed(o, op%4, p)
			case 3:
				r := o.Reader(uint64(arg) * uint64(len(m.bytes)) / 255)
				pos := uint64(arg) * uint64(len(m.bytes)) / 255
				for pos < uint64(len(m.bytes)) {
					pos, _ = check(r, pos, 1+int(arg)*50)
				}
				r.Close()
			}
			if liveGaps != 0 {
				t.Fatal("a reader that keeps up lost something")
			}
		}
		// What is kept for a newcomer is what was asked for, once the attached reader needs no more.
		for livePos < uint64(len(m.bytes)) {
			p, g := check(live, livePos, 4096)
			livePos, liveGaps = p, liveGaps+g
		}
		live.Close()
		if kept := int(o.end - o.start); kept > int(keep) || o.start > 0 && kept+runCost*(len(o.runs)+2) < int(keep) {
			t.Fatalf("%d of %d bytes are kept, asked for %d", kept, len(m.bytes), keep)
		}
	})
}

// A reader that takes nothing holds the process up for the stall, and then finds a gap; one that comes back is waited for
// again.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(1000, time.Minute)
		r := o.Reader(0)
		began := time.Now()
		chunk := make([]byte, 64<<10)
		written := 0
		for time.Since(began) < 30*time.Second && written < 2*minBuffer {
			o.Wait()
			if time.Since(began) > 0 {
				break
			}
			feed(o, Stdout, chunk)
			written += len(chunk)
		}
		if written < minBuffer || written > minBuffer+len(chunk) {
			t.Errorf("%d bytes were taken before the process was held up", written)
		}
		if held := time.Since(began); held != time.Minute {
			t.Errorf("held up for %v", held)
		}
		feed(o, Stdout, chunk)
		written += len(chunk)
		n, _, gap := r.Next(chunk)
		if n != 0 || gap != (driver.Gap{From: 0, To: uint64(written - 1000 + runCost)}) {
			t.Errorf("%d bytes, gap %v of %d", n, gap, written)
		}
		if n, _, _ = r.Next(chunk); n != 1000-runCost {
			t.Errorf("%d bytes", n)
		}
		// Idle for an hour, because there was nothing: not stalled.
		time.Sleep(time.Hour)
		again := time.Now()
		for range minBuffer / len(chunk) {
			o.Wait()
			feed(o, Stdout, chunk)
		}
		if time.Since(again) != 0 {
			t.Errorf("held up for %v", time.Since(again))
		}
		done := make(chan struct{})
		go func() {
			o.Wait()
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("a reader that had everything was not waited for")
		default:
		}
		r.Close()
		<-done
	})
}

func TestReaderWaits(t *testing.T) {
	o := New(1000, time.Minute)
	r := o.Reader(0)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := r.Wait(ctx); !errors.Is(err, why) {
		t.Error(err)
	}
	feed(o, Stderr, []byte("x"))
	o.Close()
	if err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	r.Next(make([]byte, 10))
	if err := r.Wait(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	feed(o, Stdout, []byte("late")) // of a background process: thrown away
	if total, _ := o.Total(); total != 1 {
		t.Error(total)
	}
}
