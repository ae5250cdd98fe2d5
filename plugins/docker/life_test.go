// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/docker/internal/box"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func TestCommands(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		req.Env = map[string]string{"PLAIN": "a b\n$c", "OVER": "sandbox"}
		req.SecretEnv = map[string]string{"TOKEN": "s3cr3t"}
		s := f.create(t, req)
		var out, said bytes.Buffer
		exit, err := s.Run(t.Context(), &driver.Command{
			Argv: []string{"sh", "-c", `echo "$GREETING|$PLAIN|$TOKEN|$OVER|$1|$(pwd)"; echo oops >&2; exit 7`, "sh", "an argument\nof two lines"},
			Env:  map[string]string{"OVER": "command"},
		}, driver.Streams{Stdout: &out, Stderr: &said})
		if err != nil || exit.Code != 7 || exit.Signal != "" {
			t.Errorf("%+v, %v", exit, err)
		}
		if got, want := out.String(), "hello|a b\n$c|s3cr3t|command|an argument\nof two lines|/workspace\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if said.String() != "oops\n" {
			t.Errorf("%q", said.String())
		}

		out.Reset()
		exit, err = s.Run(t.Context(), &driver.Command{Argv: []string{"wc", "-c"}}, driver.Streams{Stdin: strings.NewReader(strings.Repeat("x", 1<<20)), Stdout: &out})
		if err != nil || exit.Code != 0 || strings.TrimSpace(out.String()) != "1048576" {
			t.Errorf("%+v, %v, %q", exit, err, out.String())
		}
		out.Reset()
		_, err = s.Run(t.Context(), &driver.Command{Argv: []string{"head", "-c", "3000000", "/dev/zero"}}, driver.Streams{Stdout: &out})
		if err != nil || out.Len() != 3_000_000 {
			t.Errorf("%v, %d bytes", err, out.Len())
		}

		_, err = s.Run(t.Context(), &driver.Command{Argv: []string{"no-such-program"}}, driver.Streams{Stdout: &out})
		if !errors.Is(err, errs.ExecNotFound) {
			t.Errorf("a program that is not there: %v", err)
		}
		_, err = s.Run(t.Context(), &driver.Command{Argv: []string{"true"}, Dir: "/no/such/directory"}, driver.Streams{})
		if !errors.Is(err, errs.FileNotFound) {
			t.Errorf("a directory that is not there: %v", err)
		}
		_, err = s.Run(t.Context(), &driver.Command{Argv: []string{"true"}, User: "nobody-at-all"}, driver.Streams{})
		if !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("a user who is not there: %v", err)
		}
		if got, _ := try(t, s, &driver.Command{Argv: []string{"id", "-u"}, User: "app"}); strings.TrimSpace(got) != "1234" {
			t.Errorf("%q", got)
		}
	})
}

func TestTerminal(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		s := f.create(t, request(t, config))
		var out bytes.Buffer
		in, keys := io.Pipe()
		defer keys.Close()
		resize := make(chan driver.Size)
		go func() {
			resize <- driver.Size{Rows: 33, Cols: 77}
			_, _ = keys.Write([]byte("go on\n"))
		}()
		exit, err := s.Run(t.Context(), &driver.Command{
			Argv: []string{"sh", "-c", "read line; echo \"got $line\"; until [ \"$(stty size)\" = '33 77' ]; do :; done; test -t 1 && echo terminal"}, TTY: true,
		}, driver.Streams{Stdin: in, Stdout: &out, Resize: resize})
		if err != nil || exit.Code != 0 {
			t.Fatalf("%+v, %v, %q", exit, err, out.String())
		}
		for _, want := range []string{"got go on\r\n", "terminal\r\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in %q", want, out.String())
			}
		}
	})
}

// A time limit and a caller who leaves end everything that the command started, also what left its session.
func TestWholeTreesEnd(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		s := f.create(t, request(t, config))
		const tree = "(setsid sh -c 'sleep 4711 & sleep 4711' &) ; sleep 4711"
		running := func() string { return sh(t, s, "ps -o args | grep -c '[s]leep 4711' || true") }
		var out bytes.Buffer
		exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "echo begun; " + tree}, Timeout: 500 * time.Millisecond, KillGrace: 100 * time.Millisecond},
			driver.Streams{Stdout: &out})
		if err != nil || !exit.TimedOut || out.String() != "begun\n" {
			t.Errorf("%+v, %v, %q", exit, err, out.String())
		}
		if n := running(); n != "0" {
			t.Errorf("%s processes are left", n)
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		_, err = s.Run(ctx, &driver.Command{Argv: []string{"sh", "-c", tree}, KillGrace: 100 * time.Millisecond},
			driver.Streams{OnStart: func(driver.Started) {
				go func() {
					for running() == "0" {
						continue
					}
					cancel(errLeft)
				}()
			}})
		if !errors.Is(err, errs.Canceled) {
			t.Errorf("%v", err)
		}
		if n := running(); n != "0" {
			t.Errorf("%s processes are left", n)
		}
	})
}

