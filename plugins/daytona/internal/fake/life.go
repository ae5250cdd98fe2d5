// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"net/http"
	"os"
	"strings"
	"time"
)

// errChanging is what calls get that meet a change of state.
var errChanging = fail(409, "Sandbox state change in progress")

// settled finds a sandbox that no change goes on with. The caller unlocks.
func (f *Fake) settled(r *http.Request) (*sandbox, error) {
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	if s.pending {
		return nil, errChanging
	}
	return s, nil
}

func (f *Fake) deleteSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	s.destroyLocked()
	return s.viewLocked(), nil
}

// destroyLocked removes a sandbox. Its name is free at once.
func (s *sandbox) destroyLocked() {
	s.dto.DesiredState = destroyed
	s.dto.Name = "DESTROYED_" + s.dto.Name + "_" + s.dto.ID
	s.goLocked(step{destroying, func() error {
		s.end()
		return os.RemoveAll(s.f.sandboxDir(s.dto.ID))
	}}, step{destroyed, nil})
}

func (f *Fake) startSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	switch s.dto.State {
	case started:
		return s.viewLocked(), nil
	case stopped:
		s.goLocked(step{starting, s.boot}, step{started, nil})
	case archived:
		s.goLocked(step{restoring, nil}, step{starting, s.boot}, step{started, nil})
	case errored:
		return nil, fail(400, "Sandbox is in an errored state")
	default:
		return nil, fail(400, "Sandbox is not in valid state")
	}
	s.dto.DesiredState = started
	return f.waitLocked(r, s), nil
}

func (f *Fake) stopSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	if s.dto.State != started {
		return nil, fail(400, "Sandbox is not in a stoppable state")
	}
	s.stopLocked()
	return s.viewLocked(), nil
}

// stopLocked stops a sandbox. One that is ephemeral is gone then.
func (s *sandbox) stopLocked() {
	if s.dto.AutoDeleteInterval == 0 {
		s.destroyLocked()
		return
	}
	s.dto.DesiredState = stopped
	s.goLocked(step{stopping, s.halt}, step{stopped, nil})
}

func (f *Fake) pauseSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.settled(r); err != nil {
		return nil, err
	}
	return nil, fail(422, "Sandbox class 'container' does not support pause")
}

func (f *Fake) archiveSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	if s.dto.State != stopped {
		return nil, fail(400, "Sandbox is not stopped")
	}
	if s.dto.AutoDeleteInterval == 0 {
		return nil, fail(400, "Ephemeral sandboxes cannot be archived")
	}
	s.archiveLocked()
	return s.viewLocked(), nil
}

func (s *sandbox) archiveLocked() {
	s.dto.DesiredState = archived
	s.goLocked(step{archiving, nil}, step{archived, nil})
}

func (f *Fake) recoverSandbox(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	if s.dto.State != errored || !s.dto.Recoverable {
		return nil, fail(400, "Sandbox is not in a recoverable error state")
	}
	s.dto.ErrorReason, s.dto.Recoverable, s.dto.DesiredState = "", false, started
	s.goLocked(step{starting, s.boot}, step{started, nil})
	return f.waitLocked(r, s), nil
}

func (f *Fake) resizeSandbox(r *http.Request) (any, error) {
	var req struct{ CPU, Memory, Disk int }
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.settled(r)
	if err != nil {
		return nil, err
	}
	running := s.dto.State == started
	switch {
	case !running && s.dto.State != stopped:
		return nil, fail(400, "Sandbox is not in valid state")
	case running && (req.CPU > 0 && req.CPU < s.dto.CPU || req.Memory > 0 && req.Memory < s.dto.Memory):
		return nil, fail(400, "Cannot decrease resources of a started sandbox")
	case req.Disk > 0 && (running || req.Disk < s.dto.Disk):
		return nil, fail(400, "Disk can only be increased while the sandbox is stopped")
	}
	for v, to := range map[*int]*int{&req.CPU: &s.dto.CPU, &req.Memory: &s.dto.Memory, &req.Disk: &s.dto.Disk} {
		if *v > 0 {
			*to = *v
		}
	}
	return s.viewLocked(), nil
}

