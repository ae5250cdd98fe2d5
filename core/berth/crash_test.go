// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/berth/watch"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model/replay"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/internal/testbin"
)

// The test binary is also the core that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_CORE_DIR"); dir != "" {
		coreMain(dir)
		return
	}
	os.Exit(m.Run())
}

// coreMain performs the run that the environment describes, and says what happens.
func coreMain(dir string) {
	w := &watch.Watch{}
	m := plugin.NewManager(localtest.Config(dir, os.Getenv("TEST_CORE_DRIVER")))
	t, err := replay.Open(filepath.Join(dir, "transcript"))
	if err != nil {
		panic(err)
	}
	p, r := worker()
	if os.Getenv("TEST_CORE_MEMORY") != "" {
		remembers(r)
	}
	ttl, err := time.ParseDuration(os.Getenv("TEST_CORE_TTL"))
	if err != nil {
		panic(err)
	}
	r.Sandbox.Session.OrphanTTL = &ttl
	res, err := harness(m, w, dir).Run(context.Background(), berth.RunOptions{
		ID: os.Getenv("TEST_CORE_RUN"), Project: p, Run: r, Name: "replay", Model: replay.New(t),
		Emit: func(ev event.Event) {
			if out, ok := ev.Data.(event.ToolOutput); ok && strings.Contains(out.Text, "up") {
				fmt.Println(m.Statuses()[0].PID)
			}
		},
	})
	panic(fmt.Sprint(res, err)) // it was to be killed
}

// killedCore performs a run in a core of its own and kills that in the middle of the first command. It gives the driver's
// process.
func killedCore(t *testing.T, host *localtest.Host, id, ttl, transcript string) (driverPID int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(host.Dir, "transcript"), []byte(transcript), 0o600); err != nil {
		t.Fatal(err)
	}
	core := osexec.CommandContext(t.Context(), os.Args[0])
	core.Env = append(os.Environ(), "TEST_CORE_DIR="+host.Dir, "TEST_CORE_DRIVER="+testbin.Driver(t, localtest.Driver), "TEST_CORE_TTL="+ttl, "TEST_CORE_RUN="+id)
	var stderr localtest.Log
	core.Stderr = &stderr
	out, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = core.Process.Kill()
		_ = core.Wait()
		t.Fatalf("the core did not get to its command: %v: %s", err, stderr.String())
	}
	if driverPID, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	if !localtest.Alive(driverPID) {
		t.Fatal("the driver does not run")
	}
	if err := core.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = core.Wait()
	return driverPID
}

// The core is killed in the middle of a command: its driver ends; the guest, when its lease is over, ends everything; and
// the run is completed by another process in the same workspace.
func TestCoreKilled(t *testing.T) {
	w := &watch.Watch{}
	host := localtest.New(t, w.Notify)
	f := &fixture{host: host, Harness: harness(host.Manager, w, host.Dir)}
	id, mark := runlog.NewID(time.Now()), localtest.Mark()
	transcript := script(t,
		turn{"calls": []any{exec(fmt.Sprintf("echo kept >> state.txt; (setsid sh -c 'sleep 1000; : %[1]s' &); echo up; sleep 1000; : %[1]s", mark))}},
		turn{"expect": []string{`"code":"interrupted"`}, "calls": []any{exec("cat state.txt; ls in")}},
		turn{"expect": []string{"Output:\nkept\na.txt"}, "say": "went on"},
	)
	pid := killedCore(t, host, id, "1s", transcript)
	killed := time.Now()
	localtest.Eventually(t, "the driver is gone", func() bool { return !localtest.Alive(pid) })
	driverGone := time.Since(killed)
	localtest.Eventually(t, "the guest has ended everything", func() bool { return len(localtest.Marked(t, mark)) == 0 })
	t.Logf("driver gone after %s, everything after %s with a lease of 1 s", driverGone.Round(time.Millisecond), time.Since(killed).Round(time.Millisecond))
	if driverGone > 10*time.Second {
		t.Error("that is too late")
	}
	f.completes(t, id, transcript, "went on")
}

// When another process comes back within the lease, it finds the command that still runs, with all of its output.
func TestCoreKilledWithinLease(t *testing.T) {
	w := &watch.Watch{}
	host := localtest.New(t, w.Notify)
	f := &fixture{host: host, Harness: harness(host.Manager, w, host.Dir)}
	id, mark := runlog.NewID(time.Now()), localtest.Mark()
	const lines = 120
	var want strings.Builder
	want.WriteString("up\n")
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	transcript := script(t,
		turn{"calls": []any{exec(fmt.Sprintf(
			"echo x >> runs; echo up; i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.01; done; wc -l < runs; : %s", lines, mark))}},
		turn{"expect": []string{"Process exited with code 0\nOutput:\n" + want.String() + "1\n"}, "say": "reattached"},
	)
	killedCore(t, host, id, "60s", transcript)
	if len(localtest.Marked(t, mark)) == 0 {
		t.Error("the command ended with the core, its lease is 60 s")
	}
	f.completes(t, id, transcript, "reattached")
	if left := localtest.Marked(t, mark); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// reject is a person who does not want anything.
func reject(context.Context, runner.Approval) (runner.Decision, error) { return runner.Decision{}, nil }

// completes resumes a run to its end.
func (f *fixture) completes(t *testing.T, id, transcript, answer string) {
	t.Helper()
	tr, err := replay.Parse(strings.NewReader(transcript))
	if err != nil {
		t.Fatal(err)
	}
	p, r := worker()
	var rec recorded
	res, err := f.Resume(t.Context(), berth.RunOptions{ID: id, Project: p, Run: r, Name: "replay", Model: replay.New(tr), Emit: rec.emit, Approve: reject})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != run.Completed || res.Output != answer {
		t.Errorf("%+v", res)
	}
	if ended, _ := find[event.SandboxEnded](&rec); ended.Outcome != "destroyed" {
		t.Errorf("%+v", ended)
	}
	f.gone(t, id)
}