// A command that leaves something behind that holds its output is over when it has ended.
func TestBackgroundDoesNotHoldUp(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		s := f.create(t, request(t, config))
		if out, exit := try(t, s, &driver.Command{Argv: []string{"sh", "-c", "sleep 4712 & echo done"}}); out != "done\n" || exit.Code != 0 {
			t.Errorf("%q, %+v", out, exit)
		}
	})
}

func TestStopResumeDestroy(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		before := f.volumes(t)
		req := request(t, config)
		req.Labels = map[string]string{"berth.run": "r1"}
		s, err := f.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		f.destroyAfter(t, s)
		sh(t, s, "echo work > file; (sleep 4713 >/dev/null 2>&1 &)")
		state := s.State()
		if !json.Valid(state.Data) || state.Display["container"] == "" {
			t.Errorf("%+v", state)
		}

		began := time.Now()
		if err := s.(driver.Stopper).Stop(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		t.Logf("stop took %v", time.Since(began))
		if st := inspect(t, s).Status; st != driver.StatusStopped {
			t.Errorf("%s", st)
		}
		if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); !errors.Is(err, errs.SandboxUnknown) {
			t.Errorf("a command in a stopped sandbox: %v", err)
		}

		// Another process of the driver, with today's environment.
		other := newFixture(t)
		other.secret = f.secret
		again, err := other.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: state, Env: map[string]string{"TODAY": "yes"}})
		if err != nil {
			t.Fatal(err)
		}
		if again.(driver.Reattached).Reattached() || !again.(driver.Preserved).WorkspacePreserved() {
			t.Error("a stopped sandbox has no processes, but its workspace")
		}
		if got := sh(t, again, "cat file; echo $TODAY; ps -o args | grep -c '[s]leep 4713' || true"); got != "work\nyes\n0" {
			t.Errorf("%q", got)
		}

		// One that runs is found with its processes.
		sh(t, again, "(sleep 4714 >/dev/null 2>&1 &)")
		third := newFixture(t)
		third.secret = f.secret
		found, err := third.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: again.State(), Env: map[string]string{"TODAY": "still"}})
		if err != nil {
			t.Fatal(err)
		}
		if !found.(driver.Reattached).Reattached() {
			t.Error("a running sandbox was not found with its processes")
		}
		if got := sh(t, found, "cat file; echo $TODAY; ps -o args | grep -c '[s]leep 4714'"); got != "work\nstill\n1" {
			t.Errorf("%q", got)
		}

		if err := found.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := found.Destroy(t.Context()); err != nil {
			t.Errorf("twice: %v", err)
		}
		if n := f.containers(t, req.SandboxID); n != 0 {
			t.Errorf("%d containers are left", n)
		}
		if after := f.volumes(t); len(after) > len(before) && f.e.Local {
			t.Logf("volumes %v, before %v (other tests may have made some)", after, before)
		}
		if _, err := newFixture(t).Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: state}); !errors.Is(err, errs.SandboxGone) {
			t.Errorf("a sandbox that was destroyed: %v", err)
		}
	})
}

// What the guest started before its driver died goes on, and its output at the byte where it was.
func TestProcessesOutliveTheDriver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	s := f.create(t, req)
	sh(t, s, "mkfifo gate")
	ctx, cancel := context.WithCancelCause(t.Context())
	var first bytes.Buffer
	_, err := s.Run(ctx, &driver.Command{ID: "long", Argv: []string{"sh", "-c", "echo one; read line < gate; echo two"}, Detached: true},
		driver.Streams{Stdout: writerFunc(func(p []byte) (int, error) { n, err := first.Write(p); cancel(errLeft); return n, err })})
	if !errors.Is(err, errs.Canceled) {
		t.Fatal(err)
	}
	other := newFixture(t)
	other.secret = f.secret
	again, err := other.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()})
	if err != nil {
		t.Fatal(err)
	}
	list, err := again.(driver.ProcessTable).Processes(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(p driver.Process) bool { return p.ID == "long" && p.Exit == nil }) {
		t.Fatalf("%+v, %v", list, err)
	}
	sh(t, again, "echo > gate")
	var rest bytes.Buffer
	exit, err := again.(driver.ProcessTable).Attach(t.Context(), "long", uint64(first.Len()), driver.Streams{Stdout: &rest})
	if err != nil || first.String() != "one\n" || exit.Code != 0 || rest.String() != "two\n" {
		t.Errorf("%+v, %v, %q, %q", exit, err, first.String(), rest.String())
	}
}

var errLeft = errors.New("the caller has left")

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestSameIDGivesTheSameSandbox(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		s := f.create(t, req)
		sh(t, s, "echo mine > file")
		if again, err := f.Create(t.Context(), req); err != nil || again != s {
			t.Errorf("%v, %v", again, err)
		}
		// A create whose answer was lost with its driver is found again by the next one.
		other := newFixture(t)
		other.secret = f.secret
		found, err := other.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, found, "cat file"); got != "mine" {
			t.Errorf("%q", got)
		}
		if n := f.containers(t, req.SandboxID); n != 1 {
			t.Errorf("%d containers", n)
		}
	})
}

