// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/stream"
)

var (
	killPoints = flag.Int("kill.points", 3, "how often TestKilled kills in each kind of sandbox, over core, driver, guest and container; 100 is the whole test")
	killSeed   = flag.Uint64("kill.seed", 0, "where TestKilled kills; 0 = somewhere else each time")
)

const killSteps = 30

// killStory is a run of 30 steps that change the workspace. A step that is made again finds what it did.
func killStory() string {
	var b strings.Builder
	line := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		b.Write(append(raw, '\n'))
	}
	line(map[string]any{"berth_transcript": 1})
	sh := func(cmd string) map[string]any {
		return map[string]any{"tool": "exec_command", "args": map[string]any{"cmd": cmd, "login": false, "yield_time_ms": 30000}}
	}
	// The shell does it alone: with programs the whole took half as long again.
	const has = `has() { while read -r l; do [ "$l" = "$1" ] && return; done < journal; } 2>/dev/null; `
	for i := 1; i <= killSteps; i++ {
		call := sh(has + fmt.Sprintf("has 'step %[1]d' || echo 'step %[1]d' >> journal; sleep 0.02; has 'step %[1]d' && echo done", i))
		if i%5 == 0 {
			call = sh(fmt.Sprintf("echo %[1]d > f%[1]d", i))
		}
		line(map[string]any{"calls": []any{call}})
	}
	line(map[string]any{"calls": []any{sh("cat journal | sort -V | tr '\\n' ' '; cat $(ls f* | sort -V) | tr '\\n' ' '")}})
	var want strings.Builder
	for i := 1; i <= killSteps; i++ {
		if i%5 != 0 {
			fmt.Fprintf(&want, "step %d ", i)
		}
	}
	for i := 5; i <= killSteps; i += 5 {
		fmt.Fprintf(&want, "%d ", i)
	}
	line(map[string]any{"expect": []string{"Output:\n" + want.String()}, "say": "all there"})
	return b.String()
}

// Core, driver, guest or container are killed at a random moment of a run. Resuming it, and making again what may have been
// made, comes to the same workspace and the same answer, and the log has the result of each call once. So many runs are
// killed at a time as tests may run at a time; those of one kind of sandbox share a store.
//
// The whole of it: go test ./core/cli -run TestKilled -kill.points=100 -parallel 8 -timeout 60m
func TestKilled(t *testing.T) {
	t.Run("unixlocal", func(t *testing.T) {
		testKilled(t, &place{t: t, dir: ramDir(t), berth: filepath.Join(programs(t), "berth")}, "unixlocal", *killPoints, []string{"core", "driver", "guest"})
	})
	t.Run("docker", func(t *testing.T) {
		// Containers take longer; each is killed once all the same.
		testKilled(t, withDocker(t, "", ""), "box", max(*killPoints, 4), []string{"container", "guest", "driver", "core"})
	})
}

func testKilled(t *testing.T, p *place, block string, points int, targets []string) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64() // it need not be secret
	}
	t.Logf("to kill at the same places: -kill.seed=%d -kill.points=%d", seed, points)
	random := rand.New(rand.NewPCG(seed, 0))
	p.write("t.jsonl", killStory())
	p.write("run.berth.hcl", strings.Replace(project, `  input = "go"`, "  input = \"go\"\n  max_turns = 100", 1))
	var asked atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d points, and %d times somebody was asked whether a call should be made again", points, asked.Load())
	})
	for i := range points {
		target := targets[(i+int(seed%uint64(len(targets))))%len(targets)]
		at := 1 + random.IntN(2*killSteps)
		t.Run(fmt.Sprintf("%03d-%s-at-%d", i, target, at), func(one *testing.T) {
			one.Parallel()
			if t.Failed() {
				one.Skip("another one failed")
			}
			mine := *p
			mine.t = one
			k := &killed{place: &mine, t: one, block: block, name: fmt.Sprintf("%s at event %d", target, at)}
			began := time.Now()
			k.start(target, at)
			killed := time.Since(began)
			asked.Add(int64(k.finish()))
			k.check()
			one.Logf("%s until its process had ended, %s with all that came after", killed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		})
	}
}

type killed struct {
	*place
	t           *testing.T
	block, name string
	id          string
	code        int
}

