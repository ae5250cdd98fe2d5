// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/box"
	"github.com/berth-dev/berth/sdk/errs"
)

// secretIn reads the secret of this installation, or makes it.
func secretIn(dir string) ([]byte, error) {
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
	return nil, errs.New(errs.Internal, "%s: %s holds no secret", op, path).WithHint("remove the file; sandboxes that run then lose their processes when they are resumed")
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

// labels is a directory with a file for each snapshot that this installation took: its labels.
type labels string

func (l labels) file(name string) string {
	return filepath.Join(string(l), filepath.Base(name)+".json")
}

// put keeps the labels of a snapshot.
func (l labels) put(s *client.Snapshot, labels map[string]string) error {
	const op = "keep the labels of a snapshot"
	b, err := json.Marshal(labels)
	if err == nil {
		err = os.MkdirAll(string(l), 0o700)
	}
	if err == nil {
		err = place(string(l), l.file(s.Name), b, os.Rename)
	}
	return errs.Wrap(errs.Internal, op, err)
}

// of gives the labels of a snapshot, and says whether it is one of berth's.
func (l labels) of(s *client.Snapshot) (labels map[string]string, ours bool) {
	if !strings.HasPrefix(s.Name, box.SnapshotPrefix) {
		return nil, false
	}
	b, err := os.ReadFile(l.file(s.Name))
	if err == nil {
		err = json.Unmarshal(b, &labels)
	}
	if err != nil { // another installation's
		return nil, true
	}
	return labels, true
}

func (l labels) forget(name string) error {
	if err := os.Remove(l.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.Wrap(errs.Internal, "forget a snapshot", err)
	}
	return nil
}