func TestPause(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		zero := time.Duration(0)
		req.OrphanTTL = &zero
		s := f.create(t, req)
		sh(t, s, "(sleep 4715 >/dev/null 2>&1 &)")
		state := s.State()
		if err := s.(driver.Pauser).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := inspect(t, s).Status; st != driver.StatusPaused {
			t.Errorf("%s", st)
		}
		again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: state, OrphanTTL: &zero})
		if err != nil {
			t.Fatal(err)
		}
		if !again.(driver.Reattached).Reattached() {
			t.Error("the processes are gone")
		}
		if got := sh(t, again, "ps -o args | grep -c '[s]leep 4715'"); got != "1" {
			t.Errorf("%q", got)
		}
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := ulid.Make().String()
	ids := map[string]driver.Status{}
	for _, st := range []driver.Status{driver.StatusRunning, driver.StatusStopped} {
		req := request(t, nil)
		req.Labels = map[string]string{"berth.run": run}
		s := f.create(t, req)
		if st == driver.StatusStopped {
			if err := s.(driver.Stopper).Stop(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		ids[req.SandboxID] = st
	}
	found := map[string]driver.Status{}
	for info, err := range newFixture(t).List(t.Context(), map[string]string{"berth.run": run}) {
		if err != nil {
			t.Fatal(err)
		}
		found[info.SandboxID] = info.Status
		if info.Labels["berth.run"] != run || info.Root != "/workspace" || info.Created.IsZero() {
			t.Errorf("%+v", info)
		}
	}
	if !maps.Equal(found, ids) {
		t.Errorf("%v, want %v", found, ids)
	}
}

// Nobody comes back: the guest ends everything, and the workspace stays.
func TestLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	zero := time.Duration(0)
	req.OrphanTTL = &zero
	s := f.create(t, req)
	sh(t, s, "echo work > file")
	err := f.Drain(t.Context(), driver.OrphanPark, func(r driver.DrainResult) {
		if r.Outcome != "parked" {
			t.Errorf("%+v", r)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container ends", func() bool { return inspect(t, s).Status == driver.StatusStopped })
	again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat file"); got != "work" {
		t.Errorf("%q", got)
	}
}

func TestLifetime(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		req.MaxLifetime = time.Hour
		s := f.create(t, req)
		sh(t, s, "echo work > file")
		if d := s.State().Deadline; time.Until(d) > time.Hour || time.Until(d) < 50*time.Minute {
			t.Errorf("deadline %v", d)
		}
		var events []driver.Event
		watched := make(chan error, 1)
		ready := make(chan struct{})
		go func() {
			close(ready)
			watched <- s.(driver.Watcher).Watch(t.Context(), func(e driver.Event) { events = append(events, e) })
		}()
		<-ready
		if _, err := s.(driver.DeadlineExtender).ExtendDeadline(t.Context(), time.Now().Add(300*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := <-watched; err != nil && !errors.Is(err, errs.SandboxUnknown) {
			t.Fatal(err)
		} else if err == nil && (len(events) == 0 || !strings.Contains(events[len(events)-1].Message, "lifetime")) {
			t.Errorf("%+v", events)
		}
		eventually(t, "the container ends", func() bool { return inspect(t, s).Status == driver.StatusStopped })
		again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()})
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, again, "cat file"); got != "work" {
			t.Errorf("%q", got)
		}
		if d := again.State().Deadline; time.Until(d) < 50*time.Minute {
			t.Errorf("it was given no time of its own: %v", d)
		}
	})
}

// A container that was removed behind the driver's back is gone, and the error says so.
func TestRemovedByOthers(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		s := f.create(t, req)
		watched := make(chan driver.Event, 8)
		go func() {
			_ = s.(driver.Watcher).Watch(t.Context(), func(e driver.Event) { watched <- e })
		}()
		ended := make(chan error, 1)
		exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sleep", "4716"}}, driver.Streams{OnStart: func(driver.Started) {
			go func() {
				_, err := f.e.ContainerRemove(t.Context(), containerName(t, f, req.SandboxID), client.ContainerRemoveOptions{Force: true})
				ended <- err
			}()
		}})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err == nil || !strings.Contains(err.Error(), "container") {
			t.Errorf("%+v, %v", exit, err)
		}
		if ev := <-watched; ev.Kind != driver.EventDied {
			t.Errorf("%+v", ev)
		}
		if _, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()}); !errors.Is(err, errs.SandboxGone) {
			t.Errorf("%v", err)
		}
	})
}

func containerName(t testing.TB, f *fixture, id string) string {
	t.Helper()
	got, err := box.Find(t.Context(), f.e, id)
	if err != nil || got == nil {
		t.Fatal(got, err)
	}
	return got.ID
}
