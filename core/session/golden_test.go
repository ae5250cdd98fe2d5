// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/state/seal"
	"github.com/berth-dev/berth/sdk/driver"
)

// The state that each version wrote stays readable. A new version adds a file; none is ever changed.
func TestOldStates(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := seal.Load(key)
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{Key: k}
	want := &Body{
		Version: 1, ID: "06h32f05awacemfhqvmkhnb9", Driver: "docker",
		From: From{Sandbox: "dev", Manifest: "repo", Agent: "coder"},
		State: &driver.State{
			Version: 3, Data: []byte(`{"container":"abc"}`), Display: map[string]string{"container": "abc"},
			Deadline: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		},
		Made: &sandbox.Fixed{
			Salt: []byte("0123456789abcdef"), Values: map[string]string{"image of config": `"python:3.14-slim"`},
			Seen: map[string]string{"environment variable TOKEN": "secret"},
		},
	}
	file := filepath.Join("testdata", "v1.json")
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.body(want.ID, bytes.TrimSpace(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	now, err := m.seal(want)
	if err != nil || !bytes.Equal(now, bytes.TrimSpace(golden)) {
		t.Errorf("the same state is written otherwise now, so it needs a new version: %s, %v", now, err)
	}
	peeked, err := Peek(&state.Session{ID: want.ID, State: golden})
	if err != nil || !cmp.Equal(peeked, want) {
		t.Errorf("%+v, %v", peeked, err)
	}
	if _, err := m.body("06h32f05awacemfhqvmkhnb8", golden); err == nil {
		t.Error("the state of one session was taken for another's")
	}
}
