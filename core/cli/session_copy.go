// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"

	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/tree"
)

// noLimits are the bounds of a copy that a person asked for: those of the disks.
var noLimits = driver.TreeLimits{MaxInputBytes: math.MaxUint64, MaxExtractedBytes: math.MaxUint64, MaxMembers: math.MaxUint64}

// leftOut tells what a copy could not take.
func (a *app) leftOut(skipped []driver.Skipped) {
	for _, s := range skipped {
		fmt.Fprintf(a.Err, "left out: %s: %s\n", printable(s.Path), s.Reason)
	}
}

// copyTreeIn copies the directory from of this machine to a directory of the sandbox.
func (a *app) copyTreeIn(ctx context.Context, s *session.Session, from, to, owner string) error {
	dir, err := os.Open(from)
	if err != nil {
		return err
	}
	defer dir.Close() // it was only read
	var skipped []driver.Skipped
	err = sandbox.Pipe(
		func(w io.Writer) error {
			return tree.Export(ctx, int(dir.Fd()), "", w, tree.ExportOptions{Skipped: func(s driver.Skipped) { skipped = append(skipped, s) }})
		},
		func(r io.Reader) error {
			res, err := s.Import(ctx, driver.ImportOptions{Path: to, Owner: owner, Limits: noLimits}, r)
			skipped = append(skipped, res.Skipped...)
			return err
		})
	a.leftOut(skipped)
	return err
}

// copyTreeOut copies a directory of the sandbox to the directory to of this machine. The archive is the sandbox's word:
// it is unpacked as a hostile one.
func (a *app) copyTreeOut(ctx context.Context, s *session.Session, from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	dir, err := os.Open(to)
	if err != nil {
		return err
	}
	defer dir.Close() // what was written below it is written
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	return sandbox.Pipe(
		func(w io.Writer) error { return s.Export(ctx, driver.ExportOptions{Path: from}, w) },
		func(r io.Reader) error {
			res, err := tree.Import(ctx, int(dir.Fd()), r, tree.ImportOptions{Owner: &uid, Group: &gid, Limits: noLimits})
			a.leftOut(res.Skipped)
			return err
		})
}

// landing is the directory of the sandbox that a copy lands in; what is copied belongs to whom that belongs to.
func landing(ctx context.Context, s *session.Session, to string) (driver.FileInfo, error) {
	dir := path.Dir(path.Clean(to))
	info, found, err := statOne(ctx, s, dir)
	switch {
	case err != nil:
		return info, err
	case !found:
		return info, errs.New(errs.FileNotFound, "there is no directory %s in the sandbox", dir)
	case info.Type != driver.TypeDirectory:
		return info, errs.New(errs.NotDirectory, "%s in the sandbox is no directory", dir)
	}
	return info, nil
}

// statOne describes a file of the sandbox, if it is there.
func statOne(ctx context.Context, s *session.Session, name string) (driver.FileInfo, bool, error) {
	got, err := s.Stat(ctx, []string{name}, driver.StatOptions{Follow: true})
	switch {
	case err != nil:
		return driver.FileInfo{}, false, err
	case errors.Is(got[0].Err, errs.FileNotFound):
		return driver.FileInfo{}, false, nil
	}
	return got[0].Info, got[0].Err == nil, got[0].Err
}

type place struct{ session, path string }

// sessionPath takes SESSION:PATH apart. What begins with a dot or a slash is a path of this machine.
func sessionPath(arg string) (place, bool) {
	id, p, ok := strings.Cut(arg, ":")
	if !ok || id == "" || strings.ContainsAny(id, "./") {
		return place{path: arg}, false
	}
	if p == "" {
		p = "."
	}
	return place{id, p}, true
}
