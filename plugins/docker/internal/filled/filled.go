// SPDX-License-Identifier: Apache-2.0

// Package filled remembers which workspaces hold something of their owner's.
package filled

import (
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/sdk/errs"
)

// Dir is a directory with a file for each sandbox whose workspace holds something of its owner's: the state that the
// core has may be older than that.
type Dir string

func (d Dir) file(id string) string { return filepath.Join(string(d), filepath.Base(id)) }

// Has says whether a sandbox has such a file.
func (d Dir) Has(id string) bool {
	_, err := os.Stat(d.file(id))
	return err == nil
}

// Set makes it.
func (d Dir) Set(id string) error {
	err := os.MkdirAll(string(d), 0o700)
	if err == nil {
		err = os.WriteFile(d.file(id), nil, 0o600)
	}
	return errs.Wrap(errs.Internal, "remember that the workspace is filled", err)
}

// Forget is for a sandbox that is gone. What is left of it by accident is of no consequence: ids are not used again.
func (d Dir) Forget(id string) { _ = os.Remove(d.file(id)) }
