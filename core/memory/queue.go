// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
)

// Place is where a memory is: runs with one place find each other's.
type Place struct {
	Project string `json:"project,omitempty"` // directory
	Sandbox string `json:"sandbox,omitempty"` // label of the block
	Key     string `json:"key,omitempty"`     // of the session
	Layout  Layout `json:"layout"`
}

// Entry is a run that has something to remember and has not put it down yet.
type Entry struct {
	Run     string `json:"run"`
	Rollout string `json:"rollout"`
	Skip    int    `json:"skip,omitempty"` // items that its transcript began with
	Place   Place  `json:"place"`
}

// Queue is a directory on this machine with the runs that have not put down yet what they remember. A run is in it while
// it works; one whose process ended stays, until another run of the place takes it up.
type Queue struct{ Dir string }

func (q Queue) file(e Entry) (string, error) {
	place, err := json.Marshal(e.Place)
	sum := sha256.Sum256(place)
	return filepath.Join(q.Dir, fmt.Sprintf("%s-%x.json", e.Run, sum[:8])), err
}

// Put adds a run.
func (q Queue) Put(e Entry) error {
	name, err := q.file(e)
	if err != nil {
		return err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(q.Dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Drop removes a run.
func (q Queue) Drop(e Entry) error {
	name, err := q.file(e)
	if err != nil {
		return err
	}
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// left lists the runs of a place, the oldest first.
func (q Queue) left(p Place) ([]Entry, error) {
	names, err := filepath.Glob(filepath.Join(q.Dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range names {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody else took it up
		}
		if err != nil {
			return nil, err
		}
		var e Entry
		if err := json.Unmarshal(b, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if e.Place == p {
			all = append(all, e)
		}
	}
	return all, nil
}

// ReadPart reads from its log what a run gives to its rollout.
func ReadPart(runsDir string, e Entry) (Part, error) {
	p := Part{Rollout: e.Rollout, Run: e.Run}
	dir, err := runlog.Dir(runsDir, e.Run)
	if err != nil {
		return p, err
	}
	log, err := runlog.OpenView(dir)
	if err != nil {
		return p, err
	}
	defer log.Close() // it was only read
	if begun, err := history.Begun(log); err != nil || !begun {
		return p, err
	}
	h, err := history.Read(log)
	if err != nil {
		return p, err
	}
	p.State = h.State
	if p.Items, _, err = history.Own(log, e.Skip); err != nil {
		return p, err
	}
	if f := h.State.Final; f != nil && f.Item.Hash != "" {
		it, err := log.Get(f.Item)
		if err != nil {
			return p, err
		}
		p.Output = it.Text()
	}
	return p, nil
}

// TakeUp puts down what runs of a place left whose process ended, but for one run. It reports whether there was anything.
func (m *Memory) TakeUp(ctx context.Context, q Queue, runsDir string, place Place, but string) (bool, error) {
	entries, err := q.left(place)
	if err != nil {
		return false, err
	}
	some := false
	for _, e := range entries {
		if e.Run == but {
			continue
		}
		dir, err := runlog.Dir(runsDir, e.Run)
		if err != nil {
			return some, err
		}
		live, err := runlog.Live(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the run was removed, and what it was is not known any more
		case err != nil:
			return some, err
		case live:
			continue
		default:
			part, err := ReadPart(runsDir, e)
			if err != nil {
				return some, fmt.Errorf("run %s, whose memory was not written: %w", e.Run, err)
			}
			wrote, err := m.Capture(ctx, part)
			if err != nil {
				return some, err
			}
			some = some || wrote
		}
		if err := q.Drop(e); err != nil {
			return some, err
		}
	}
	return some, nil
}

// Locks let one at a time write a memory, within a process; other processes do not have the workspace's session.
type Locks struct{ all sync.Map }

// Lock waits for a memory, and gives what lets go of it.
func (l *Locks) Lock(key string) (unlock func()) {
	v, _ := l.all.LoadOrStore(key, &sync.Mutex{})
	mu, _ := v.(*sync.Mutex) // nothing else is stored
	mu.Lock()
	return mu.Unlock
}
