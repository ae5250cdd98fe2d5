// SPDX-License-Identifier: Apache-2.0

// Package watch passes what happens to driver processes on to the sessions whose sandboxes they hold.
package watch

import (
	"fmt"
	"sync"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/sandbox"
)

// Watch passes what happens to driver processes on to the sessions whose sandboxes they hold: whoever makes the driver
// manager gives it [Watch.Notify], and the harness the Watch. The zero value is ready for use.
type Watch struct {
	mu       sync.Mutex
	sessions map[string]*watched // guarded by mu; by sandbox
}

// watched is a session that is told.
type watched struct {
	driver  string
	emit    func(event.Data)
	session *sandbox.Session // guarded by Watch.mu; nil = is being opened
}

// Notify takes an event. It never blocks longer than the sessions' own emit functions.
func (w *Watch) Notify(ev plugin.Event) {
	for _, to := range w.concerned(ev) {
		if d := to.translate(ev); d != nil {
			to.emit(d)
		}
	}
}

// concerned gives copies of the sessions that an event is about.
func (w *Watch) concerned(ev plugin.Event) []watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev.SandboxID != "" {
		if s := w.sessions[ev.SandboxID]; s != nil {
			return []watched{*s}
		}
		return nil
	}
	var all []watched
	for _, s := range w.sessions {
		if s.driver == ev.Driver {
			all = append(all, *s)
		}
	}
	return all
}

func (s *watched) translate(ev plugin.Event) event.Data {
	switch ev.Kind {
	case plugin.Lost:
		if ev.SandboxID == "" {
			return nil // each sandbox is told of its own
		}
		return event.SandboxLost{SandboxID: ev.SandboxID, Reason: ev.Message}
	case plugin.Gone:
		return event.Warning{Message: "the sandbox is gone: " + ev.Message}
	case plugin.Recovered:
		d := event.SandboxReady{SandboxID: ev.SandboxID, Driver: ev.Driver, Reattached: ev.Reattached}
		if s.session != nil {
			d.Root = s.session.Root() // what is enforced was said at the start
		}
		return d
	case plugin.Quarantined:
		return event.Warning{Message: ev.Message}
	case plugin.Warning:
		return event.Warning{Message: fmt.Sprintf("driver %q: %s", ev.Driver, ev.Message)}
	case plugin.Parked: // at the end, when nobody is told any more
	}
	return nil
}

// Begin registers a session. The caller tells when it is open, and when it is over.
func (w *Watch) Begin(id, driver string, emit func(event.Data)) (opened func(*sandbox.Session), over func()) {
	if w == nil || emit == nil {
		return func(*sandbox.Session) {}, func() {}
	}
	entry := &watched{driver: driver, emit: emit}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions == nil {
		w.sessions = map[string]*watched{}
	}
	w.sessions[id] = entry
	opened = func(s *sandbox.Session) {
		w.mu.Lock()
		defer w.mu.Unlock()
		entry.session = s
	}
	over = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.sessions[id] == entry {
			delete(w.sessions, id)
		}
	}
	return opened, over
}
