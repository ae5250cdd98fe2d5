// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kept is a session as the command line lists it.
type kept struct {
	ID       string
	Status   string
	Deadline time.Time
	Display  map[string]string
}

// eventually asks until the answer is yes.
func (p *project) eventually(what string, f func() bool) {
	p.t.Helper()
	end := time.Now().Add(time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(end) {
			p.t.Fatalf("still not: %s", what)
		}
		<-tick.C
	}
}

func (p *project) session() kept {
	p.t.Helper()
	var all []kept
	if err := json.Unmarshal([]byte(p.run("session", "list", "--json")), &all); err != nil {
		p.t.Fatal(err)
	}
	if len(all) == 0 {
		return kept{}
	}
	return all[0]
}

// box is the vendor's name of a session's sandbox.
func (p *project) box(session string) string {
	p.t.Helper()
	var s kept
	if err := json.Unmarshal([]byte(p.run("session", "inspect", "--json", session)), &s); err != nil {
		p.t.Fatal(err)
	}
	return s.Display["sandbox"]
}

// holding is a command that holds a session until it is told to end, or its sandbox ends.
type holding struct {
	*exec.Cmd
	said bytes.Buffer
	done chan error
}

func (p *project) hold(script string) *holding {
	p.t.Helper()
	h := &holding{Cmd: p.command("exec", ".", "--", "sh", "-c", script), done: make(chan error, 1)}
	h.Stdout, h.Stderr = &h.said, &h.said
	if err := h.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { h.done <- h.Wait() }()
	return h
}

func cloud(lifetime, config, snapshot string) string {
	return `
sandbox "cloud" {
  driver = "e2b"

  config {
` + config + `
  }

  lifetime {
` + lifetime + `
  }

  session {
    key     = "work"
    source  = "resume_or_create"
    at_end  = "keep"
    on_gone = "restore_snapshot"
  }

  snapshot "local" {
` + snapshot + `
  }
}

run "default" {
  agent   = agent.helper
  sandbox = sandbox.cloud
  input   = "go"
}
`
}

// What a sandbox's lifetime says holds at the vendor, and its workspace is saved before the vendor ends it.
func TestLifetime(t *testing.T) {
	s := newService(t)
	newProject := func(lifetime, config, snapshot string) *project {
		return s.project(t, cloud(lifetime, config, snapshot), "e2b")
	}
	hard := newProject(`max = "16s"`, `on_timeout = "kill"`, ``)
	idle := newProject(`idle = "6s"`, `on_timeout = "kill"`, `persist = "never"`)
	longer := newProject(``, "timeout = \"15s\"\nkeep_alive = false\non_timeout = \"kill\"", `persist = "manual"`)

	// The hard end comes while a command works: what was saved before it is where the session goes on.
	t.Run("hard end", func(t *testing.T) {
		t.Parallel()
		p := *hard
		p.t = t
		h := p.hold("i=0; while :; do i=$((i+1)); echo $i > n; sleep 0.2; done")
		var saved string
		p.eventually("a snapshot with the command's work", func() bool {
			if saved = p.run("snapshot", "list", "--json"); !strings.Contains(saved, `"id"`) {
				return false
			}
			var all []struct{ ID string }
			if err := json.Unmarshal([]byte(saved), &all); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(p.run("snapshot", "show", "--files", all[0].ID), " n")
		})
		first := p.session()
		if left := time.Until(first.Deadline); left <= 0 || left > 16*time.Second {
			t.Errorf("the session ends in %s", left)
		}
		s.fake.Expire(p.box("work"))
		if err := <-h.done; err == nil || !strings.Contains(h.said.String(), "its workspace is being saved") {
			t.Errorf("%v\n%s", err, h.said.String())
		}
		out := p.command("exec", ".", "--", "sh", "-c", "test $(cat n) -gt 0 && echo went on")
		if b, err := out.CombinedOutput(); err != nil || !strings.Contains(string(b), "went on") || !strings.Contains(string(b), "as it was saved in snapshot") {
			t.Errorf("%v\n%s", err, b)
		}
		if next := p.session(); next.ID == first.ID {
			t.Errorf("%+v", next)
		}
		p.run("session", "rm", "work")
	})

	// An idle time begins anew while somebody has the session, and ends it when nobody has.
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		p := *idle
		p.t = t
		h := p.hold("sleep 600")
		p.eventually("a session", func() bool { return p.session().ID != "" && !p.session().Deadline.IsZero() })
		first := p.session().Deadline
		p.eventually("its end moved twice", func() bool { return p.session().Deadline.Sub(first) > 3*time.Second })
		if !slices.Contains(s.fake.Alive(), p.box("work")) {
			t.Fatal("the sandbox in use is gone")
		}
		box := p.box("work")
		if err := h.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-h.done
		p.eventually("the vendor ended it", func() bool { return !slices.Contains(s.fake.Alive(), box) })
		p.run("session", "rm", "work")
	})

	// A vendor's end that nobody asked for is moved before it comes.
	t.Run("extend", func(t *testing.T) {
		t.Parallel()
		p := *longer
		p.t = t
		h := p.hold("sleep 600")
		p.eventually("more time", func() bool { return time.Until(p.session().Deadline) > 5*time.Minute })
		if err := h.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-h.done
		p.run("session", "rm", "work")
	})
}
