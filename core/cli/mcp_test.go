// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/npmtest"
)

// The MCP example works with the real servers, and its trace says which calls they answered.
func TestMCPExample(t *testing.T) {
	modules := npmtest.Servers(t)
	berth := filepath.Join(programs(t), "berth")
	const example = "../../examples/mcp"
	home := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"validate", "--strict", "--var", "modules=" + modules, example}, ""},
		{[]string{"run", "--var", "modules=" + modules, "--replay", example + "/transcript.jsonl", example}, "Grace works with Ada, who leads"},
		{[]string{"trace", "show", "--json"}, `"berth.mcp.server": "graph"`},
	} {
		cmd := exec.CommandContext(t.Context(), berth, c.args...)
		cmd.Env = append(cmd.Environ(), "HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("berth %s: %v\n%s", c.args[0], err, out)
		}
	}
}
