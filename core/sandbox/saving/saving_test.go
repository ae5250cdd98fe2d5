// SPDX-License-Identifier: Apache-2.0

package saving_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/core/sandbox/saving"
)

// watched is a loop whose saves are counted from its start.
type watched struct {
	*saving.Loop
	began time.Time
	saves []time.Duration
	near  []time.Duration
}

func start(t *testing.T, life time.Duration, cfg saving.Config) *watched {
	w := &watched{began: time.Now()}
	if life > 0 {
		cfg.End = w.began.Add(life)
	}
	cfg.Save = func(context.Context) { w.saves = append(w.saves, time.Since(w.began)) }
	cfg.Near = func(end time.Time) { w.near = append(w.near, end.Sub(w.began)) }
	w.Loop = saving.Start(cfg)
	t.Cleanup(w.Stop)
	return w
}

// want waits until so much time has gone, and looks at what was done.
func (w *watched) want(t *testing.T, after time.Duration, near []time.Duration, saves ...time.Duration) {
	t.Helper()
	time.Sleep(after - time.Since(w.began)) // in a bubble
	synctest.Wait()
	if !slices.Equal(w.saves, saves) || !slices.Equal(w.near, near) {
		t.Errorf("after %s it was saved at %v, and ends were told %v; want %v and %v", after, w.saves, w.near, saves, near)
	}
}

const s, m = time.Second, time.Minute

func TestBeforeTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		life, before time.Duration
		saves        []time.Duration
	}{
		"none":     {0, 0, nil},
		"usual":    {10 * m, 0, []time.Duration{8 * m, 9*m + 30*s}},
		"asked":    {10 * m, 4 * m, []time.Duration{6 * m, 9 * m}},
		"short":    {20 * s, 0, []time.Duration{10 * s, 17*s + 500*time.Millisecond}},
		"over":     {-s, 0, nil},
		"not much": {time.Millisecond, 0, []time.Duration{500 * time.Microsecond, 875 * time.Microsecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, max(c.life, 0), saving.Config{Before: c.before})
				if c.life < 0 {
					w.EndsAt(w.began.Add(c.life))
				}
				var near []time.Duration
				if c.saves != nil {
					near = []time.Duration{c.life}
				}
				w.want(t, time.Hour, near, c.saves...)
			})
		})
	}
}

// An end that moves is not told and nothing is saved, until it comes near.
func TestEndMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 30*s, saving.Config{})
		for at := 10 * s; at <= 5*m; at += 10 * s {
			w.want(t, at, nil)
			w.EndsAt(w.began.Add(at + 30*s))
		}
		w.want(t, 5*m+14*s, nil)
		w.want(t, 5*m+15*s, []time.Duration{5*m + 30*s}, 5*m+15*s)
		// In the last moment there is more time.
		w.EndsAt(w.began.Add(20 * m))
		w.want(t, time.Hour, []time.Duration{5*m + 30*s, 20 * m}, 5*m+15*s, 18*m, 19*m+30*s)
		w.EndsAt(time.Time{})
		w.want(t, 2*time.Hour, []time.Duration{5*m + 30*s, 20 * m}, 5*m+15*s, 18*m, 19*m+30*s)
	})
}

func TestClockAndTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 0, saving.Config{Every: 10 * s})
		w.want(t, 25*s, nil, 10*s, 20*s)
		w.Turn()
		w.want(t, 35*s, nil, 10*s, 20*s, 25*s, 30*s)
		w.Stop()
		w.Turn()
		w.want(t, m, nil, 10*s, 20*s, 25*s, 30*s)
	})
}

// Turns that end while it is saved are saved once, afterwards. Stop ends a save.
func TestSaveTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, saves := time.Now(), []time.Duration{}
		l := saving.Start(saving.Config{Save: func(ctx context.Context) {
			saves = append(saves, time.Since(began))
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
		}})
		for range 5 {
			l.Turn()
			time.Sleep(m)
		}
		time.Sleep(time.Hour)
		l.Stop()
		if !slices.Equal(saves, []time.Duration{0, time.Hour}) || time.Since(began) != time.Hour+5*m {
			t.Errorf("saved at %v, stopped after %s", saves, time.Since(began))
		}
	})
}