func (f *Fake) setLabels(r *http.Request) (any, error) {
	var req struct {
		Labels map[string]string `json:"labels"`
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	s.dto.Labels = req.Labels
	return map[string]any{"labels": req.Labels}, nil
}

func (f *Fake) setPublic(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	s.dto.Public = r.PathValue("value") == "true"
	return s.viewLocked(), nil
}

func (f *Fake) setInterval(r *http.Request) (any, error) {
	n, err := number(r.PathValue("value"))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	switch r.PathValue("interval") {
	case "autostop":
		s.dto.AutoStopInterval = n
	case "autoarchive":
		s.dto.AutoArchiveInterval = n
	case "autodelete":
		s.dto.AutoDeleteInterval = n
	default:
		return nil, fail(404, "Cannot POST "+r.URL.Path)
	}
	return s.viewLocked(), nil
}

func (f *Fake) setNetwork(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	var req struct {
		NetworkBlockAll                   *bool
		NetworkAllowList, DomainAllowList *string
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.NetworkBlockAll != nil {
		s.dto.NetworkBlockAll = *req.NetworkBlockAll
	}
	if req.NetworkAllowList != nil {
		s.dto.NetworkAllowList = *req.NetworkAllowList
	}
	if req.DomainAllowList != nil {
		s.dto.DomainAllowList = *req.DomainAllowList
	}
	return s.viewLocked(), nil
}

// touch is a sign of life.
func (f *Fake) touch(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	s.dto.LastActivityAt = f.nowLocked()
	return nil, nil
}

func (f *Fake) toolboxURL(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	return map[string]string{"url": s.viewLocked().ToolboxProxyURL}, nil
}

func (f *Fake) sshAccess(r *http.Request) (any, error) {
	minutes := 60
	if v := r.URL.Query().Get("expiresInMinutes"); v != "" {
		n, err := number(v)
		if err != nil {
			return nil, err
		}
		minutes = n
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	token := strings.ReplaceAll(s.dto.ID, "-", "")[:16]
	return map[string]any{
		"id": token, "sandboxId": s.dto.ID, "token": token, "expiresAt": f.nowLocked().Add(time.Duration(minutes) * time.Minute),
		"createdAt": f.nowLocked(), "updatedAt": f.nowLocked(), "sshCommand": "ssh " + token + "@ssh.preview.test",
	}, nil
}

// KillDaemon ends the daemon of a sandbox, which stays started as far as anybody is told.
func (f *Fake) KillDaemon(ctx context.Context, id string) error {
	f.mu.Lock()
	s := f.sandboxes[id]
	f.mu.Unlock()
	if s == nil || s.machine == nil {
		return fail(404, "there is no daemon of "+id)
	}
	return s.machine.KillDaemon(ctx)
}

// ticking is how often the real clock is looked at; the vendor's takes ten seconds.
const ticking = 100 * time.Millisecond

// keepTime stops, archives and deletes what nobody uses.
func (f *Fake) keepTime() {
	t := time.NewTicker(ticking)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f.tick()
		case <-f.stop:
			return
		}
	}
}

func (f *Fake) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.nowLocked()
	over := func(since time.Time, minutes int) bool {
		return !now.Before(since.Add(time.Duration(minutes) * time.Minute))
	}
	for _, s := range f.sandboxes {
		d := &s.dto
		switch {
		case s.pending:
		case d.State == started && d.AutoStopInterval > 0 && over(d.LastActivityAt, d.AutoStopInterval):
			s.stopLocked()
		case d.State == stopped && d.AutoDeleteInterval > 0 && over(s.stopped, d.AutoDeleteInterval):
			s.destroyLocked()
		case d.State == stopped && over(s.stopped, d.AutoArchiveInterval):
			s.archiveLocked()
		}
	}
}
