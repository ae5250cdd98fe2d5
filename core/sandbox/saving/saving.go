// SPDX-License-Identifier: Apache-2.0

// Package saving decides when a workspace is saved while it is worked in: by the clock, after turns, and before the
// sandbox's deadline, which may move. It knows neither sandboxes nor snapshots; what it does not decide is how they are
// saved, and whether at all.
package saving

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// DefaultBefore is how long before a sandbox's end its workspace is saved when the configuration says nothing.
const DefaultBefore = 2 * time.Minute

// again is the part of that time which is left when it is saved once more, for what was done meanwhile.
const again = 4

// Config says when to save.
type Config struct {
	Every  time.Duration // 0 = not by the clock
	Before time.Duration // how long before the end; 0 = [DefaultBefore]
	End    time.Time     // of the sandbox; zero = it has none
	// Save saves. Nobody else calls it at the same time; it tells of its errors itself.
	Save func(context.Context)
	// Near is told the end before a save that it is the reason for, once for each end; nil = nobody is told.
	Near func(end time.Time)
}

// Loop saves until it is stopped.
type Loop struct {
	cfg   Config
	turn  chan struct{}
	moved chan struct{}
	stop  context.CancelCauseFunc
	done  sync.WaitGroup

	mu  sync.Mutex
	end time.Time // guarded by mu
}

var errStopped = errors.New("the session ends")

// Start begins a loop. Whoever starts it stops it.
func Start(cfg Config) *Loop {
	l := &Loop{cfg: cfg, turn: make(chan struct{}, 1), moved: make(chan struct{}, 1), end: cfg.End}
	ctx, stop := context.WithCancelCause(context.Background())
	l.stop = stop
	l.done.Go(func() { l.run(ctx) })
	return l
}

// Turn saves soon, unless it is going to be saved already.
func (l *Loop) Turn() { wake(l.turn) }

// EndsAt tells that the sandbox ends at another time than was known; zero = never.
func (l *Loop) EndsAt(end time.Time) {
	l.mu.Lock()
	same := l.end.Equal(end)
	l.end = end
	l.mu.Unlock()
	if !same {
		wake(l.moved)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *Loop) endsAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Stop ends the loop, and a save that is under way.
func (l *Loop) Stop() {
	l.stop(errStopped)
	l.done.Wait()
}

func (l *Loop) run(ctx context.Context) {
	var tick <-chan time.Time
	if l.cfg.Every > 0 {
		t := time.NewTicker(l.cfg.Every)
		defer t.Stop()
		tick = t.C
	}
	a := l.alarm()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.moved:
			a.timer.Stop()
			a = l.alarm()
			continue
		case <-tick:
		case <-l.turn:
		case <-a.timer.C:
			if !l.endsAt().Equal(a.end) {
				continue // it has moved in this moment
			}
			if l.cfg.Near != nil && !a.rung {
				l.cfg.Near(a.end)
			}
			a.next()
		}
		l.cfg.Save(ctx)
	}
}

// alarm rings when it is time to save because the sandbox ends.
type alarm struct {
	timer  *time.Timer
	end    time.Time
	before time.Duration // the end it rings next, or has rung last
	rung   bool
}

func (l *Loop) alarm() *alarm {
	a := &alarm{end: l.endsAt()}
	left := time.Until(a.end)
	// A life that is shorter than the time before its end is not saved in its first half.
	a.before = min(cmp.Or(l.cfg.Before, DefaultBefore), left/2)
	a.timer = time.NewTimer(left - a.before)
	if a.end.IsZero() || left <= 0 {
		a.timer.Stop()
	}
	return a
}

// next sets it for the second and last time.
func (a *alarm) next() {
	if a.rung {
		return
	}
	a.rung = true
	a.before /= again
	a.timer.Reset(time.Until(a.end) - a.before)
}
