// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// nearEnd is how long before its deadline a sandbox is given more time, where the configuration says nothing.
const nearEnd = 2 * time.Minute

// moreTime is what it is given each time when no idle time says how much.
const moreTime = 15 * time.Minute

// lengthen moves the deadline of a sandbox that is in use, where the driver can: an idle time begins anew each time, any
// other deadline moves when it is near. The longest life stays the longest.
func (s *Session) lengthen(ctx context.Context) {
	s.mu.Lock()
	at, last := s.rec.Deadline, time.Time{}
	if s.life.Max > 0 {
		last = s.rec.Created.Add(s.life.Max)
	}
	s.mu.Unlock()
	now := s.m.Now()
	want := now.Add(s.life.Idle)
	if s.life.Idle == 0 {
		margin := max(nearEnd, s.life.SnapshotBefore) + s.lease.TTL
		if at.IsZero() || at.Sub(now) > margin {
			return
		}
		want = now.Add(moreTime)
	}
	if !last.IsZero() && want.After(last) {
		want = last
	}
	if (s.life.Idle == 0 && s.life.Extend != nil && !*s.life.Extend) || !want.After(at) {
		s.tellEnd(now, at)
		return
	}
	got, err := time.Time{}, errs.New(errs.Unsupported, "the driver cannot")
	if x, ok := s.Sandbox.(driver.DeadlineExtender); ok {
		var xerr error
		if got, xerr = x.ExtendDeadline(ctx, want); xerr == nil {
			err = nil
		} else if !errors.As(xerr, &err) {
			err = errs.New(errs.Internal, "%v", xerr)
		}
	}
	if err != nil {
		s.tellEnd(now, at)
		return
	}
	s.told = false // of another end
	s.EndsAt(got)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Deadline = got
	if err := s.m.Store.UpdateSession(ctx, s.rec); err != nil && ctx.Err() == nil {
		s.emit(event.Warning{Message: fmt.Sprintf("keep the new end of session %s, %s: %v", s.body.ID, got.Format(time.DateTime), err)})
	}
}

// tellEnd says once that the sandbox ends soon.
func (s *Session) tellEnd(now, at time.Time) {
	if s.told || at.IsZero() || at.Sub(now) > max(nearEnd, s.life.SnapshotBefore) {
		return
	}
	s.told = true
	s.emit(event.Warning{
		Message: fmt.Sprintf("the sandbox ends at %s, in %s", at.Format(time.TimeOnly), at.Sub(now).Round(time.Second)),
		Hint:    "lifetime in the sandbox block says how long it lives; save what is needed",
	})
}
