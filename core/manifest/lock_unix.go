// SPDX-License-Identifier: Apache-2.0

//go:build unix

package manifest

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile holds a file locked, also against other processes, until the returned function is called.
func lockFile(ctx context.Context, name string) (func(), error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() { got <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-got:
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		return func() { _ = f.Close() }, nil
	case <-ctx.Done():
		go func() { // the wait cannot be broken off; its end closes the file
			<-got //nolint:errcheck // whoever asked has gone
			_ = f.Close()
		}()
		return nil, context.Cause(ctx)
	}
}
