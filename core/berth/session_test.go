// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/sdk/errs"
)

// told keeps what is said about a session.
type told struct{ all []event.Data }

func (r *told) emit(d event.Data) { r.all = append(r.all, d) }

func (r *told) warned(text string) bool {
	for _, d := range r.all {
		if w, ok := d.(event.Warning); ok && strings.Contains(w.Message, text) {
			return true
		}
	}
	return false
}

// want is a sandbox with a session policy, and one file.
func want(policy spec.SessionPolicy) berth.SandboxOptions {
	return berth.SandboxOptions{
		Sandbox: &spec.Sandbox{Session: policy}, What: "a test", Emit: func(event.Data) {},
		Manifest: &spec.Manifest{Root: spec.DefaultRoot, Entries: []spec.Entry{
			{Kind: spec.EntryFile, Path: "a", File: &spec.FileEntry{Content: []byte("of the manifest")}},
		}},
	}
}

func keyed(key string) spec.SessionPolicy {
	return spec.SessionPolicy{Source: "resume_or_create", Key: spec.Text{Literal: key}, AtEnd: "stop"}
}

func (f *fixture) open(t *testing.T, o berth.SandboxOptions) *session.Session {
	t.Helper()
	s, err := f.Open(t.Context(), &spec.Project{}, o)
	if errors.Is(err, errs.IsolationMissing) {
		t.Skipf("this machine cannot make such a sandbox: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context()), run.Completed); err != nil {
			t.Error(err)
		}
	})
	return s
}

func end(t *testing.T, s *session.Session) {
	t.Helper()
	if err := s.Close(t.Context(), run.Completed); err != nil {
		t.Fatal(err)
	}
}

