// SPDX-License-Identifier: Apache-2.0

// Package keep keeps in a driver's state directory what has to outlive its processes: the secret that it shares with the
// guests it starts, and what a vendor does not keep of a snapshot. It speaks to no vendor.
package keep

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Secret reads the secret of this installation, or makes it.
func Secret(dir string) ([]byte, error) {
	const op = "keep the keys of sandboxes"
	path := filepath.Join(dir, "secret")
	for range 2 {
		b, err := os.ReadFile(path)
		if err == nil && len(b) >= sha256.Size {
			return b, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errs.Wrap(errs.Internal, op, err)
		}
		b = make([]byte, sha256.Size)
		rand.Read(b)
		// Never over another's.
		if err := place(dir, path, b, os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, errs.Wrap(errs.Internal, op, err)
		}
	}
	return nil, errs.New(errs.Internal, "%s: %s holds no secret", op, path).
		WithHint("remove the file; sandboxes that run then lose their processes when they are resumed")
}

// place makes a file, whole or not at all.
func place(dir, path string, b []byte, name func(from, to string) error) error {
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = name(tmp.Name(), path)
	}
	_ = os.Remove(tmp.Name()) // the name is what counts
	return err
}

// Snapshots is a directory with a file for each snapshot that this installation took.
type Snapshots string

func (d Snapshots) file(id string) string {
	sum := sha256.Sum256([]byte(id)) // an id is the vendor's, and any text
	return filepath.Join(string(d), hex.EncodeToString(sum[:])+".json")
}

// Put keeps what was said of a snapshot when it was taken.
func (d Snapshots) Put(s driver.NativeSnapshot) error {
	const op = "keep the labels of a snapshot"
	b, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(string(d), 0o700)
	}
	if err == nil {
		err = place(string(d), d.file(s.ID), b, os.Rename)
	}
	return errs.Wrap(errs.Internal, op, err)
}

// Of gives what is kept of a snapshot. A snapshot that another installation took has its id and nothing else.
func (d Snapshots) Of(id string) driver.NativeSnapshot {
	var s driver.NativeSnapshot
	b, err := os.ReadFile(d.file(id))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil || s.ID != id {
		return driver.NativeSnapshot{ID: id}
	}
	return s
}

// All gives what is kept of every snapshot.
func (d Snapshots) All() ([]driver.NativeSnapshot, error) {
	const op = "list the snapshots that are kept"
	files, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.Wrap(errs.Internal, op, err)
	}
	var all []driver.NativeSnapshot
	for _, e := range files {
		if filepath.Ext(e.Name()) != ".json" {
			continue // it is being written
		}
		var s driver.NativeSnapshot
		f := filepath.Join(string(d), e.Name())
		b, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was forgotten just now
		}
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err != nil {
			return nil, errs.New(errs.Internal, "%s: %s: %v", op, f, err).WithHint("remove the file; the snapshot is then listed no more")
		}
		all = append(all, s)
	}
	return all, nil
}

// Forget removes what is kept of a snapshot.
func (d Snapshots) Forget(id string) error {
	if err := os.Remove(d.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.Wrap(errs.Internal, "forget a snapshot", err)
	}
	return nil
}

// Has says whether a snapshot has all of some labels.
func Has(s driver.NativeSnapshot, labels map[string]string) bool {
	for k, v := range labels {
		if have, there := s.Labels[k]; !there || have != v {
			return false
		}
	}
	return true
}
