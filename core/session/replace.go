// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

// maxMoves bounds how often a session is looked for where it went.
const maxMoves = 1000

// Current gives the session that took a session's place, or the session itself, which may be gone.
func (m *Manager) Current(ctx context.Context, id string) (*state.Session, error) {
	rec, err := m.Store.Session(ctx, id)
	for n := 0; err == nil && n < maxMoves; n++ {
		if rec.Status != state.Gone && rec.Status != state.Ending {
			return rec, nil
		}
		b, berr := m.body(rec.ID, rec.State)
		if berr != nil || b.Next == "" {
			return rec, nil //nolint:nilerr // whoever opens it is told
		}
		next, nerr := m.Store.Session(ctx, b.Next)
		if errors.Is(nerr, state.ErrUnknown) {
			return rec, nil // that one is forgotten
		}
		rec, err = next, nerr
	}
	return rec, err
}

// restored makes a sandbox in the place of one that is gone, from what was saved of it last. The old record counts until
// the new sandbox is filled and recorded.
func (m *Manager) restored(ctx context.Context, w *Wish, rec *state.Session, l state.Lease, b *Body, why string) (*Session, error) {
	s, err := m.restore(ctx, w, rec, b, why)
	if err != nil {
		if rec.Status != state.Gone {
			rec.Status, rec.Reason = state.Lost, why
			err = errors.Join(err, m.Store.UpdateSession(context.WithoutCancel(ctx), rec))
		}
	}
	return s, errors.Join(err, m.Store.ReleaseSession(context.WithoutCancel(ctx), rec.ID, l.Token))
}

func (m *Manager) restore(ctx context.Context, w *Wish, rec *state.Session, b *Body, why string) (*Session, error) {
	repo, err := w.Saved(ctx)
	var saved *snapshot.Record
	if err == nil {
		saved, err = repo.LatestOf(ctx, rec.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("session %s is gone, and what was saved of it cannot be found: %w", rec.ID, err)
	}
	if saved == nil {
		return nil, errs.New(errs.SandboxGone, "session %s is gone, and its workspace was never saved: %s", rec.ID, why).
			WithHint(`on_gone = "create" in the session block makes a new one; berth session rm %s forgets this one`, rec.ID)
	}
	fresh := *w
	// It gets its key, its file and its run when it is there.
	fresh.ID, fresh.Key, fresh.Policy.StateFile, fresh.Chosen = m.NewID(), "", "", nil
	w.Emit(event.Warning{
		Message: fmt.Sprintf("session %s is replaced by a new one, %s, with its workspace as it was saved in snapshot %s: %s", rec.ID, fresh.ID, snapshot.Short(saved.ID), why),
	})
	s, err := m.create(ctx, &fresh, saved.ID)
	if err != nil {
		return nil, err
	}
	if err := m.handOver(ctx, rec, b, s, state.Gone, "session "+fresh.ID+" took its place: "+why, w.Policy.StateFile); err != nil {
		return nil, errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
	}
	if w.Chosen != nil {
		if err := w.Chosen(fresh.ID); err != nil {
			return nil, errors.Join(err, s.Leave(context.WithoutCancel(ctx)))
		}
	}
	return s, nil
}

// Supersede puts a session in the place of another one, which this process drives too, and which is to be removed then: key,
// run and state file go over. When it fails, both are as they were.
func (m *Manager) Supersede(ctx context.Context, old, to *Session) error {
	old.mu.Lock()
	defer old.mu.Unlock()
	to.body.Moved = true
	if err := m.handOver(ctx, old.rec, old.body, to, state.Ending, "it was moved to session "+to.ID(), old.file); err != nil {
		to.body.Moved = false
		return err
	}
	old.file = "" // it is the other's
	return nil
}

// handOver puts a session in the place of another, with key, run and state file, at once or not at all. The old one's
// record then has the status and says why.
func (m *Manager) handOver(ctx context.Context, old *state.Session, b *Body, to *Session, status state.Status, why, file string) error {
	from, body := *old, *b
	body.Next = to.ID()
	if status == state.Gone {
		body.State = nil
	}
	sealed, err := m.seal(&body)
	if err != nil {
		return err
	}
	from.Status, from.Reason, from.State = status, why, sealed
	if status != state.Gone {
		from.Name = "" // one session has it
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	next := *to.rec
	next.Name, next.Run = old.Name, old.Run
	if next.State, err = m.seal(to.body); err != nil {
		return err
	}
	if err := m.Store.UpdateSession(ctx, &from, &next); err != nil {
		return fmt.Errorf("put session %s in the place of session %s: %w", next.ID, from.ID, err)
	}
	*old, *b, to.rec, to.file = from, body, &next, file
	if file == "" {
		return nil
	}
	return writeFile(file, next.ID, next.State)
}
