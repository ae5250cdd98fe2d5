// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/memory"
	"github.com/berth-dev/berth/core/spec"
)

// Every id has a name for files of its own, and most are that name.
func TestSafeID(t *testing.T) {
	good := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	names := map[string]string{}
	for _, id := range []string{
		"plain-1.2_x", "ada@example.com", "ada example.com", "a/b", "a b", "", ".", "..", "../x", "x.", "-x", strings.Repeat("x", 128), strings.Repeat("x", 129),
		"日本", "a\nb", memory.SafeID("a/b"),
	} {
		name := memory.SafeID(id)
		if !good.MatchString(name) || name != memory.SafeID(id) {
			t.Errorf("%q: %q", id, name)
		}
		if other, taken := names[name]; taken {
			t.Errorf("%q and %q are both %q", id, other, name)
		}
		names[name] = id
	}
	if got := memory.SafeID("plain-1.2_x"); got != "plain-1.2_x" {
		t.Errorf("%q", got)
	}
}

func TestLayout(t *testing.T) {
	want := memory.Layout{Memories: "memories", Sessions: "sessions"}
	if got := memory.LayoutOf(&spec.MemoryCapability{}); got != want {
		t.Errorf("%+v", got)
	}
	if got := memory.LayoutOf(&spec.MemoryCapability{MemoriesDir: "./a//b/", SessionsDir: "c"}); got != (memory.Layout{Memories: "a/b", Sessions: "c"}) {
		t.Errorf("%+v", got)
	}
}

func TestScrub(t *testing.T) {
	for _, secret := range []string{
		"sk-proj-abcdefghijklmnopqrstuvwx", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "AKIAABCDEFGHIJKLMNOP", "Bearer abcdefghijklmnopqrst",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
	} {
		if got := memory.Scrub("before " + secret + " after"); got != "before [redacted] after" {
			t.Errorf("%q", got)
		}
	}
	if got := memory.Scrub("the key is in 1Password, see basic rules"); strings.Contains(got, "[") {
		t.Errorf("%q", got)
	}
}

func FuzzSafeID(f *testing.F) {
	f.Add("ada@example.com / 1")
	good := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	f.Fuzz(func(t *testing.T, id string) {
		if name := memory.SafeID(id); !good.MatchString(name) {
			t.Errorf("%q: %q", id, name)
		}
	})
}
