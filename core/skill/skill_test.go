// SPDX-License-Identifier: Apache-2.0

//go:build linux

package skill_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/skill"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/internal/localtest"
)

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever the head looks like, the skill is offered, and what is wrong is said.
func TestHeads(t *testing.T) {
	for text, want := range map[string][]string{
		"---\nname: x\ndescription: Do x.\n---\nBody.\n":                                        {"x: Do x."},
		"---\r\nname: \"x\"\r\ndescription: >\r\n  Do x\r\n  well.\r\n---\r\nBody.\r\n":         {"x: Do x well."},
		"\uFEFF---\nname: x\ndescription: Do x.\nlicense: MIT\nmetadata:\n  a: b\n---\nBody.\n": {"x: Do x."},
		"---\nname: x\ndescription: Use when: you must.\n---\nBody.\n":                          {"x: Use when: you must.", "is no YAML"},
		"---\nname: y\ndescription: Do y.\n---\nBody.\n":                                        {"y: Do y.", `not that of the directory`},
		"---\nname: My Skill\ndescription: Do.\n---\nBody.\n":                                   {"My Skill: Do.", "not of the form"},
		"---\ndescription: Do.\n---\nBody.\n":                                                   {"x: Do.", "has no name"},
		"---\nname: x\n---\nBody.\n":                                                            {"x: no description", "has no description"},
		"Just text.\n":                                                                          {"x: no description", "no frontmatter", "no name", "no description"},
		"---\nname: x\ndescription: Do.\nBody without an end.\n":                                {"x: no description", "no frontmatter", "no name", "no description"},
		"---\nname: x\ndescription: Do.\n---\n":                                                 {"x: Do.", "says nothing"},
		"---\nname: x\ndescription: [1, 2]\nversion: 3\n---\nBody.\n":                           {"x: [1 2]", "version", "no text"},
		"---\nname: x\ndescription: " + strings.Repeat("é", 2000) + "\n---\nBody.\n":            {"x: " + strings.Repeat("é", 1023) + "…", "2000 characters"},
		"---\nname: x\ndescription: Do \xff.\n---\nBody.\n":                                     {"x: Do \uFFFD.", "not UTF-8"},
	} {
		dir := t.TempDir()
		write(t, dir, map[string]string{"x/SKILL.md": text})
		set, err := skill.Dir(t.Context(), dir)
		if err != nil || len(set.Skills) != 1 {
			t.Fatalf("%q: %+v, %v", text, set, err)
		}
		if got := set.Skills[0].Name + ": " + set.Skills[0].Description; got != want[0] {
			t.Errorf("%q: %q", text, got)
		}
		for _, w := range want[1:] {
			if !strings.Contains(fmt.Sprint(set.Findings), w) {
				t.Errorf("%q: %+v, want %q", text, set.Findings, w)
			}
		}
		if len(want) == 1 && len(set.Findings) > 0 {
			t.Errorf("%q: %+v", text, set.Findings)
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add("---\nname: x\ndescription: Do x.\n---\nBody.\n")
	f.Add("---\n: \n- [\n---")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"x/SKILL.md": text})
		set, err := skill.Dir(t.Context(), dir)
		if err != nil || len(set.Skills) != 1 || set.Skills[0].Name == "" || set.Skills[0].Description == "" {
			t.Errorf("%+v, %v", set, err)
		}
	})
}

const charts = "---\nname: charts\ndescription: Make charts.\n---\nRun scripts/draw.sh.\n"

var tree = map[string]string{
	"charts/SKILL.md": charts, "charts/scripts/draw.sh": "#!/bin/sh\necho drawn\n", "charts/references/colors.md": "red\n",
	"more/deep/SKILL.md": "---\nname: deep\ndescription: Go deep.\n---\nDig.\n", "more/deep/sub/SKILL.md": "part of deep", "README.md": "no skill",
}

