// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/runs"
)

// A run waits in one process, two others answer at once: one wins, the other is told, and the run goes on with that
// answer in its sandbox.
func TestDecisionsFromOtherProcesses(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	dir := writeProject(t, `{"berth_transcript": 1}
{"calls": [{"tool": "exec_command", "args": {"cmd": "echo done it"}}]}
{"say": "over"}
`)
	text := strings.Replace(project, "\n}", "\n\n  approvals {\n    default  = \"ask\"\n    keep_for = \"10m\"\n  }\n}", 1)
	if err := os.WriteFile(filepath.Join(dir, "main.berth.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), berth, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
		return cmd
	}
	run := command("run", "--replay", "t.jsonl")
	var out, log bytes.Buffer
	run.Stdout, run.Stderr = &out, &log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	var id string
	deadline := time.Now().Add(2 * time.Minute)
	for id == "" {
		if time.Now().After(deadline) {
			_ = run.Process.Kill()
			_ = run.Wait()
			t.Fatalf("no run waits for a decision:\n%s", log.String())
		}
		var all []runs.Summary
		b, err := command("runs", "list", "--json").Output()
		if err == nil && json.Unmarshal(b, &all) == nil && len(all) == 1 && all[0].Live && all[0].Waiting == 1 {
			id = all[0].ID
		}
	}
	if b, err := command("runs", "rm", id).CombinedOutput(); err == nil || !strings.Contains(string(b), "a process works on run") {
		t.Errorf("a live run was removed: %v, %s", err, b)
	}
	verbs := []string{"approve", "reject"}
	var said [2][]byte
	var fault [2]error
	var wg sync.WaitGroup
	for i, verb := range verbs {
		wg.Go(func() { said[i], fault[i] = command(verb, id).CombinedOutput() })
	}
	wg.Wait()
	if err := run.Wait(); err != nil {
		t.Fatalf("the run ended with %v:\n%s", err, log.String())
	}
	winner := 0
	if fault[0] != nil {
		winner = 1
	}
	if fault[winner] != nil || fault[1-winner] == nil {
		t.Fatalf("approve: %v, %s\nreject: %v, %s", fault[0], said[0], fault[1], said[1])
	}
	// The loser came second, or so late that nothing waited any more.
	if text := string(said[1-winner]); !strings.Contains(text, " already, by ") && !strings.Contains(text, "waits for a decision") {
		t.Errorf("the loser was told %s", text)
	}
	if got := strings.Contains(log.String(), "ok exit 0"); got != (winner == 0) || !strings.Contains(out.String(), "over") {
		t.Errorf("%s won, and the run says\n%s%s", verbs[winner], log.String(), out.String())
	}
}
