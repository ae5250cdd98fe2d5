// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is how often a lock that somebody holds is asked for again.
const lockPoll = 20 * time.Millisecond

var errLocked = errors.New("locked")

// Lock locks the folder. The kernel gives the lock back when the process ends, however it ends.
func (f *Folder) Lock(ctx context.Context, exclusive bool) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(f.dir, lockFile), os.O_CREATE|os.O_RDWR, f.perm&^0o111)
	if err != nil {
		return nil, err
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
