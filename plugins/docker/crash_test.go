// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// envChild makes this program a driver process that is to be killed. It gets its orders as JSON.
const envChild = "BERTH_TEST_CHILD"

type orders struct {
	State   string // directory
	Host    string
	ID      string
	Config  json.RawMessage
	Command []string
}

// child makes a sandbox, starts a command in it, prints the sandbox's state and waits for its end.
func child() {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(envChild)), &o); err != nil {
		panic(err)
	}
	d := New(hclog.NewNullLogger()).(*docker)
	process, err := json.Marshal(map[string]any{"host": o.Host})
	if err != nil {
		panic(err)
	}
	if diags := d.Configure(context.Background(), driver.Host{StateDir: o.State}, schema.Value{JSON: process}); len(diags) > 0 {
		panic(diags)
	}
	s, err := d.Create(context.Background(), &driver.CreateRequest{
		SandboxID: o.ID, Workspace: driver.Workspace{Root: "/workspace"}, Progress: func(driver.Progress) {}, Config: schema.Value{JSON: o.Config},
	})
	if err != nil {
		panic(err)
	}
	_, err = s.Run(context.Background(), &driver.Command{ID: "work", Argv: o.Command, Detached: true}, driver.Streams{Stdout: writerFunc(func(p []byte) (int, error) {
		b, err := json.Marshal(s.State())
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\n", b)
		return len(p), nil
	})})
	panic(fmt.Sprint("the command ended before this program was killed: ", err))
}

// A driver process is killed in the middle of a command and of writing to it. The next one finds everything.
func TestDriverIsKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	o, err := json.Marshal(orders{
		State: f.host.StateDir, Host: f.e.Where, ID: req.SandboxID, Config: req.Config.JSON,
		Command: []string{"sh", "-c", "mkfifo gate; echo one; read line < gate; echo two; exit 5"},
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), envChild+"="+string(o))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var state driver.State
	err = json.NewDecoder(out).Decode(&state)
	if e := cmd.Process.Kill(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	_ = cmd.Wait() // it was killed

	s, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: state})
	if err != nil {
		t.Fatal(err)
	}
	f.destroyAfter(t, s)
	if !s.(driver.Reattached).Reattached() {
		t.Error("its processes are gone")
	}
	sh(t, s, "echo > gate")
	var all bytes.Buffer
	exit, err := s.(driver.ProcessTable).Attach(t.Context(), "work", 0, driver.Streams{Stdout: &all})
	if err != nil || exit.Code != 5 || all.String() != "one\ntwo\n" {
		t.Errorf("%+v, %v, %q", exit, err, all.String())
	}
}

// The container is ended for lack of memory, guest and all: whoever waits is told why.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, map[string]any{"memory": 32 << 20})
	s := f.create(t, req)
	sh(t, s, "echo work > file")
	events := make(chan driver.Event, 8)
	go func() { _ = s.(driver.Watcher).Watch(t.Context(), func(e driver.Event) { events <- e }) }()
	// The kernel takes the largest process; here it is one of the sandbox's. When that one takes too long to die, the kernel
	// takes the guest too, and the container ends. What it was is told in both cases.
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"tail", "-c", "200000000", "/dev/zero"}}, driver.Streams{})
	const lack = "for lack of memory"
	if err != nil {
		if ev := <-events; !strings.Contains(err.Error(), lack) || ev.Kind != driver.EventDied || !strings.Contains(ev.Message, lack) {
			t.Errorf("%v, %+v", err, ev)
		}
		eventually(t, "the container ends", func() bool { return inspect(t, s).Status == driver.StatusStopped })
		if s, err = f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()}); err != nil {
			t.Fatal(err)
		}
	} else if ev := <-events; !exit.OOM || exit.Code != 137 || ev.Kind != driver.EventOutOfMemory {
		t.Errorf("%+v, %+v", exit, ev)
	}
	if got := sh(t, s, "cat file"); got != "work" {
		t.Errorf("%q", got)
	}
}

