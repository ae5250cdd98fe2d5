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

// The MCP example works with the real servers.
func TestMCPExample(t *testing.T) {
	modules := npmtest.Servers(t)
	berth := filepath.Join(programs(t), "berth")
	const example = "../../examples/mcp"
	for _, args := range [][]string{
		{"validate", "--strict", "--var", "modules=" + modules, example},
		{"run", "--var", "modules=" + modules, "--replay", example + "/transcript.jsonl", example},
	} {
		cmd := exec.CommandContext(t.Context(), berth, args...)
		cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || args[0] == "run" && !strings.Contains(string(out), "Grace works with Ada, who leads") {
			t.Errorf("berth %s: %v\n%s", args[0], err, out)
		}
	}
}
