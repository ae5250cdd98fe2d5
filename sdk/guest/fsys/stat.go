// SPDX-License-Identifier: Apache-2.0

package fsys

import (
	"context"
	"errors"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/ignore"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

// names remembers the names of one call.
type names struct {
	f             *FS
	users, groups map[uint32]string
}

func (f *FS) names() *names { return &names{f, map[uint32]string{}, map[uint32]string{}} }

func (n *names) user(uid uint32) string {
	s, ok := n.users[uid]
	if !ok {
		s = n.f.accounts.UserName(uid)
		n.users[uid] = s
	}
	return s
}

func (n *names) group(gid uint32) string {
	s, ok := n.groups[gid]
	if !ok {
		s = n.f.accounts.GroupName(gid)
		n.groups[gid] = s
	}
	return s
}

// info describes name in dir.
func (n *names) info(path string, dir int, name string, st *beneath.Stat) driver.FileInfo {
	fi := driver.FileInfo{
		Path: path, Type: st.Type(), Size: st.Size, Mode: st.Perm(), UID: st.UID, GID: st.GID, Nlink: st.Nlink,
		User: n.user(st.UID), Group: n.group(st.GID), ModTime: st.ModTime(), Version: st.Version(),
	}
	if st.IsLink() {
		fi.Target, _ = beneath.ReadLink(dir, name)
	}
	return fi
}

// Stat describes each path.
func (f *FS) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	out := make([]driver.StatResult, len(paths))
	n := f.names()
	err := f.as(opts.User, func() error {
		for i, path := range paths {
			if ctx.Err() != nil {
				return beneath.Done(ctx)
			}
			loc, err := f.find(path, opts.Follow)
			if err != nil {
				out[i].Err = beneath.Fail("files.stat", path, err)
				continue
			}
			out[i].Info = n.info(path, loc.Dir, loc.Name, &loc.Stat)
			loc.Close()
		}
		return nil
	})
	if err != nil {
		return nil, beneath.Fail("files.stat", "", err)
	}
	return out, nil
}

// List gives what is in a directory, or with Recursive below it: depth first, each directory in byte order, a directory
// before its content. Only the names of the directories on the way are held. A directory below the listed one that
// cannot be read is listed itself, without its content. Excluded directories are not entered. Mounts are.
func (f *FS) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		var err error
		if opts.User == "" {
			err = f.list(ctx, path, opts, func(fi driver.FileInfo) bool { return yield(fi, nil) })
		} else {
			err = f.listAs(ctx, path, opts, func(fi driver.FileInfo) bool { return yield(fi, nil) })
		}
		if err != nil && !errors.Is(err, beneath.Stop) {
			yield(driver.FileInfo{}, beneath.Fail("files.list", path, err))
		}
	}
}

// listAs lists on the user's thread and hands over in groups.
func (f *FS) listAs(ctx context.Context, path string, opts driver.ListOptions, yield func(driver.FileInfo) bool) error {
	const group = 128
	ch := make(chan []driver.FileInfo, 1)
	stop := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(ch)
		failed <- f.as(opts.User, func() error {
			var batch []driver.FileInfo
			send := func() bool {
				select {
				case ch <- batch:
					batch = nil
					return true
				case <-stop:
					return false
				}
			}
			err := f.list(ctx, path, opts, func(fi driver.FileInfo) bool {
				batch = append(batch, fi)
				return len(batch) < group || send()
			})
			if len(batch) > 0 && !send() {
				return beneath.Stop
			}
			return err
		})
	}()
	for batch := range ch {
		for _, fi := range batch {
			if !yield(fi) {
				close(stop)
				for range ch { // until the lister is gone
				}
				return beneath.Stop
			}
		}
	}
	return <-failed
}

func (f *FS) list(ctx context.Context, path string, opts driver.ListOptions, yield func(driver.FileInfo) bool) error {
	m, err := ignore.New(opts.Exclude)
	if err != nil {
		return err
	}
	loc, err := f.find(path, true)
	if err != nil {
		return err
	}
	defer loc.Close()
	if !loc.Stat.IsDir() {
		return errs.New(errs.NotDirectory, "is no directory")
	}
	dir, err := beneath.OpenDir(loc.Dir, loc.Name, false)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	n, count := f.names(), 0
	v := &beneath.Visitor{
		Sorted: true,
		Visit: func(dir int, e beneath.Entry, path string) error {
			var st beneath.Stat
			if err := beneath.StatAt(dir, e.Name, &st); err != nil {
				if errors.Is(err, unix.ENOENT) {
					return beneath.Skip
				}
				return err
			}
			if !yield(n.info(path, dir, e.Name, &st)) {
				return beneath.Stop
			}
			if count++; opts.Limit > 0 && count >= opts.Limit {
				return beneath.Stop
			}
			if !opts.Recursive {
				return beneath.Skip
			}
			return nil
		},
		Unreadable: func(int, string, string, error) error { return nil },
	}
	if !m.Empty() {
		v.Keep = func(dir int, e beneath.Entry, path string) bool {
			kind := e.Type()
			if kind == 0 {
				var st beneath.Stat
				if beneath.StatAt(dir, e.Name, &st) == nil {
					kind = st.Mode & unix.S_IFMT
				}
			}
			return !m.Match(path, kind == unix.S_IFDIR)
		}
	}
	if opts.Limit > 0 {
		v.Left = func() int { return opts.Limit - count }
	}
	return beneath.Walk(ctx, dir, v)
}