// The guest is killed from outside: the command's error says so, and the sandbox goes on from its workspace.
func TestGuestIsKilled(t *testing.T) {
	both(t, func(t *testing.T, f *fixture, config map[string]any) {
		req := request(t, config)
		s := f.create(t, req)
		sh(t, s, "echo work > file")
		events := make(chan driver.Event, 8)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			_ = s.(driver.Watcher).Watch(t.Context(), func(e driver.Event) { events <- e })
		}()
		killed := make(chan error, 1)
		_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sleep", "4718"}}, driver.Streams{OnStart: func(driver.Started) {
			go func() {
				_, err := f.e.ContainerKill(t.Context(), containerName(t, f, req.SandboxID), client.ContainerKillOptions{Signal: "KILL"})
				killed <- err
			}()
		}})
		if e := <-killed; e != nil {
			t.Fatal(e)
		}
		if err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("%v", err)
		}
		if ev := <-events; ev.Kind != driver.EventDied || !strings.Contains(ev.Message, "137") {
			t.Errorf("%+v", ev)
		}
		<-watched
		eventually(t, "the container ends", func() bool { return inspect(t, s).Status == driver.StatusStopped })
		again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()})
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, again, "cat file"); got != "work" || again.(driver.Reattached).Reattached() {
			t.Errorf("%q", got)
		}
	})
}

// Two installations do not fight over a container: the second is told, and gets it when the first has let go of it.
func TestAnotherInstallation(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	req := request(t, nil)
	zero := time.Duration(0)
	req.OrphanTTL = &zero
	s := f.create(t, req)
	sh(t, s, "echo work > file; (sleep 4719 >/dev/null 2>&1 &)")
	resume := &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State()}
	refused := func(by *fixture, resume *driver.ResumeRequest) {
		t.Helper()
		_, err := by.Resume(t.Context(), resume)
		var e *errs.Error
		if !errors.As(err, &e) || e.Code != errs.PermissionDenied || !strings.Contains(err.Error(), "another installation") || !strings.Contains(e.Hint, "docker ") {
			t.Errorf("%v", err)
		}
	}
	refused(other, resume)
	if _, err := other.Create(t.Context(), req); !errors.Is(err, errs.PermissionDenied) {
		t.Errorf("%v", err)
	}
	for info, err := range other.List(t.Context(), nil) {
		if err != nil || info.SandboxID == req.SandboxID && info.Display["owner"] != "another installation" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if got := sh(t, s, "cat file; ps -o args | grep -c '[s]leep 4719'"); got != "work\n1" {
		t.Errorf("the first one's sandbox was touched: %q", got)
	}

	// Without a guest it stays with who made it.
	plain := request(t, map[string]any{"guest": settings.GuestNever})
	made := f.create(t, plain)
	refused(other, &driver.ResumeRequest{SandboxID: plain.SandboxID, State: made.State()})
	if err := made.(driver.Stopper).Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	refused(other, &driver.ResumeRequest{SandboxID: plain.SandboxID, State: made.State()})

	// The first installation is gone: it does not come back for its sandbox, and the lease ends.
	for _, b := range maps.Clone(f.boxes) {
		b.Common().Park()
	}
	eventually(t, "the container ends", func() bool { return inspect(t, s).Status == driver.StatusStopped })
	again, err := other.Resume(t.Context(), resume)
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat file"); got != "work" || again.(driver.Reattached).Reattached() {
		t.Errorf("%q", got)
	}
	refused(f, resume)
	other.destroyAfter(t, again)
	// A state that names another container is not believed.
	foreign, err := f.e.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: busyboxImage(t), Cmd: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = f.e.ContainerRemove(context.WithoutCancel(t.Context()), foreign.ID, client.ContainerRemoveOptions{Force: true})
	})
	state := s.State()
	state.Data = []byte(strings.Replace(string(state.Data), state.Display["container"], foreign.ID, 1))
	if _, err := other.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID + "X", State: state}); err == nil {
		t.Error("it took a container that is not its own")
	}
}

// Nothing goes on in the background once a sandbox is gone.
func TestNoGoroutinesAreLeft(t *testing.T) {
	f := newFixture(t)
	cycle := func() {
		for _, guest := range []string{"required", "never"} {
			s, err := f.Create(t.Context(), request(t, map[string]any{"guest": guest}))
			if err != nil {
				t.Fatal(err)
			}
			sh(t, s, "echo x")
			if p, ok := s.(driver.PortExposer); ok && guest == "required" {
				if _, err := p.Expose(t.Context(), 80, "tcp", false); err != nil {
					t.Error(err)
				}
			}
			if err := s.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = f.engine.Close() // only idle connections
	}
	cycle()
	before := runtime.NumGoroutine()
	cycle()
	eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}
