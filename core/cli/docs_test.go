// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var hclBlock = regexp.MustCompile("(?s)```hcl\n(.*?)```")

var command = regexp.MustCompile(`^[a-z]+$`)

// absent are the codes that say that a file of the project is not there: a snippet comes without its files. Drivers that
// these tests do not build are not there either; what stands around their config blocks is checked all the same.
var absent = regexp.MustCompile(`BERTH1804|BERTH1403.*no file exists|BERTH1501.*no driver named "(daytona|docker|e2b|modal)"`)

// notOfFiles are the findings of validate but for those.
func notOfFiles(short string) string {
	var out strings.Builder
	for line := range strings.Lines(short) {
		if !absent.MatchString(line) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// Every project in the READMEs and the guides is valid, and every command that they name exists.
func TestDocuments(t *testing.T) {
	berth := filepath.Join(programs(t), "berth")
	guides, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	drivers, err := filepath.Glob("../../plugins/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	snippets, commands := 0, 0
	for _, path := range slices.Concat(guides, drivers, []string{"../../README.md"}) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range hclBlock.FindAllSubmatch(text, -1) {
			snippets++
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.berth.hcl"), m[1], 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), berth, "fmt", "--check", dir).CombinedOutput(); err != nil {
				t.Errorf("%s: not formatted: %v\n%s%s", path, err, m[1], out)
			}
			out, err := exec.CommandContext(t.Context(), berth, "validate", "--output", "short", dir).CombinedOutput()
			if found := notOfFiles(string(out)); found != "" || err != nil && len(out) == 0 {
				t.Errorf("%s: not valid: %v\n%s%s", path, err, m[1], found)
			}
		}
		fenced := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			}
			if !fenced {
				continue
			}
			words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
			if len(words) < 2 || words[0] != "berth" || !command.MatchString(words[1]) || !strings.HasPrefix(line, "berth") && !strings.HasPrefix(line, "$") {
				continue
			}
			commands++
			args := []string{words[1]}
			if len(words) > 2 && regexp.MustCompile(`^(driver|config)$`).MatchString(words[1]) {
				args = append(args, words[2])
			}
			if out, err := exec.CommandContext(t.Context(), berth, append(args, "--help")...).CombinedOutput(); err != nil ||
				!strings.Contains(string(out), "berth "+strings.Join(args, " ")) {
				t.Errorf("%s: %s: there is no such command: %v", path, strings.TrimSpace(line), err)
			}
		}
	}
	if snippets < len(drivers) || len(drivers) == 0 || commands < 5 {
		t.Errorf("found %d snippets and %d commands", snippets, commands)
	}
}
