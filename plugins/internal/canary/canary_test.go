// SPDX-License-Identifier: Apache-2.0

//go:build linux

package canary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What shows is seen, wherever it is.
func TestWatch(t *testing.T) {
	home := t.TempDir()
	var told []string
	w := &watch{home: home, secrets: forms(map[string]string{"ARG": "canary-of-arguments", "ENV": "canary-of-the-environment", "FILE": "canary-of-a-file"}), told: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(home, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	// It ends when it was seen.
	cmd := exec.Command("sh", "-c", `echo Y2FuYXJ5LW9mLWEtZmlsZQ > deep/f; until test -e seen; do sleep 0.02; done; true`, "canary-of-arguments")
	cmd.Dir, cmd.Env = home, append(os.Environ(), "X=canary-of-the-environment")
	w.tell = func(format string, args ...any) {
		told = append(told, fmt.Sprintf(format, args...))
		if len(told) >= 4 { // the content of the file is in the arguments too
			if err := os.WriteFile(filepath.Join(home, "seen"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if out, err := w.while(cmd); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"ARG is in the arguments of ", "ENV is in the environment of ", "FILE in base64 is in " + filepath.Join(home, "deep/f")} {
		if !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("it was not told that %s: %q", want, told)
		}
	}
}
