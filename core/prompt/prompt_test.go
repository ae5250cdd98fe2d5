// SPDX-License-Identifier: Apache-2.0

package prompt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/prompt"
	"github.com/berth-dev/berth/sdk/driver"
)

func TestBuild(t *testing.T) {
	got := prompt.Build(prompt.Parts{
		Base: "Base.\n", Agent: "\nDo it.\n", Capabilities: []string{"Use a.", "Use b."},
		Sandbox: &prompt.Sandbox{
			Root: "/workspace", Cwd: "/workspace/app", Tree: "/workspace\n└── a.txt\n",
			Grants:    []prompt.Grant{{Path: "/data", ReadOnly: true, Description: "the data"}, {Path: "/out"}},
			Isolation: []driver.Isolation{{Axis: "kill", Statement: "cgroup.kill"}, {Axis: "network", Statement: "none"}},
		},
	})
	const want = `Base.

# Instructions

Do it.

# Tools

Use a.

Use b.

# Workspace

The workspace is /workspace. Commands start in /workspace/app, and relative paths start there.
At the start it holds:

` + "```\n/workspace\n└── a.txt\n```" + `

Outside it you may also use:

- /data (read only): the data
- /out (read and write)

Network: none.`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBuildLeavesOut(t *testing.T) {
	if got := prompt.Build(prompt.Parts{Agent: "Just this."}); got != "# Instructions\n\nJust this." {
		t.Errorf("%q", got)
	}
	if got := prompt.Build(prompt.Parts{}); got != "" {
		t.Errorf("%q", got)
	}
	got := prompt.Build(prompt.Parts{Sandbox: &prompt.Sandbox{Root: "/w"}})
	if got != "# Workspace\n\nThe workspace is /w. Commands start in /w, and relative paths start there." {
		t.Errorf("%q", got)
	}
}

// The base prompt is sent with every call: it stays short.
func TestBase(t *testing.T) {
	if n := len(prompt.Base); n == 0 || n > 4000 || strings.Contains(prompt.Base, "\r") {
		t.Errorf("%d bytes", n)
	}
}
