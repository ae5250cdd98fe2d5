// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"sync"
	"time"

	"github.com/berth-dev/berth/core/tool"
)

const (
	liveEvery = 100 * time.Millisecond
	liveBytes = 2 << 10
)

// live shows a person the end of a command's output as it grows, a few times a second whatever the command prints.
type live struct {
	report func(tool.Progress)
	now    func() time.Time

	mu   sync.Mutex
	buf  []byte    // guarded by mu; the last liveBytes that were not shown
	last time.Time // guarded by mu
	off  bool      // guarded by mu
}

func newLive(report func(tool.Progress), now func() time.Time) *live {
	return &live{report: report, now: now, off: report == nil}
}

// Write keeps the tail, and shows it when the last time is long enough ago.
func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.off {
		return len(p), nil
	}
	n := len(p)
	if n > liveBytes {
		p = p[n-liveBytes:]
		l.buf = l.buf[:0]
	}
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - liveBytes; over > 0 {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	if now := l.now(); now.Sub(l.last) >= liveEvery {
		l.last = now
		l.flush()
	}
	return n, nil
}

func (l *live) flush() {
	if len(l.buf) > 0 {
		l.report(tool.Progress{Output: append([]byte(nil), l.buf...)})
		l.buf = l.buf[:0]
	}
}

// stop shows the rest; later output is not shown.
func (l *live) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.off {
		l.flush()
		l.off = true
	}
}
