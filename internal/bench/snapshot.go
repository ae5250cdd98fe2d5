// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/snapshot"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
)

// sessions are how many of one repository are saved.
const sessions = 20

// snapshotTime saves and restores 10,000 small files and 256 MiB, against tar and zstd on the same tree.
func snapshotTime(b *bench) error {
	src := filepath.Join(b.dir, "snapsrc")
	files, large := 10_000, 256
	if b.quick {
		files, large = 500, 8
	}
	for i := range files {
		dir := filepath.Join(src, fmt.Sprint("d", i/100))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), []byte(strings.Repeat(fmt.Sprintln("line", i), 100)), 0o600); err != nil {
			return err
		}
	}
	random, err := os.OpenFile(filepath.Join(src, "large"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(random, rand.Reader, int64(large)<<20); err != nil {
		return err
	}
	if err := random.Close(); err != nil {
		return err
	}
	s, err := b.open(&spec.Manifest{Root: spec.DefaultRoot, Entries: []spec.Entry{{
		Kind: spec.EntryLocalDir, Path: "t", LocalDir: &spec.LocalDirEntry{Source: src, Symlinks: "preserve", KeepModes: true},
	}}})
	if err != nil {
		return err
	}
	defer func() { _ = b.closeSession(s) }() // what was measured stands
	var repo *snapshot.Repo
	var rec *snapshot.Record
	n := 0
	fresh := func() error {
		n++
		repo, err = berth.OpenSnapshotFolder(b.ctx, filepath.Join(b.dir, fmt.Sprint("store", n)), false)
		return err
	}
	o := snapshot.TakeOptions{Path: s.Root(), Session: "bench", Versions: true}
	archive := filepath.Join(b.dir, "snap.tar.zst")
	peak := b.peak()
	first, floor, err := b.pairs(3, func() error {
		if err := fresh(); err != nil {
			return err
		}
		rec, _, err = repo.Take(b.ctx, s, o)
		return err
	}, func() error {
		return plainExec(b.ctx, os.Stderr, "sh", "-c", `tar -C "$1" -c . | zstd -q -f -1 -T0 -o "$2"`, "sh", src, archive)
	})
	if err != nil {
		return err
	}
	b.add(figure{name: "persist/unix-local", product: first, floor: floor, floorIs: "pack/tar|zstd -1 -T0", ratio: 1.3, note: peak()})
	again, _, err := b.pairs(5, func() error {
		n++
		if err := plainWrite(b, s, fmt.Sprint(n)); err != nil {
			return err
		}
		rec, _, err = repo.Take(b.ctx, s, o)
		return err
	}, nil)
	if err != nil {
		return err
	}
	b.add(figure{name: "persist_after_1_change/unix-local", product: again, most: 300, note: fmt.Sprintf("%d new bytes in the store (<= %d)", rec.Stored, 100<<10)})
	stored := make([]int64, 0, sessions)
	many, _, err := b.pairs(1, func() error {
		stored = stored[:0]
		for i := range sessions {
			saved, _, err := repo.Take(b.ctx, s, snapshot.TakeOptions{Path: s.Root() + "/t", Exclude: []string{"/large"}, Session: fmt.Sprint(i), Series: fmt.Sprint(i)})
			if err != nil {
				return err
			}
			stored = append(stored, saved.Stored)
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	b.add(figure{
		name: fmt.Sprintf("persist_%d_sessions/unix-local", sessions), product: many,
		note: fmt.Sprintf("the same %d files: at most %d bytes in the store for each", files, slices.Max(stored)),
	})
	out := filepath.Join(b.dir, "unpacked")
	peak = b.peak()
	back, unpack, err := b.pairs(3, func() error {
		_, err := repo.Restore(b.ctx, rec, s, snapshot.RestoreOptions{Path: s.Root()})
		return err
	}, func() error {
		return plainExec(b.ctx, os.Stderr, "sh", "-c", `rm -rf "$2"; mkdir "$2"; zstd -q -d -c "$1" | tar -C "$2" -x`, "sh", archive, out)
	})
	if err != nil {
		return err
	}
	b.add(figure{name: "hydrate/unix-local", product: back, floor: unpack, floorIs: "unpack/zstd -d|tar", ratio: 1.3, note: peak()})
	return nil
}

func plainWrite(b *bench, s interface {
	Root() string
	driver.FileSystem
}, text string,
) error {
	_, err := s.Write(b.ctx, s.Root()+"/t/d0/f0", driver.WriteOptions{}, strings.NewReader(text))
	return err
}
