// SPDX-License-Identifier: Apache-2.0

package execbox

import (
	"bytes"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
)

// What an engine says about a command that it could not start is told from what a command says, and nothing that a
// command says is held back for good.
func TestEnginesOwnWords(t *testing.T) {
	const ofPodman = "Error: /usr/sbin/runc: exec failed: unable to start container process: exec: \"x\": executable file not found in $PATH: OCI runtime\n"
	for name, c := range map[string]struct {
		says    func(byte, string) bool
		stream  byte
		parts   []string
		refusal bool
	}{
		"docker":                  {docker, 1, []string{"OCI runtime exec failed: exec failed", ": no such file\r\n"}, true},
		"podman":                  {podman, 2, []string{ofPodman, "Error: read unixpacket: connection reset\n"}, true},
		"a command under docker":  {docker, 1, []string{"it is OCI runtime exec failed"}, false},
		"a command under podman":  {podman, 2, []string{"Error: no such file\n", "more\n"}, false},
		"the other stream":        {podman, 1, []string{ofPodman}, false},
		"a long one under docker": {docker, 1, []string{"unable to find ", string(bytes.Repeat([]byte("x"), heldMax))}, false},
	} {
		var out, said bytes.Buffer
		o := newOutput(driver.Streams{Stdout: &out, Stderr: &said}, c.says)
		want := ""
		for _, p := range c.parts {
			want += p
			o.take(c.stream, []byte(p))
		}
		if got := o.refusal() != ""; got != c.refusal {
			t.Errorf("%s: held back: %v", name, got)
		}
		n, err := o.close()
		got := &out
		if c.stream == 2 {
			got = &said
		}
		if err != nil || int(n) != len(want) || got.String() != want || out.Len()+said.Len() != len(want) {
			t.Errorf("%s: %q and %q, %d, %v", name, out.String(), said.String(), n, err)
		}
	}
}