// record reads what the store has.
func (f *fixture) record(t *testing.T, id string) *state.Session {
	t.Helper()
	m, err := f.Sessions(t.Context(), &spec.Project{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := m.Store.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (f *fixture) update(t *testing.T, rec *state.Session) {
	t.Helper()
	m, err := f.Sessions(t.Context(), &spec.Project{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Store.UpdateSession(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err error, code errs.Code, texts ...string) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("got %v, want %s", err, code)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	if e, ok := errors.AsType[*errs.Error](err); !ok || e.Hint == "" {
		t.Errorf("%v has no hint", err)
	}
}

// A session that has a key is found again by it, with its workspace, and one process at a time has it.
func TestSessionByKey(t *testing.T) {
	f := newFixture(t)
	first := f.open(t, want(keyed("dev")))
	if rec := f.record(t, first.ID()); rec.Status != state.Live || rec.Name != "dev" || rec.Driver != localtest.Driver || rec.Lease == nil ||
		rec.Lease.By.What != "a test" || rec.Owner == "" || rec.Host == "" {
		t.Errorf("%+v", rec)
	}
	_, err := f.Open(t.Context(), &spec.Project{}, want(keyed("dev")))
	fails(t, err, errs.SandboxNotReady, "in use by process", "a test", first.ID())
	localtest.Sh(t, first.Session, "echo kept > b")
	end(t, first)
	if rec := f.record(t, first.ID()); rec.Status != state.Stopped || rec.Lease != nil {
		t.Errorf("%+v", rec)
	}
	again := f.open(t, want(keyed("dev")))
	if got := localtest.Sh(t, again.Session, "cat a b"); got != "of the manifestkept" || again.ID() != first.ID() {
		t.Errorf("%q in session %s, the first was %s", got, again.ID(), first.ID())
	}
	end(t, again)

	_, err = f.Open(t.Context(), &spec.Project{}, want(spec.SessionPolicy{Source: "create", Key: spec.Text{Literal: "dev"}}))
	fails(t, err, errs.ConfigInvalid, `the key "dev"`, first.ID())
	_, err = f.Open(t.Context(), &spec.Project{}, want(spec.SessionPolicy{Source: "resume", Key: spec.Text{Literal: "other"}}))
	fails(t, err, errs.SandboxGone, `the key "other"`)

	// By its id, the beginning of it, or its key; it is put back as it was found.
	for _, text := range []string{first.ID(), first.ID()[:20], "dev"} {
		used, err := f.OpenSession(t.Context(), &spec.Project{}, text, "session exec", nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := localtest.Sh(t, used.Session, "cat b"); got != "kept" {
			t.Errorf("%q", got)
		}
		end(t, used)
		if rec := f.record(t, first.ID()); rec.Status != state.Stopped {
			t.Errorf("%+v", rec)
		}
	}
	_, err = f.OpenSession(t.Context(), &spec.Project{}, "nothing", "x", nil)
	fails(t, err, errs.InvalidArgument, `no session "nothing"`)

	// Attached to, it is not ended, whatever the policy says.
	attached := f.open(t, want(spec.SessionPolicy{Source: "attach", Key: spec.Text{Literal: "dev"}, AtEnd: "destroy"}))
	end(t, attached)
	if rec := f.record(t, first.ID()); rec.Status != state.Stopped {
		t.Errorf("%+v", rec)
	}

	// Removed, it is gone for whoever knew it, and its key is free.
	last := f.open(t, want(keyed("dev")))
	if err := last.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.gone(t, first.ID())
	if rec := f.record(t, first.ID()); rec.Status != state.Gone || rec.Reason == "" || rec.Lease != nil {
		t.Errorf("%+v", rec)
	}
	_, err = f.OpenSession(t.Context(), &spec.Project{}, first.ID(), "x", nil)
	fails(t, err, errs.SandboxGone, "is gone")
	fresh := f.open(t, want(keyed("dev")))
	if fresh.ID() == first.ID() {
		t.Error("a session that is gone came back")
	}
	if err := fresh.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// The lease of a process that has ended is taken over; that of one that lives is not.
func TestDeadHolder(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, want(keyed("dev")))
	end(t, s)
	m, err := f.Sessions(t.Context(), &spec.Project{})
	if err != nil {
		t.Fatal(err)
	}
	hold := func(edit func(*state.Lease)) {
		l := state.NewLease("another")
		edit(&l)
		rec := f.record(t, s.ID())
		if err := m.Store.LeaseSession(t.Context(), rec, l, rec.Lease); err != nil {
			t.Fatal(err)
		}
	}
	hold(func(l *state.Lease) { l.TTL = -time.Minute }) // it lives, and is only late
	_, err = f.Open(t.Context(), &spec.Project{}, want(keyed("dev")))
	fails(t, err, errs.SandboxNotReady, "another")
	hold(func(l *state.Lease) { l.By.Host, l.By.Name = "far", "far" })
	_, err = f.Open(t.Context(), &spec.Project{}, want(keyed("dev")))
	fails(t, err, errs.SandboxNotReady, "@far")
	hold(func(l *state.Lease) { l.By.Host, l.TTL = "far", -time.Minute })
	end(t, f.open(t, want(keyed("dev"))))
	hold(func(l *state.Lease) { l.By.Start += "0" })
	again := f.open(t, want(keyed("dev")))
	if again.ID() != s.ID() {
		t.Error("it is another")
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// A state that somebody edited, that was sealed with another key, or that is newer than this berth is refused.
func TestSealedState(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, want(keyed("dev")))
	end(t, s)
	good := f.record(t, s.ID())
	for name, c := range map[string]struct {
		edit func([]byte) []byte
		code errs.Code
		text string
	}{
		"edited": {func(b []byte) []byte { return []byte(strings.Replace(string(b), `"driver":"`, `"driver":"x`, 1)) }, errs.PermissionDenied, "was changed since"},
		"other key": {func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"key":"`, `"key":"0`, 1))
		}, errs.PermissionDenied, "another"},
		"nonsense": {func([]byte) []byte { return []byte("{}") }, errs.ConfigInvalid, "none that berth has sealed"},
		"newer":    {func(b []byte) []byte { return []byte(strings.Replace(string(b), `"version":1`, `"version":9`, 1)) }, errs.VersionMismatch, "version 9"},
	} {
		rec := f.record(t, s.ID())
		rec.State = c.edit(good.State)
		f.update(t, rec)
		_, err := f.Open(t.Context(), &spec.Project{}, want(keyed("dev")))
		fails(t, err, c.code, c.text)
		if err == nil || !strings.Contains(err.Error(), s.ID()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	rec := f.record(t, s.ID())
	rec.State = good.State
	f.update(t, rec)
	// The state of one session is not that of another.
	other := f.open(t, want(keyed("other")))
	end(t, other)
	rec = f.record(t, other.ID())
	rec.State = good.State
	f.update(t, rec)
	_, err := f.Open(t.Context(), &spec.Project{}, want(keyed("other")))
	fails(t, err, errs.PermissionDenied, "was changed")
	if err := f.open(t, want(keyed("dev"))).Destroy(t.Context()); err != nil {
		t.Error(err)
	}

	key := filepath.Join(f.host.Dir, "session.key")
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = f.Open(t.Context(), &spec.Project{}, want(keyed("x")))
	fails(t, err, errs.PermissionDenied, key, "read by others")
}

// A sandbox that is gone is an error, again and again, unless the policy says to make a new one.
func TestSandboxGone(t *testing.T) {
	f := newFixture(t)
	policy := keyed("dev")
	policy.AtEnd = "keep"
	s := f.open(t, want(policy))
	localtest.Sh(t, s.Session, "echo precious > b")
	end(t, s)
	handle := f.host.Handle(t)
	if err := handle.Destroy(t.Context(), s.ID(), s.State()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := f.Open(t.Context(), &spec.Project{}, want(policy))
		fails(t, err, errs.SandboxGone, s.ID())
	}
	if rec := f.record(t, s.ID()); rec.Status != state.Lost || rec.Lease != nil {
		t.Errorf("%+v", rec)
	}
	policy.OnGone = "create"
	var rec told
	o := want(policy)
	o.Emit = rec.emit
	fresh := f.open(t, o)
	if fresh.ID() == s.ID() || !rec.warned(s.ID()) || !rec.warned(fresh.ID()) {
		t.Errorf("it is %s, and was %s: %+v", fresh.ID(), s.ID(), rec.all)
	}
	if old, now := f.record(t, s.ID()), f.record(t, fresh.ID()); old.Status != state.Gone || now.Name != "dev" {
		t.Errorf("%+v, %+v", old, now)
	}
	if err := fresh.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDrift(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, want(keyed("dev")))
	localtest.Sh(t, s.Session, "echo kept > b")
	end(t, s)
	// What is given anew at each resume is told, and counts.
	changed := func(onDrift string) (berth.SandboxOptions, *told) {
		policy := keyed("dev")
		policy.OnDrift = onDrift
		o, rec := want(policy), &told{}
		o.Emit = rec.emit
		o.Manifest.Environment = []spec.EnvVar{{Name: "NEW", Value: spec.Text{Literal: "s3cr3t-canary"}}}
		o.Manifest.Entries[0].File = &spec.FileEntry{Content: []byte("today's")}
		return o, rec
	}
	failing, _ := changed("fail")
	_, err := f.Open(t.Context(), &spec.Project{}, failing)
	fails(t, err, errs.ConfigInvalid, "environment variable NEW is new", "contents of the manifest changed")
	o, rec := changed("")
	again := f.open(t, o)
	if got := localtest.Sh(t, again.Session, "cat a b; echo $NEW"); got != "of the manifestkept\ns3cr3t-canary" {
		t.Errorf("%q", got)
	}
	if !rec.warned("environment variable NEW is new") || !rec.warned("contents of the manifest changed") {
		t.Errorf("%+v", rec.all)
	}
	end(t, again)
	if strings.Contains(string(f.record(t, s.ID()).State), "canary") {
		t.Error("a value is in the state")
	}
	// What a sandbox cannot be given anew is refused, gone on without, or the reason for a new one.
	limited := func(onDrift string) (berth.SandboxOptions, *told) {
		o, rec := changed(onDrift)
		o.Agent = &spec.Agent{Label: "x", RunAs: "ada"}
		return o, rec
	}
	o, _ = limited("")
	_, err = f.Open(t.Context(), &spec.Project{}, o)
	fails(t, err, errs.ConfigInvalid, "run_as of the agent cannot change")
	o, rec = limited("reuse")
	end(t, f.open(t, o))
	if !rec.warned("run_as of the agent") {
		t.Errorf("%+v", rec.all)
	}
	o, rec = limited("recreate")
	fresh := f.open(t, o)
	if got := localtest.Sh(t, fresh.Session, "cat a; id -un; cat b 2>/dev/null || echo fresh"); got != "today'sada\nfresh" || fresh.ID() == s.ID() {
		t.Errorf("%q in %s", got, fresh.ID())
	}
	if !rec.warned("replaced by a new one") {
		t.Errorf("%+v", rec.all)
	}
	f.gone(t, s.ID())
	if err := fresh.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStateFile(t *testing.T) {
	f := newFixture(t)
	path := filepath.Join(t.TempDir(), "session.json")
	policy := spec.SessionPolicy{Source: "resume_or_create", StateFile: path, AtEnd: "stop"}
	s := f.open(t, want(policy))
	end(t, s)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	// It finds the session also where the store knows nothing of it.
	m, err := f.Sessions(t.Context(), &spec.Project{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Store.DeleteSession(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	again := f.open(t, want(policy))
	if again.ID() != s.ID() {
		t.Error("it is another")
	}
	end(t, again)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(good), `"driver":"`, `"driver":"x`, 1)
	if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = f.Open(t.Context(), &spec.Project{}, want(policy))
	fails(t, err, errs.PermissionDenied, path, "was changed")
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.open(t, want(policy)).Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a session that is gone is left: %v", err)
	}
	policy.Source = "resume"
	_, err = f.Open(t.Context(), &spec.Project{}, want(policy))
	fails(t, err, errs.SandboxGone, path)
}

// A run refers to its session; one that it was given it never closes.
func TestRunsInSessions(t *testing.T) {
	f := newFixture(t)
	policy := keyed("dev")
	_, r := worker()
	p := &spec.Project{}
	r.Sandbox = &spec.Sandbox{Session: policy}
	play := func(o berth.RunOptions) error {
		o.Project, o.Run, o.Name = p, r, "replay"
		o.Model = player(t, turn{"calls": []any{exec("echo x >> runs; wc -l < runs")}}, turn{"say": "done"})
		_, err := f.Run(t.Context(), o)
		return err
	}
	for range 2 {
		if err := play(berth.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := f.open(t, berth.SandboxOptions{Sandbox: r.Sandbox, Manifest: r.Manifest, Agent: r.Agent})
	if got := localtest.Sh(t, s.Session, "wc -l < runs"); got != "2" {
		t.Errorf("%s runs were in the session", got)
	}
	id := "injected1"
	if err := play(berth.RunOptions{ID: id, Session: s}); err != nil {
		t.Fatal(err)
	}
	if got := localtest.Sh(t, s.Session, "wc -l < runs"); got != "3" {
		t.Errorf("%s runs were in the session", got)
	}
	if err := play(berth.RunOptions{Use: "dev"}); err == nil || !strings.Contains(err.Error(), "in use by") {
		t.Errorf("%v", err)
	}
	end(t, s)
	if err := play(berth.RunOptions{ID: "used1", Use: "dev"}); err != nil {
		t.Fatal(err)
	}
	var kept struct{ Session string }
	b, err := os.ReadFile(filepath.Join(f.host.Dir, "runs", "used1", "run.json"))
	if err = errors.Join(err, json.Unmarshal(b, &kept)); err != nil || kept.Session != s.ID() {
		t.Errorf("%s, %v", b, err)
	}
	if rec := f.record(t, s.ID()); rec.Status != state.Stopped {
		t.Errorf("%+v", rec)
	}
	last := f.open(t, berth.SandboxOptions{Sandbox: r.Sandbox, Manifest: r.Manifest, Agent: r.Agent})
	if err := last.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// A sandbox that could not be made leaves no record that says there is one, and its key is free.
func TestSandboxNotMade(t *testing.T) {
	f := newFixture(t)
	o := want(keyed("dev"))
	o.Manifest.Entries = append(o.Manifest.Entries, spec.Entry{Kind: spec.EntryFile, Path: "x", Owner: "nobody-has-this-name", File: &spec.FileEntry{}})
	_, err := f.Open(t.Context(), &spec.Project{}, o)
	if err == nil {
		t.Fatal("it was made")
	}
	m, merr := f.Sessions(t.Context(), &spec.Project{})
	if merr != nil {
		t.Fatal(merr)
	}
	all, lerr := m.Store.ListSessions(t.Context(), state.SessionFilter{})
	if lerr != nil || len(all) != 1 || all[0].Status != state.Gone || !strings.Contains(err.Error(), all[0].Reason) || all[0].Lease != nil {
		t.Errorf("%+v, %v", all, lerr)
	}
	s := f.open(t, want(keyed("dev")))
	if err := s.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}
