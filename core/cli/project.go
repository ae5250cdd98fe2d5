// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// hasProject reports whether a directory holds configuration.
func hasProject(dir string) bool {
	for _, p := range []string{"*.berth.hcl", "*.berth.json"} {
		if m, _ := filepath.Glob(filepath.Join(dir, p)); len(m) > 0 { // the pattern is fine
			return true
		}
	}
	return false
}

// scaffold is what init writes. A test runs it.
var scaffold = []struct{ name, content string }{
	{"main.berth.hcl", `# An agent with a computer of its own. Try:
#
#   berth run . "What is in the workspace, and what is the answer?"
#   berth run . --replay hello.transcript.jsonl     (without a model)
#   berth exec . -- ls -la                          (a command in the same sandbox)

manifest "workspace" {
  file "notes.md" {
    content = "# Notes\nThe answer is 42.\n"
  }
}

agent "helper" {
  instructions = "Answer from the files in the workspace and say which file you used."
  manifest     = manifest.workspace
}

run "default" {
  agent = agent.helper
  input = "What is in the workspace, and what is the answer?"
}
`},
	{"hello.transcript.jsonl", `{"berth_transcript": 1}
{"say": "I look at the workspace.", "calls": [{"tool": "exec_command", "args": {"cmd": "ls -la && cat notes.md", "yield_time_ms": 5000}}]}
{"expect": ["The answer is 42."], "say": "The workspace holds one file, notes.md. It says that the answer is 42 [notes.md]."}
`},
	{".gitignore", ".berth/\n"},
}

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first project, or lock an existing project's drivers",
		Long: `In a directory without a project it writes one that runs. In a project it finds the drivers that the files require
and writes their versions and hashes into .berth.lock.hcl; commit that file.`,
		Args: oneProject,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := a.Dir
			if len(args) == 1 {
				dir = a.path(args[0])
			}
			if hasProject(dir) {
				return a.lockProject(cmd.Context(), dir, nil)
			}
			shown := "."
			if len(args) == 1 {
				shown = args[0]
			}
			return a.writeScaffold(dir, shown)
		},
	}
}

// writeScaffold writes the files that are missing, and changes none. Shown is how the user calls the directory.
func (a *app) writeScaffold(dir, shown string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range scaffold {
		path := filepath.Join(dir, f.name)
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			fmt.Fprintln(a.Err, "left as it is:", path)
			continue
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(f.content)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		fmt.Fprintln(a.Out, "wrote", filepath.Join(shown, f.name))
	}
	fmt.Fprintf(a.Out, "\nTry:  berth run %s --replay %s\n", shown, filepath.Join(shown, "hello.transcript.jsonl"))
	return nil
}
