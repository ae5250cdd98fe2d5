// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/berth-dev/berth/core/patch"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// tree is the sandbox's files as the patch engine sees them.
type tree struct{ *Filesystem }

func (t tree) Read(ctx context.Context, name string) (*patch.File, error) {
	p := t.path(name)
	link, err := t.stat(ctx, p)
	if err != nil {
		return nil, err
	}
	info, r, err := t.files.Open(ctx, p, driver.ReadOptions{User: t.cfg.User})
	if err != nil {
		return nil, foreign(err)
	}
	defer r.Close() // the content counts, and Read has told
	if info.Size > patch.MaxFileBytes {
		return nil, fmt.Errorf("the file has %d bytes, more than the %d that are patched", info.Size, patch.MaxFileBytes)
	}
	content, err := io.ReadAll(io.LimitReader(r, patch.MaxFileBytes+1))
	if err != nil {
		return nil, foreign(err)
	}
	// Replacing a link, or one of several names of a file, would cut it off from the others.
	inPlace := link.Type == driver.TypeSymlink || info.Nlink > 1
	return &patch.File{Content: content, Version: info.Version, InPlace: inPlace, Mode: info.Mode}, nil
}

func (t tree) stat(ctx context.Context, p string) (driver.FileInfo, error) {
	res, err := t.files.Stat(ctx, []string{p}, driver.StatOptions{User: t.cfg.User})
	if err != nil {
		return driver.FileInfo{}, foreign(err)
	}
	if res[0].Err != nil {
		return driver.FileInfo{}, foreign(res[0].Err)
	}
	return res[0].Info, nil
}

func (t tree) Write(ctx context.Context, name string, content []byte, old *patch.File) (string, error) {
	opts := driver.WriteOptions{User: t.cfg.User}
	if old == nil {
		opts.Exclusive, opts.Parents = true, true
	} else {
		opts.IfVersion, opts.InPlace = old.Version, old.InPlace
		if old.Version == "" {
			opts.Mode = old.Mode
		}
	}
	res, err := t.files.Write(ctx, t.path(name), opts, bytes.NewReader(content))
	return res.Info.Version, foreign(err)
}

func (t tree) Move(ctx context.Context, from, to string) error {
	if dir := path.Dir(t.path(to)); dir != "." && dir != "/" {
		if err := t.files.Mkdir(ctx, dir, 0o755, true, t.cfg.User); err != nil && !errors.Is(err, errs.FileExists) {
			return foreign(err)
		}
	}
	return foreign(t.files.Move(ctx, t.path(from), t.path(to), false, t.cfg.User))
}

func (t tree) Remove(ctx context.Context, name, version string) error {
	p := t.path(name)
	info, err := t.stat(ctx, p)
	if err != nil {
		return err
	}
	if info.Type != driver.TypeSymlink && info.Version != version {
		return patch.ErrChanged
	}
	return foreign(t.files.Remove(ctx, p, false, t.cfg.User))
}

// foreign gives the errors that the engine knows their names there.
func foreign(err error) error {
	switch {
	case errors.Is(err, errs.FileNotFound):
		return patch.ErrNotExist
	case errors.Is(err, errs.VersionMismatch):
		return patch.ErrChanged
	default:
		return err
	}
}
