// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Session is a live sandbox that is remembered and that this process alone drives.
type Session struct {
	*sandbox.Session

	m     *Manager
	lease state.Lease
	life  spec.Lifetime
	file  string // state_file; empty = none
	emit  func(event.Data)
	found state.Status // how it was before
	owned bool         // Close ends it; else it is put back as it was found
	body  *Body

	told bool   // that it ends soon; of the goroutine that keeps the lease
	stop func() // ends what keeps the lease, and waits for it
	once sync.Once
	err  error // guarded by once

	mu   sync.Mutex
	rec  *state.Session // guarded by mu
	lost bool           // guarded by mu; somebody else has the lease
}

func (m *Manager) begin(rec *state.Session, w *Wish, l state.Lease, found state.Status) *Session {
	return &Session{m: m, rec: rec, lease: l, life: w.Life, file: w.Policy.StateFile, emit: w.Emit, found: found, owned: true}
}

// ID is the session's.
func (s *Session) ID() string { return s.body.ID }

// Record is a copy of what the store has, as far as this process knows.
func (s *Session) Record() state.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.rec
}

// opened puts down that there is a sandbox, and keeps the lease from now on.
func (s *Session) opened(ctx context.Context, sb *sandbox.Session, b *Body) (*Session, error) {
	s.Session, s.body = sb, b
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	s.stop = func() { cancel(nil); <-done }
	err := s.save(ctx, state.Live, "")
	go func() {
		defer close(done)
		s.keep(ctx)
	}()
	if err != nil {
		how := "keep"
		if s.found == state.Creating {
			how = "destroy" // what nobody remembers is not left
		}
		return nil, errors.Join(err, s.end(ctx, how))
	}
	return s, nil
}

// save writes the record as it is now.
func (s *Session) save(ctx context.Context, status state.Status, reason string) error {
	st := s.State()
	s.body.State, s.body.Made = &st, s.Fixed()
	if status == state.Gone {
		s.body.State = nil
	}
	sealed, err := s.m.seal(s.body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Status, s.rec.Reason, s.rec.State, s.rec.Deadline = status, reason, sealed, deadline(st, s.Info())
	if err := s.m.Store.UpdateSession(ctx, s.rec); err != nil {
		return fmt.Errorf("keep the record of session %s: %w", s.body.ID, err)
	}
	switch {
	case s.file == "":
	case status == state.Gone:
		return removeFile(s.file, s.body.ID)
	default:
		return writeFile(s.file, s.body.ID, sealed)
	}
	return nil
}

func deadline(st driver.State, info driver.Info) time.Time {
	if !st.Deadline.IsZero() {
		return st.Deadline
	}
	return info.Deadline
}

// keep renews the lease until ctx ends or somebody else has it.
func (s *Session) keep(ctx context.Context) {
	every := s.lease.TTL / 3
	if s.life.Idle > 0 {
		every = min(every, s.life.Idle/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	held := time.Now()
	s.lengthen(ctx) // its end may come before the lease is renewed for the first time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.m.Store.RenewSession(ctx, s.body.ID, s.lease)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			held = time.Now()
			s.lengthen(ctx)
		case errors.Is(err, state.ErrChanged), errors.Is(err, state.ErrUnknown), time.Since(held) >= s.lease.TTL:
			s.giveUp(err)
			return
		}
	}
}

// giveUp lets go of a sandbox that somebody else may drive now.
func (s *Session) giveUp(err error) {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	s.LetGo()
	s.emit(event.Warning{
		Message: fmt.Sprintf("this process has lost session %s and lets go of its sandbox: %v", s.body.ID, err),
		Hint:    "berth session inspect says who has it",
	})
}

// Close ends the session as the policy says, or puts it back as it was found when it is not this process's own.
func (s *Session) Close(ctx context.Context, status run.Status) error {
	if !s.owned {
		return s.Release(ctx)
	}
	s.once.Do(func() {
		how := s.AtEnd(status)
		err := s.SaveLast(ctx)
		if err != nil && how == "destroy" {
			how = "stop" // what could not be saved is not thrown away
		}
		s.err = errors.Join(err, s.doEnd(ctx, how))
	})
	return s.err
}

// Release puts the session back as it was found: what was stopped is stopped again, what ran runs on.
func (s *Session) Release(ctx context.Context) error {
	switch s.found {
	case state.Stopped:
		return s.end(ctx, "stop")
	case state.Paused:
		return s.end(ctx, "pause")
	default:
		return s.end(ctx, "keep")
	}
}

// Leave ends the use of the session and leaves its sandbox running, however it was found.
func (s *Session) Leave(ctx context.Context) error { return s.end(ctx, "keep") }

// Destroy ends the session and removes its sandbox.
func (s *Session) Destroy(ctx context.Context) error { return s.end(ctx, "destroy") }

// end ends the use of the session, once.
func (s *Session) end(ctx context.Context, how string) error {
	s.once.Do(func() { s.err = s.doEnd(ctx, how) })
	return s.err
}

func (s *Session) doEnd(ctx context.Context, how string) error {
	s.stop()
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()
	if lost {
		return s.End(ctx, "keep") // it was let go of already
	}
	var err error
	if how == "destroy" {
		err = s.save(ctx, state.Ending, "")
	}
	endErr := s.End(ctx, how)
	status, reason := map[string]state.Status{"destroy": state.Gone, "stop": state.Stopped, "pause": state.Paused, "keep": state.Live}[how], ""
	switch {
	case endErr == nil && how == "destroy" && s.body.Next != "":
		reason = "it was moved to session " + s.body.Next
	case endErr == nil && how == "destroy":
		reason = "it was removed at " + s.m.Now().Format(time.RFC3339)
	case errors.Is(endErr, errs.SandboxGone):
		status, reason = state.Lost, endErr.Error()
	case endErr != nil:
		status, reason = state.Live, endErr.Error()
		if how == "destroy" {
			status = state.Ending
		}
	}
	// The record counts also when the caller's time is over.
	store, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 30*time.Second, errors.New("the state store does not answer"))
	defer cancel()
	return errors.Join(err, endErr, s.save(store, status, reason), s.m.Store.ReleaseSession(store, s.body.ID, s.lease.Token))
}
