// SPDX-License-Identifier: Apache-2.0

package runlog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
)

// View reads a log that somebody else may be writing: it takes no lock and changes nothing. It is for one goroutine.
type View struct{ log Log }

// OpenView opens the log in a directory for reading.
func OpenView(dir string) (*View, error) {
	items, err := os.Open(filepath.Join(dir, itemsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run log: there is no run in %s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read run log: %w", err)
	}
	v := &View{log: Log{dir: dir, items: items, index: map[digest]place{}}}
	return v, v.reindex()
}

func (v *View) reindex() (err error) {
	v.log.stored, err = v.log.indexItems()
	return err
}

// Get gives an item.
func (v *View) Get(ref run.Ref) (model.Item, error) {
	var sum digest
	if n, err := hex.Decode(sum[:], []byte(ref.Hash)); err == nil && n == len(sum) {
		if _, ok := v.log.index[sum]; !ok { // it was written meanwhile
			if err := v.reindex(); err != nil {
				return model.Item{}, err
			}
		}
	}
	return v.log.Get(ref)
}

// Records gives what is complete in the log, see [Read].
func (v *View) Records() iter.Seq2[Record, error] { return Read(v.log.dir) }

// Close ends the view.
func (v *View) Close() error { return v.log.items.Close() }

// Live reports whether a process has the log in a directory open.
func Live(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close() // its lock goes with it
	return lock(f) != nil, nil
}
