// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sample(id string) *Session {
	return &Session{
		ID: id, Name: "name of " + id, Project: "/p", Sandbox: "dev", Driver: "docker", Owner: "ada@box", Host: "box", Run: "r1",
		Status: Creating, Reason: "because", State: []byte{0, 1, 0xff}, Deadline: time.UnixMilli(1_900_000_000_123),
	}
}

func create(t *testing.T, d *db, s *Session) *Session {
	t.Helper()
	if err := d.CreateSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionRecords(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		s := create(t, d, sample("01ONE"))
		want := sample("01ONE")
		want.Version = 1
		if diff := cmp.Diff(want, s, cmpopts.IgnoreFields(Session{}, "Created", "Updated")); diff != "" {
			t.Error(diff)
		}
		if age := time.Since(s.Created); age < -time.Minute || age > time.Minute || !s.Created.Equal(s.Updated) {
			t.Errorf("created %v, updated %v", s.Created, s.Updated)
		}
		stale := *s
		s.Status, s.Reason, s.State, s.Deadline = Live, "", []byte("sealed"), time.Time{}
		if err := d.UpdateSession(ctx, s); err != nil {
			t.Fatal(err)
		}
		read, err := d.Session(ctx, "01ONE")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, read); diff != "" || read.Version != 2 || read.Status != Live || string(read.State) != "sealed" {
			t.Errorf("%+v: %s", read, diff)
		}
		if err := d.UpdateSession(ctx, &stale); !errors.Is(err, ErrChanged) {
			t.Errorf("a stale record was written: %v", err)
		}
		if err := d.CreateSession(ctx, sample("01ONE")); !errors.Is(err, ErrExists) {
			t.Errorf("one id twice: %v", err)
		}
		other := sample("01TWO")
		other.Name = s.Name
		if err := d.CreateSession(ctx, other); !errors.Is(err, ErrExists) {
			t.Errorf("one name twice: %v", err)
		}
		elsewhere := sample("01TWO")
		elsewhere.Name, elsewhere.Project = s.Name, "/q"
		create(t, d, elsewhere)
		if got, err := d.NamedSession(ctx, "/q", s.Name); err != nil || got.ID != "01TWO" {
			t.Errorf("%v, %v", got, err)
		}

		// What is gone leaves its name to others.
		s.Status = Gone
		if err := d.UpdateSession(ctx, s); err != nil {
			t.Fatal(err)
		}
		other.ID = "01THREE"
		create(t, d, other)
		if got, err := d.NamedSession(ctx, "/p", s.Name); err != nil || got.ID != "01THREE" {
			t.Errorf("%v, %v", got, err)
		}
		ids := func(f SessionFilter) (ids []string) {
			all, err := d.ListSessions(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				ids = append(ids, s.ID)
			}
			slices.Sort(ids)
			return ids
		}
		if got := ids(SessionFilter{}); !slices.Equal(got, []string{"01ONE", "01THREE", "01TWO"}) {
			t.Errorf("all: %v", got)
		}
		if got := ids(SessionFilter{Project: "/p", Status: []Status{Gone, Live}, Host: "box"}); !slices.Equal(got, []string{"01ONE"}) {
			t.Errorf("gone in /p: %v", got)
		}
		if n, err := d.PruneSessions(ctx, time.Hour); n != 0 || err != nil {
			t.Errorf("pruned %d too early, %v", n, err)
		}
		if n, err := d.PruneSessions(ctx, 0); n != 1 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if err := d.DeleteSession(ctx, "01TWO"); err != nil {
			t.Error(err)
		}
		if err := errors.Join(d.DeleteSession(ctx, "01TWO")); !errors.Is(err, ErrUnknown) {
			t.Errorf("deleted twice: %v", err)
		}
		if err := d.UpdateSession(ctx, elsewhere); !errors.Is(err, ErrUnknown) {
			t.Errorf("a record that is not there was written: %v", err)
		}
		if got := ids(SessionFilter{}); !slices.Equal(got, []string{"01THREE"}) {
			t.Errorf("at the end: %v", got)
		}
	})
}

func TestFindSession(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d := openStore(t, cfg)
		for _, id := range []string{"01ABC", "01ABD", "01X%_", "01GONE"} {
			s := sample(id)
			if id == "01GONE" {
				s.Status, s.Name = Gone, ""
			}
			create(t, d, s)
		}
		for text, want := range map[string]string{
			"01ABC": "01ABC", "01abd": "01ABD", "01x": "01X%_", "name of 01ABC": "01ABC", "01GONE": "01GONE",
			"01gon": "", "": "", "%": "", "01X__": "", "01ABCD": "",
		} {
			s, err := d.FindSession(t.Context(), "/p", text)
			if want == "" {
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("%q: %v, %v", text, s, err)
				}
			} else if err != nil || s.ID != want {
				t.Errorf("%q: %v, %v", text, s, err)
			}
		}
		if s, err := d.FindSession(t.Context(), "/q", "name of 01ABC"); !errors.Is(err, ErrUnknown) {
			t.Errorf("a name of another project: %v, %v", s, err)
		}
		_, err := d.FindSession(t.Context(), "/p", "01a")
		amb, ok := errors.AsType[*AmbiguousError](err)
		if !ok || !slices.Equal(amb.IDs, []string{"01ABC", "01ABD"}) {
			t.Errorf("%v", err)
		}
	})
}

