// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/state/seal"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// bodyVersion is that of [Body]. One that is newer is refused; older ones stay readable, see testdata.
const bodyVersion = 1

// Body is what is sealed of a session.
type Body struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Driver  string `json:"driver"`
	From    From   `json:"from"`
	// State finds the sandbox; nil = whether there is one is not known.
	State *driver.State `json:"state,omitempty"`
	// Made is what it was made with; nil with State.
	Made *sandbox.Fixed `json:"made,omitempty"`
	// Next is the session that took its place; empty = none.
	Next string `json:"next,omitempty"`
	// Moved: somebody chose its sandbox block for it. Runs that have it take that block, whatever they name.
	Moved bool `json:"moved,omitempty"`
}

// From names the blocks of the project that a session was made of: what is not in a state is taken from them again.
type From struct {
	Sandbox  string `json:"sandbox,omitempty"`
	Manifest string `json:"manifest,omitempty"`
	Agent    string `json:"agent,omitempty"`
	Run      string `json:"run,omitempty"`
}

func purpose(id string) string { return "session " + id }

func (m *Manager) seal(b *Body) ([]byte, error) {
	b.Version = bodyVersion
	return m.Key.Seal(purpose(b.ID), b)
}

// body opens the sealed part of a record.
func (m *Manager) body(id string, sealed []byte) (*Body, error) {
	var b Body
	if err := m.Key.Open(purpose(id), sealed, &b); err != nil {
		return nil, err
	}
	return &b, checkBody(&b, id)
}

// Peek reads the sealed part of a record for showing it, without asking who wrote it.
func Peek(s *state.Session) (*Body, error) {
	var b Body
	if err := seal.Peek(purpose(s.ID), s.State, &b); err != nil {
		return nil, err
	}
	return &b, checkBody(&b, s.ID)
}

func checkBody(b *Body, id string) error {
	if b.Version > bodyVersion {
		return errs.New(errs.VersionMismatch, "the state of session %s has version %d, and this berth knows up to %d", id, b.Version, bodyVersion).
			WithHint("a newer berth has written it: use that one")
	}
	if b.ID != id {
		return errs.New(errs.ConfigInvalid, "the state of session %s is that of session %s", id, b.ID)
	}
	return nil
}

// stateFile is what a state_file holds: a sealed state, and whose it is.
type stateFile struct {
	Session string          `json:"session"`
	Sealed  json.RawMessage `json:"sealed"`
}

// readFile reads a state file; nil = there is none.
func readFile(path string) (*stateFile, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state_file: %w", err)
	}
	var f stateFile
	if err := json.Unmarshal(raw, &f); err != nil || f.Session == "" {
		return nil, errs.New(errs.ConfigInvalid, "state_file: %s does not hold the state of a session", path).
			WithHint("name another file, or remove this one")
	}
	return &f, nil
}

// writeFile writes it, whole or not at all.
func writeFile(path, id string, sealed []byte) error {
	raw, err := json.Marshal(stateFile{Session: id, Sealed: sealed})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-state-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("state_file: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("state_file: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// removeFile removes a state file whose session is gone, unless it is another's by now.
func removeFile(path, id string) error {
	f, err := readFile(path)
	if err != nil || f == nil || f.Session != id {
		return err
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("state_file: %w", err)
	}
	return nil
}
