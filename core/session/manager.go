// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/state/seal"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// GoneFor is how long the record of a session that is gone is kept, for whoever asks what became of it.
const GoneFor = 30 * 24 * time.Hour

// The labels of our sandboxes, by which they are found again when nobody remembers them.
const (
	LabelStore   = "berth.store" // id of the store that has the record
	LabelSession = "berth.session"
)

// Drivers does what drivers are needed for.
type Drivers interface {
	// Destroy removes a sandbox that nobody drives. One that is not there is no error.
	Destroy(ctx context.Context, driverName, id string, st driver.State) error
	// List gives the sandboxes of a driver that have all labels; errs.Unsupported when it cannot.
	List(ctx context.Context, driverName string, labels map[string]string) ([]driver.Info, error)
	// DeleteSnapshot removes a snapshot of a driver's own. One that is not there is no error.
	DeleteSnapshot(ctx context.Context, driverName, id string) error
}

// Manager opens sessions and keeps their records. It may be used from several goroutines.
type Manager struct {
	Store   state.Store
	Key     *seal.Key
	Project string // directory of the project; empty = none
	Drivers Drivers
	NewID   func() string
	Now     func() time.Time
}

// Part is what an opener gives to core/sandbox as it is.
type Part struct {
	ID      string
	Labels  map[string]string
	Resume  *driver.State
	Fixed   *sandbox.Fixed
	OnDrift string
	From    string // the snapshot that a fresh one starts from, whatever else is said; empty = what else is said
	// Making is called just before the sandbox is made.
	Making func(*sandbox.Fixed) error
}

// Wish says which session is wanted.
type Wish struct {
	ID     string // of a fresh one
	Held   string // of the session that the run has had; empty = none
	RunID  string // that it is for; empty = none
	Policy spec.SessionPolicy
	Life   spec.Lifetime
	Key    string // the policy's, evaluated
	Driver string
	From   From
	What   string // what this process does with it, for whoever finds it in use
	Emit   func(event.Data)
	// Chosen is told the session before its sandbox is made or found; nil = not wanted.
	Chosen func(id string) error
	// Saved is where workspaces are saved. Required for on_gone = "restore_snapshot".
	Saved func(context.Context) (*snapshot.Repo, error)
	// Open makes or finds the sandbox.
	Open func(ctx context.Context, p Part) (*sandbox.Session, error)
}

// Open opens the session that is wished for. Its owner is the caller, unless the policy says attach.
func (m *Manager) Open(ctx context.Context, w Wish) (*Session, error) {
	rec, err := m.find(ctx, &w)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return m.create(ctx, &w, "")
	}
	s, err := m.again(ctx, &w, rec)
	if s != nil && w.Policy.Source == "attach" && w.Held == "" {
		s.owned = false
	}
	return s, err
}

// Use opens a session that is remembered, see [Manager.Find]. The caller does not own it: at the end it is as it was found.
func (m *Manager) Use(ctx context.Context, rec *state.Session, w Wish) (*Session, error) {
	w.Key = rec.Name
	s, err := m.again(ctx, &w, rec)
	if s != nil {
		s.owned = false
	}
	return s, err
}

// Find looks a session up by its id, the beginning of it, or its key.
func (m *Manager) Find(ctx context.Context, text string) (*state.Session, error) {
	rec, err := m.Store.FindSession(ctx, m.Project, text)
	switch amb, ambiguous := errors.AsType[*state.AmbiguousError](err); {
	case errors.Is(err, state.ErrUnknown):
		return nil, errs.New(errs.InvalidArgument, "there is no session %q in %s", text, m.Store.Where()).
			WithHint("berth session list shows those that there are")
	case ambiguous:
		return nil, errs.New(errs.InvalidArgument, "%v", amb).WithHint("write more of the id")
	}
	return rec, err
}

// find gives the record of the session that is wished for; nil = a fresh one.
func (m *Manager) find(ctx context.Context, w *Wish) (*state.Session, error) {
	if w.Held != "" {
		rec, err := m.Store.Session(ctx, w.Held)
		if errors.Is(err, state.ErrUnknown) {
			return nil, errs.New(errs.SandboxGone, "session %s of this run is not in %s", w.Held, m.Store.Where()).
				WithHint("it was removed, or the run was started with another state store")
		}
		return rec, err
	}
	if rec, err := m.Store.Session(ctx, w.ID); err == nil && w.RunID != "" && rec.Run == w.RunID {
		return rec, nil // the process died before the run was told
	} else if err != nil && !errors.Is(err, state.ErrUnknown) {
		return nil, err
	}
	source, p := w.Policy.Source, w.Policy
	if source == "" || source == "create" {
		return nil, nil
	}
	var tried string
	if p.StateFile != "" {
		rec, err := m.fromFile(ctx, p.StateFile)
		if rec != nil || err != nil {
			return rec, err
		}
		tried = "there is no state_file " + p.StateFile
	}
	if w.Key != "" {
		rec, err := m.Store.NamedSession(ctx, m.Project, w.Key)
		if !errors.Is(err, state.ErrUnknown) {
			return rec, err
		}
		tried = fmt.Sprintf("there is no session with the key %q in %s", w.Key, m.Store.Where())
	}
	if source == "resume_or_create" {
		return nil, nil
	}
	return nil, errs.New(errs.SandboxGone, "%s, and the session block says source = %q", tried, source).
		WithHint(`source = "resume_or_create" makes one when there is none`)
}

