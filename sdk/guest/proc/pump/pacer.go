// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pump

import "time"

// pacer makes pauses before reads of a process that writes many small pieces: waking up for each would cost more than
// the pieces, and on a busy machine takes the process off its processor each time. It begins after some of them in a short
// time, so that little output comes at once, and ends when the process writes nothing for a while.
type pacer struct {
	on    bool
	full  bool          // the last read took much: there may be more
	much  int           // bytes
	time  time.Duration // of a pause
	small int           // reads of little since
	since time.Time     // when small began, or the last read in a pace ended
}

const (
	paceAfter = 16
	paceBytes = 16 << 10
	paceSpan  = 100 * time.Millisecond
	paceTime  = 200 * time.Microsecond
	paceIdle  = 100 * time.Millisecond
	// fillRate is how many bytes a quick process writes in a microsecond.
	fillRate = 1 << 10
)

// newPacer makes pauses in which what the kernel holds is about filled, so that the process need not wait.
func newPacer(room int) pacer {
	return pacer{much: max(paceBytes, room/8), time: max(paceTime, time.Duration(room/fillRate)*time.Microsecond)}
}

// pause lets it gather.
func (c *pacer) pause() {
	if c.on && !c.full {
		time.Sleep(c.time)
	}
}

// bulk tells whether more comes than is worth being told of each time.
func (c *pacer) bulk() bool { return c.on && c.full }

// read is told of a read of n bytes that could have been most.
func (c *pacer) read(n, most int) {
	c.full = n >= c.much || c.on && n == most
	if c.on {
		now := time.Now()
		c.on, c.since = now.Sub(c.since) < paceIdle, now
		return
	}
	if c.full {
		return
	}
	if c.small == 0 {
		c.since = time.Now()
	}
	if c.small++; c.small > paceAfter {
		c.on, c.small = time.Since(c.since) < paceSpan, 0
	}
}
