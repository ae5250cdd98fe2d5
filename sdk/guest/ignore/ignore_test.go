// SPDX-License-Identifier: Apache-2.0

package ignore_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/ignore"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		patterns string // separated by blanks
		path     string // a slash at the end marks a directory
		want     bool
	}{
		{"*.o", "a.o", true},
		{"*.o", "x/y/a.o", true},
		{"*.o", "a.oo", false},
		{"/a", "a", true},
		{"/a", "x/a", false},
		{"a/b", "a/b", true},
		{"a/b", "x/a/b", false},
		{"build/", "build/", true},
		{"build/", "build", false},
		{"build/", "x/build/", true},
		{"**/b", "b", true},
		{"**/b", "x/y/b", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/x/y/c", false},
		{"a/**", "a/x", true},
		{"a/**", "a/", false},
		{"a/*/c", "a/b/c", true},
		{"a/*/c", "a/b/x/c", false},
		{"a?c", "abc", true},
		{"a?c", "a/c", false},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{"[!a-c]x", "dx", true},
		{"[]]x", "]x", true},
		{"[ab", "[ab", true},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`\!a`, "!a", true},
		{"*.log !keep.log", "x/keep.log", false},
		{"*.log !keep.log", "x/other.log", true},
		{"!keep.log *.log", "keep.log", true},
		{"#a", "#a", false},
		{"a*b*c*d", "axxbxxcxxd", true},
		{"a*b*c*d", "axxbxxcxx", false},
		{"\xff*", "\xffname", true},
	} {
		m, err := ignore.New(strings.Fields(c.patterns))
		if err != nil {
			t.Fatal(err)
		}
		path, dir := strings.CutSuffix(c.path, "/")
		if got := m.Match(path, dir); got != c.want {
			t.Errorf("%q against %q: %v", c.path, c.patterns, got)
		}
	}
}

func TestEmptyPattern(t *testing.T) {
	for _, p := range []string{"/", "!", "!/"} {
		if _, err := ignore.New([]string{p}); !errors.Is(err, errs.InvalidArgument) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

func TestHostilePatternIsBounded(t *testing.T) {
	m, err := ignore.New([]string{strings.Repeat("*a", 500) + "b", strings.Repeat("**/a/", 200) + "b"})
	if err != nil {
		t.Fatal(err)
	}
	// Backtracking would outlast the test's own deadline by far.
	if m.Match(strings.Repeat("a", 4000), false) || m.Match(strings.Repeat("a/", 2000)+"c", false) {
		t.Error("it matches")
	}
}

// FuzzAgainstGit asks git where it is installed.
func FuzzAgainstGit(f *testing.F) {
	for _, s := range [][2]string{
		{"*.o", "x/a.o"},
		{"a/**/b", "a/x/b"},
		{"/a", "a"},
		{"[a-c]*", "b1"},
		{"a*b*", "ab"},
		{"**/x", "x"},
		{`\a`, "a"},
		{"a/*", "a/b/c"},
		{"x**y", "xaay"},
	} {
		f.Add(s[0], s[1])
	}
	git, err := exec.LookPath("git")
	repo := f.TempDir()
	if err == nil {
		if out, e := exec.CommandContext(f.Context(), git, "init", "-q", "--template=", repo).CombinedOutput(); e != nil {
			f.Fatalf("git init: %s", out)
		}
		if e := os.MkdirAll(filepath.Join(repo, ".git", "info"), 0o700); e != nil {
			f.Fatal(e)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if pattern == "" || path == "" || strings.ContainsAny(pattern, "!#\n\x00 \t\r") || strings.ContainsAny(path, "\n\x00\"\\ \t\r") ||
			filepath.Clean(path) != path || strings.HasPrefix(path, "/") || strings.HasPrefix(path, ".") ||
			strings.Contains(path, ".git") || strings.Contains(pattern, "//") || strings.Contains(pattern, "[") || strings.HasSuffix(pattern, `\`) ||
			strings.Contains(path, "/.") || !asciiOnly(pattern+path) || len(pattern)+len(path) > 60 {
			t.Skip()
		}
		m, newErr := ignore.New([]string{pattern})
		if newErr != nil {
			t.Skip()
		}
		got := false
		for i := range len(path) + 1 {
			if i == len(path) || path[i] == '/' {
				got = got || m.Match(path[:i], i < len(path))
			}
		}
		if err != nil {
			return
		}
		if err := os.WriteFile(filepath.Join(repo, ".git", "info", "exclude"), []byte(pattern+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), git, "-C", repo, "check-ignore", "-q", "--no-index", "--", path)
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code > 1 {
			t.Skip("git refuses the path")
		}
		if want := err == nil; got != want {
			t.Errorf("pattern %q, path %q: we say %v, git says %v", pattern, path, got, want)
		}
	})
}

func asciiOnly(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