// fromFile gives the record of the session that a state file is of; nil = there is no file.
func (m *Manager) fromFile(ctx context.Context, path string) (*state.Session, error) {
	f, err := readFile(path)
	if f == nil || err != nil {
		return nil, err
	}
	b, err := m.body(f.Session, f.Sealed)
	if err != nil {
		return nil, fmt.Errorf("state_file %s: %w", path, err)
	}
	rec, err := m.Store.Session(ctx, b.ID)
	if !errors.Is(err, state.ErrUnknown) {
		return rec, err
	}
	// It was made with another store, or its record was removed; what is sealed says enough.
	rec = m.record(b.ID, "", b.Driver, b.From.Sandbox)
	rec.Status, rec.State = state.Stopped, f.Sealed
	return rec, m.Store.CreateSession(ctx, rec)
}

func (m *Manager) record(id, key, driverName, block string) *state.Session {
	here := state.Here("")
	return &state.Session{
		ID: id, Name: key, Project: m.Project, Sandbox: block, Driver: driverName, Owner: here.Owner(), Host: here.Name,
		Status: state.Creating,
	}
}

// create makes a fresh sandbox. Its record is written when everything is ready for it, and before it is made. From is the
// snapshot that it starts from; empty = what the configuration says.
func (m *Manager) create(ctx context.Context, w *Wish, from string) (*Session, error) {
	if _, err := m.Store.PruneSessions(ctx, GoneFor); err != nil {
		return nil, err
	}
	lease := state.NewLease(w.What)
	rec := m.record(w.ID, w.Key, w.Driver, w.From.Sandbox)
	rec.Run, rec.Lease = w.RunID, &lease
	s := m.begin(rec, w, lease, state.Creating)
	b := &Body{ID: w.ID, Driver: w.Driver, From: w.From}
	recorded := false
	sb, err := w.Open(ctx, Part{ID: w.ID, Labels: m.labels(w), From: from, Making: func(made *sandbox.Fixed) (err error) {
		if rec.State, err = m.seal(b); err != nil {
			return err
		}
		if err := m.Store.CreateSession(ctx, rec); err != nil {
			return m.taken(ctx, w, err)
		}
		recorded = true
		if w.Chosen != nil {
			return w.Chosen(w.ID)
		}
		return nil
	}})
	if !recorded && errors.Is(err, errRace) {
		rec, err := m.Store.NamedSession(ctx, m.Project, w.Key)
		if err != nil {
			return nil, err
		}
		return m.again(ctx, w, rec)
	}
	if !recorded && err != nil {
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, m.failed(context.WithoutCancel(ctx), rec, w, lease, err))
	}
	return s.opened(ctx, sb, b)
}

// errRace: another process has made a session with our key meanwhile.
var errRace = errors.New("a session with this key was made meanwhile")

// taken says why a record could not be added.
func (m *Manager) taken(ctx context.Context, w *Wish, err error) error {
	if !errors.Is(err, state.ErrExists) || w.Key == "" {
		return err
	}
	other, ferr := m.Store.NamedSession(ctx, m.Project, w.Key)
	if ferr != nil {
		return errors.Join(err, ferr)
	}
	if w.Policy.Source == "resume_or_create" {
		return errRace
	}
	return errs.New(errs.ConfigInvalid, "the key %q is that of session %s already", w.Key, other.ID).
		WithHint(`source = "resume_or_create" in the session block goes on with it; berth session rm %s removes it`, other.ID)
}

func (m *Manager) labels(w *Wish) map[string]string {
	l := map[string]string{LabelStore: m.Store.ID(), LabelSession: w.ID}
	if w.RunID != "" {
		l["berth.run"] = w.RunID
	}
	return l
}

// failed puts down that a sandbox was not made. Only when its driver says that there is none, nothing is remembered.
func (m *Manager) failed(ctx context.Context, rec *state.Session, w *Wish, l state.Lease, cause error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the driver did not say whether there is a sandbox"))
	defer cancel()
	left, err := m.Drivers.List(ctx, w.Driver, map[string]string{LabelSession: rec.ID})
	rec.Reason = cause.Error()
	if err == nil && len(left) == 0 {
		rec.Status = state.Gone
	} // else it stays unclear, and gc looks again
	return errors.Join(m.Store.UpdateSession(ctx, rec), m.Store.ReleaseSession(ctx, rec.ID, l.Token))
}