func TestPlacesAndLoads(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree)
	if err := os.Symlink("charts", filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	local := &spec.Entry{Kind: spec.EntryLocalDir, LocalDir: &spec.LocalDirEntry{Source: dir, Symlinks: "skip", KeepModes: true}}
	git := t.TempDir()
	write(t, git, tree)
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = git
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	repo := &spec.Entry{Kind: spec.EntryGitRepo, GitRepo: &spec.GitRepoEntry{Host: "file://" + filepath.Dir(git), Repo: filepath.Base(git), Ref: "main"}}
	written := []spec.Skill{
		{Name: "charts", Description: "Make charts.", Content: "Run scripts/draw.sh.", Entries: []spec.Entry{
			{Kind: spec.EntryFile, Path: "scripts/draw.sh", File: &spec.FileEntry{Content: []byte("#!/bin/sh\necho drawn\n"), Executable: true}},
		}},
		{Name: "deep", Description: "Go deep.", Content: "Dig.", Deferred: true},
	}
	host := localtest.New(t, nil)
	for name, sc := range map[string]*spec.SkillsCapability{
		"from": {From: local}, "lazy": {LazyFrom: local}, "lazy repository": {LazyFrom: repo}, "repository": {From: repo}, "written": {Skills: written},
	} {
		t.Run(name, func(t *testing.T) {
			sc.Path = ".agents"
			set, err := skill.Open(t.Context(), sc, manifest.Options{CacheDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			if len(set.Skills) != 2 || set.Skills[0].Name != "charts" || set.Skills[1].Name != "deep" {
				t.Fatalf("%+v", set.Skills)
			}
			s := host.Open(t, sandbox.Config{})
			if err := set.Place(t.Context(), s, ""); err != nil {
				t.Fatal(err)
			}
			told := set.Instructions(s.Root())
			for _, sk := range set.Skills {
				have := localtest.Sh(t, s, "test -e "+sk.Path+"/SKILL.md && echo there || echo missing")
				where := "(/workspace/" + sk.Path + "/SKILL.md)"
				if sk.Lazy {
					where = "(load_skill)"
				}
				if (have == "there") == sk.Lazy || !strings.Contains(told, "- "+sk.Name+": "+sk.Description+" "+where) {
					t.Errorf("%s is %s, and it is told:\n%s", sk.Name, have, told)
				}
			}
			tools := set.Tools(s, "")
			if len(tools) == 1 {
				call := func(args string) tool.Result {
					res, err := tools[0].Call(t.Context(), tool.Call{Arguments: args})
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				for _, sk := range set.Skills {
					for i, want := range []string{`"status":"loaded"`, `"status":"already_loaded"`} {
						if i == 0 && !sk.Lazy {
							continue
						}
						if res := call(`{"skill_name":"` + sk.Name + `"}`); !strings.Contains(res.Text, want) || !strings.Contains(res.Text, sk.Description) {
							t.Errorf("%+v %+v", res, res.Error)
						}
					}
				}
				if res := call(`{"skill_name":"chart"}`); res.Error == nil || !strings.Contains(res.Error.Hint, "charts, deep") {
					t.Errorf("%+v", res)
				}
			}
			if got := localtest.Sh(t, s, ".agents/charts/scripts/draw.sh && cat .agents/*/SKILL.md .agents/more/deep/SKILL.md 2>/dev/null | grep -c description: || true"); !strings.HasPrefix(got, "drawn\n") {
				t.Errorf("%q", got)
			}
			// What is there already is left as it is.
			localtest.Sh(t, s, "echo mine > .agents/charts/SKILL.md")
			if err := set.Place(t.Context(), s, ""); err != nil || localtest.Sh(t, s, "cat .agents/charts/SKILL.md") != "mine" {
				t.Errorf("it was written over: %v", err)
			}
		})
	}
}

func TestTwins(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/SKILL.md": charts, "b/SKILL.md": charts})
	set, err := skill.Dir(t.Context(), dir)
	if err != nil || !strings.Contains(fmt.Sprint(set.Findings), `another skill has the name "charts"`) {
		t.Errorf("%+v, %v", set, err)
	}
}