func TestLeases(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		mine, theirs := NewLease("first"), NewLease("second")
		s := sample("01A")
		s.Lease = &mine
		create(t, d, s)
		if s.Lease == nil || s.Lease.Token != mine.Token || s.Lease.By != mine.By || s.Lease.Expired || time.Until(s.Lease.Until) < 30*time.Second {
			t.Fatalf("%+v", s.Lease)
		}
		other, err := d.Session(ctx, "01A")
		if err != nil {
			t.Fatal(err)
		}
		err = d.LeaseSession(ctx, other, theirs, nil)
		held, ok := errors.AsType[*HeldError](err)
		if !ok || held.Lease.Token != mine.Token || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), mine.By.Owner()) {
			t.Fatalf("%v", err)
		}
		// A lease that was renewed after it was read as expired is not taken over.
		short := mine
		short.TTL = -time.Second
		if err := d.RenewSession(ctx, "01A", short); err != nil {
			t.Fatal(err)
		}
		err = d.LeaseSession(ctx, other, theirs, nil)
		if held, ok = errors.AsType[*HeldError](err); !ok || !held.Lease.Expired {
			t.Fatalf("%v", err)
		}
		if err := d.RenewSession(ctx, "01A", mine); err != nil {
			t.Fatal(err)
		}
		if err := d.LeaseSession(ctx, other, theirs, &held.Lease); err == nil {
			t.Fatal("a renewed lease was taken over")
		}
		// One that was not is, and whoever had it can write no more.
		if err := d.RenewSession(ctx, "01A", short); err != nil {
			t.Fatal(err)
		}
		err = d.LeaseSession(ctx, other, theirs, nil)
		if held, ok = errors.AsType[*HeldError](err); !ok {
			t.Fatalf("%v", err)
		}
		if err := d.LeaseSession(ctx, other, theirs, &held.Lease); err != nil {
			t.Fatal(err)
		}
		if err := d.UpdateSession(ctx, s); !errors.Is(err, ErrChanged) {
			t.Errorf("it was written by who lost the lease: %v", err)
		}
		if err := d.RenewSession(ctx, "01A", mine); !errors.Is(err, ErrChanged) {
			t.Errorf("a lost lease was renewed: %v", err)
		}
		if err := d.ReleaseSession(ctx, "01A", mine.Token); err != nil {
			t.Error(err)
		}
		if err := d.UpdateSession(ctx, other); err != nil || other.Lease == nil || other.Lease.Token != theirs.Token {
			t.Errorf("the holder: %v, %+v", err, other.Lease)
		}
		if err := d.ReleaseSession(ctx, "01A", theirs.Token); err != nil {
			t.Error(err)
		}
		if err := d.UpdateSession(ctx, other); err != nil || other.Lease != nil {
			t.Errorf("afterwards: %v, %+v", err, other.Lease)
		}
		if err := d.RenewSession(ctx, "01B", mine); !errors.Is(err, ErrUnknown) {
			t.Errorf("of no session: %v", err)
		}
	})
}

// Of all who want a lease at the same time, one gets it.
func TestOneGetsTheLease(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		create(t, d, sample("01A"))
		const n = 8
		got := make(chan error, n)
		for range n {
			go func() { got <- d.LeaseSession(ctx, &Session{ID: "01A"}, NewLease("x"), nil) }()
		}
		won := 0
		for range n {
			err := <-got
			if _, held := errors.AsType[*HeldError](err); err == nil {
				won++
			} else if !held {
				t.Error(err)
			}
		}
		if won != 1 {
			t.Errorf("%d have it", won)
		}
	})
}

func TestHolder(t *testing.T) {
	me := Here("a test")
	if me.Dead() || !me.Local() {
		t.Errorf("%+v is this process", me)
	}
	if s := me.String(); !strings.Contains(s, "a test") || !strings.Contains(s, me.Owner()) {
		t.Error(s)
	}
	later := me
	later.Start += "1"
	if !later.Dead() {
		t.Error("a process that had this PID before is alive")
	}
	far := later
	far.Host = "elsewhere"
	if far.Dead() || far.Local() {
		t.Error("of another machine's processes something is known")
	}
	// One that has ended, but whose parent has not asked yet.
	c := exec.Command(os.Args[0], "-test.run", "^$")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	start, ok := started(c.Process.Pid)
	if !ok {
		t.Skip("it has ended already")
	}
	h := me
	h.PID, h.Start = c.Process.Pid, start
	deadline := time.Now().Add(20 * time.Second)
	for !h.Dead() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if !h.Dead() {
		t.Error("a process that ended is alive")
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if !h.Dead() {
		t.Error("a process that is not there is alive")
	}
}