// start runs until the given number of tool calls began or ended, then kills.
func (k *killed) start(target string, at int) {
	k.t.Helper()
	cmd := k.command("run", "--json", "--sandbox", k.block, "--replay", "t.jsonl", ".")
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20)
	for seen := 0; sc.Scan(); {
		var ev struct {
			RunID string     `json:"run_id"`
			Type  event.Kind `json:"type"`
		}
		if err := json.Unmarshal(sc.Bytes(), &ev); err != nil {
			continue // the last line of a core that was killed
		}
		k.id = ev.RunID
		if ev.Type != event.KindToolStarted && ev.Type != event.KindToolFinished {
			continue
		}
		if seen++; seen == at {
			if pid := k.victim(cmd.Process.Pid, target); pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
	}
	_ = cmd.Wait() // it was killed, or says it with its code
	k.code = cmd.ProcessState.ExitCode()
	if k.id == "" {
		k.t.Fatalf("%s: the run did not start:\n%s", k.name, log.String())
	}
}

// finish resumes until the run is complete, and says how often somebody was asked.
func (k *killed) finish() (asked int) {
	k.t.Helper()
	var last []byte
	for range 5 {
		if k.code == 0 {
			return asked
		}
		cmd := k.command("resume", k.id)
		last, _ = cmd.CombinedOutput() // the code counts
		if k.code = cmd.ProcessState.ExitCode(); k.code == 5 {
			asked++
			if out, err := k.command("approve", "--all", k.id).CombinedOutput(); err != nil {
				k.t.Fatalf("%s: %v\n%s", k.name, err, out)
			}
		}
	}
	if k.code != 0 {
		k.t.Errorf("%s: the run was not completed:\n%s", k.name, last)
	}
	return asked
}

// check looks into the log: each call was settled once.
func (k *killed) check() {
	k.t.Helper()
	settled := map[string]int{}
	path := filepath.Join(k.dir, ".local", "state", "berth", "runs", k.id)
	for rec, err := range runlog.Read(path) {
		if err != nil {
			k.t.Fatalf("%s: %v", k.name, err)
		}
		var st struct {
			Settled []struct {
				CallID string `json:"call_id"`
				OK     bool   `json:"ok"`
			} `json:"settled"`
		}
		if rec.Type == stream.EntryType || json.Unmarshal(rec.Data, &st) != nil {
			continue
		}
		for _, c := range st.Settled {
			if settled[c.CallID]++; !c.OK {
				k.t.Errorf("%s: call %s failed", k.name, c.CallID)
			}
		}
	}
	for id, n := range settled {
		if n != 1 {
			k.t.Errorf("%s: call %s was settled %d times", k.name, id, n)
		}
	}
	if len(settled) != killSteps+1 {
		k.t.Errorf("%s: %d calls were settled, not %d", k.name, len(settled), killSteps+1)
	}
}

// victim finds the process to kill; 0 = it is killed already.
func (k *killed) victim(core int, target string) int {
	k.t.Helper()
	docker := func(args ...string) string {
		out, err := exec.CommandContext(k.t.Context(), "docker", args...).CombinedOutput()
		switch {
		case err == nil:
			return strings.TrimSpace(string(out))
		case strings.Contains(string(out), "No such") || strings.Contains(string(out), "is not running"):
			return "" // the run was faster, and over
		}
		k.t.Errorf("%s: docker %v: %v, %s", k.name, args, err, out)
		return ""
	}
	switch {
	case target == "core":
		return core
	case k.block == "box" && target != "driver":
		container := docker("ps", "--quiet", "--filter", "label=dev.berth.label.berth.run="+k.id)
		switch {
		case container == "": // likewise
			return 0
		case target == "container":
			docker("kill", container)
			return 0
		}
		pid, _ := strconv.Atoi(docker("inspect", "--format", "{{.State.Pid}}", container)) // 0 = it has ended
		return pid
	}
	for _, driver := range children(core) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", driver)); !strings.Contains(string(line), "berth-driver-") {
			continue
		}
		if target == "driver" {
			return driver
		}
		for _, pid := range children(driver) {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.Contains(string(name), "guest") {
				return pid
			}
		}
	}
	k.t.Errorf("%s: there is none", k.name)
	return 0
}

// children are the processes that any thread of a process started.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is fine
	var out []int
	for _, f := range files {
		b, _ := os.ReadFile(f) // a thread may have ended
		for word := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(word); err == nil {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}
