// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"sync"
	"time"
)

// lease ends the guest when nobody was attached for too long.
type lease struct {
	ttl time.Duration
	end func()

	mu      sync.Mutex
	timer   *time.Timer
	hosted  bool // somebody is attached
	stopped bool
}

func newLease(ttl time.Duration, end func()) *lease {
	l := &lease{ttl: ttl, end: end}
	l.timer = time.AfterFunc(max(ttl, firstHost), l.expire)
	return l
}

// attached tells whether a host is there now.
func (l *lease) attached(now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || now == l.hosted {
		return
	}
	l.hosted = now
	if now {
		l.timer.Stop()
	} else {
		l.timer = time.AfterFunc(l.ttl, l.expire)
	}
}

func (l *lease) expire() {
	l.mu.Lock()
	over := !l.hosted && !l.stopped
	l.mu.Unlock()
	if over {
		l.end()
	}
}

func (l *lease) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
}
