// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"context"
	"errors"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// maxRaces bounds how often an operation starts again because a name turned into a link.
const maxRaces = 16

// retry does fn again while a name is being swapped under it.
func retry(fn func() error) error {
	for range maxRaces {
		if err := fn(); !errors.Is(err, unix.ELOOP) {
			return err
		}
	}
	return errs.Wrap(errs.PathEscapes, "", errRace)
}

// Open reads a regular file.
func (f *FS) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	var (
		info driver.FileInfo
		file *os.File
	)
	err := beneath.Done(ctx)
	if err == nil {
		err = f.as(opts.User, func() error {
			return retry(func() (err error) {
				info, file, err = f.open(path, opts)
				return err
			})
		})
	}
	if err != nil {
		return driver.FileInfo{}, nil, beneath.Fail("files.read", path, err)
	}
	if opts.Length > 0 && opts.Length < math.MaxInt64 {
		return info, part{io.LimitReader(file, int64(opts.Length)), file}, nil
	}
	return info, file, nil
}

// part is a piece of a file.
type part struct {
	io.Reader
	io.Closer
}

func (f *FS) open(path string, opts driver.ReadOptions) (driver.FileInfo, *os.File, error) {
	loc, err := f.find(path, true)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	defer loc.Close()
	if err := regular(&loc.Stat); err != nil {
		return driver.FileInfo{}, nil, err
	}
	fd, st, err := openRegular(loc, unix.O_RDONLY)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	file := os.NewFile(uintptr(fd), path)
	if err = sameVersion(st, opts.IfVersion); err == nil && opts.Offset > 0 {
		_, err = file.Seek(int64(min(opts.Offset, math.MaxInt64)), io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return driver.FileInfo{}, nil, err
	}
	return f.names().info(path, -1, "", st), file, nil
}

// openRegular opens what loc names and looks again: it may be another file by now.
func openRegular(loc *beneath.Loc, flags int) (int, *beneath.Stat, error) {
	fd, err := beneath.OpenAt(loc.Dir, loc.Name, flags, 0)
	if err != nil {
		return -1, nil, err
	}
	st := &beneath.Stat{}
	if err = beneath.StatAt(fd, "", st); err == nil {
		err = regular(st)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, st, nil
}