// take takes the lease of a session. That of a process that has ended is taken over.
func (m *Manager) take(ctx context.Context, rec *state.Session, what string) (state.Lease, error) {
	l := state.NewLease(what)
	err := m.Store.LeaseSession(ctx, rec, l, nil)
	held, ok := errors.AsType[*state.HeldError](err)
	if ok && (held.Lease.By.Dead() || (held.Lease.Expired && !held.Lease.By.Local())) {
		err = m.Store.LeaseSession(ctx, rec, l, &held.Lease)
		held, ok = errors.AsType[*state.HeldError](err)
	}
	if ok {
		return l, errs.New(errs.SandboxNotReady, "%v", held).With("session", rec.ID).
			WithHint("wait until that has ended, or end it; one process at a time drives a session")
	}
	return l, err
}

// again finds the sandbox of a record.
func (m *Manager) again(ctx context.Context, w *Wish, rec *state.Session) (_ *Session, err error) {
	lease, err := m.take(ctx, rec, w.What)
	if err != nil {
		return nil, err
	}
	before := rec.Status
	held := true
	defer func() {
		if err != nil && held {
			err = errors.Join(err, m.Store.ReleaseSession(context.WithoutCancel(ctx), rec.ID, lease.Token))
		}
	}()
	if rec.Status == state.Gone && w.Policy.OnGone == "create" {
		held = false
		return m.anew(ctx, w, rec, lease, "it is gone: "+orUnknown(rec.Reason))
	}
	b, err := m.body(rec.ID, rec.State)
	if err != nil {
		return nil, err
	}
	if rec.Status == state.Gone {
		if w.Policy.OnGone == "restore_snapshot" {
			held = false
			return m.restored(ctx, w, rec, lease, b, "it is gone: "+orUnknown(rec.Reason))
		}
		return nil, errs.New(errs.SandboxGone, "session %s is gone: %s", rec.ID, orUnknown(rec.Reason)).
			WithHint(`on_gone in the session block makes a new one, "create" a fresh one and "restore_snapshot" one with what was saved`)
	}
	if b.Driver != w.Driver && b.State == nil {
		return nil, errs.New(errs.ConfigInvalid, "session %s was begun with driver %q, and the files say %q now", rec.ID, b.Driver, w.Driver).
			WithHint("set it back, or remove the session: berth session rm %s", rec.ID)
	}
	if w.Chosen != nil {
		if err := w.Chosen(rec.ID); err != nil {
			return nil, err
		}
	}
	this := *w
	this.ID = rec.ID
	part := Part{ID: rec.ID, Labels: m.labels(&this), Resume: b.State, Fixed: b.Made, OnDrift: w.Policy.OnDrift}
	s := m.begin(rec, &this, lease, before)
	sb, err := w.Open(ctx, part)
	drift, drifted := errors.AsType[*sandbox.DriftError](err)
	switch {
	case err == nil:
		held = false
		b.From = w.From
		return s.opened(ctx, sb, b)
	case errors.Is(err, errs.SandboxGone):
		if rec.Host != state.Here("").Name {
			return nil, fmt.Errorf("session %s was made on %s by %s: %w", rec.ID, rec.Host, rec.Owner, err)
		}
		if w.Policy.OnGone == "create" {
			held = false
			return m.anew(ctx, w, rec, lease, err.Error())
		}
		if w.Policy.OnGone == "restore_snapshot" {
			held = false
			return m.restored(ctx, w, rec, lease, b, err.Error())
		}
		rec.Status, rec.Reason = state.Lost, err.Error()
		return nil, errors.Join(errs.New(errs.SandboxGone, "session %s: %v", rec.ID, err).
			WithHint(`on_gone in the session block makes a new one, "create" a fresh one and "restore_snapshot" one with what was saved; `+
				`berth session rm %s forgets this one`, rec.ID),
			m.Store.UpdateSession(context.WithoutCancel(ctx), rec))
	case drifted && w.Policy.OnDrift == sandbox.DriftRecreate:
		if derr := m.Drivers.Destroy(ctx, b.Driver, rec.ID, *b.State); derr != nil {
			return nil, fmt.Errorf("replace session %s: %w", rec.ID, derr)
		}
		held = false
		return m.anew(ctx, w, rec, lease, "it was made with another configuration: "+drift.Drift.String())
	}
	return nil, err
}

func orUnknown(reason string) string {
	if reason == "" {
		return "nobody said why"
	}
	return reason
}

// anew makes a sandbox in the place of one that is gone, and says so.
func (m *Manager) anew(ctx context.Context, w *Wish, rec *state.Session, l state.Lease, why string) (*Session, error) {
	rec.Status, rec.Reason = state.Gone, why
	if err := errors.Join(m.Store.UpdateSession(ctx, rec), m.Store.ReleaseSession(ctx, rec.ID, l.Token)); err != nil {
		return nil, err
	}
	fresh := *w
	fresh.ID = m.NewID()
	w.Emit(event.Warning{
		Message: fmt.Sprintf("session %s is replaced by a new one, %s, with a fresh workspace: %s", rec.ID, fresh.ID, why),
	})
	return m.create(ctx, &fresh, "")
}
