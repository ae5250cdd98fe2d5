// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockPoll is how often a lock that somebody holds is asked for again.
const lockPoll = 20 * time.Millisecond

var errLocked = errors.New("locked")

// Lock locks the folder. The kernel gives the lock back when the process ends, however it ends.
func (f *Folder) Lock(ctx context.Context, exclusive bool) (unlock func(), err error) {
	file, err := f.lockFile(exclusive)
	if file == nil {
		return func() {}, err
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		switch err := flock(file, exclusive); {
		case err == nil:
			return func() { _ = file.Close() }, nil // closing gives the lock back
		case !errors.Is(err, errLocked):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.dir, err), file.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s is being used by another process: %w", f.dir, context.Cause(ctx)), file.Close())
		}
	}
}

// lockFile opens what is locked. Whoever may only read the folder can keep a sweep away as long as there ever was a writer;
// else there is nothing to be swept.
func (f *Folder) lockFile(exclusive bool) (*os.File, error) {
	name := filepath.Join(f.dir, lockFile)
	err := f.mkdir(f.dir)
	if err == nil {
		var file *os.File
		if file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, f.perm&^0o111); err == nil {
			return file, nil
		}
	}
	if exclusive {
		return nil, err
	}
	file, rerr := os.Open(name)
	switch {
	case errors.Is(rerr, fs.ErrNotExist) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)):
		return nil, nil
	case rerr != nil:
		return nil, err
	}
	return file, nil
}
