// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// tooMuch is more than a small file system holds.
const tooMuch = 80 << 20

// fullDisk wants that a write for which there is no room says so, changes nothing and leaves nothing.
func fullDisk(c *kit.C) {
	box, dir := kit.Small(c)
	kept := path.Join(dir, "kept")
	kit.Put(c, box, kept, []byte("kept"))
	before := kit.Names(kit.List(c, box, dir, driver.ListOptions{}))
	for what, name := range map[string]string{"a new file": path.Join(dir, "new"), "a file that is there": kept} {
		_, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, bytes.NewReader(make([]byte, tooMuch)))
		c.Code(err, "write "+what+", for which there is no room", errs.NoSpace)
	}
	c.Same("a file that was to be replaced by one for which there is no room", kit.Get(c, box, kept), []byte("kept"))
	if after := kit.Names(kit.List(c, box, dir, driver.ListOptions{})); !slices.Equal(after, before) {
		c.Errorf("after writes for which there was no room the directory holds %q, and it held %q", after, before)
	}
	kit.Put(c, box, path.Join(dir, "after"), []byte("there is room again"))
}

// fullDiskAppend wants that an append for which there is no room says so too: it cannot change nothing.
func fullDiskAppend(c *kit.C) {
	box, dir := kit.Small(c)
	name := path.Join(dir, "log")
	kit.Put(c, box, name, []byte("first"))
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Append: true}, endless(c.Ctx(), tooMuch))
	c.Code(err, "append for which there is no room", errs.NoSpace)
	got, err := kit.Read(c.Ctx(), box, name, driver.ReadOptions{Length: 5})
	c.OK(err, "read")
	c.Same("the beginning of a file after an append for which there was no room", got, []byte("first"))
}

// endless gives zeros, not all of which are taken.
func endless(ctx context.Context, n int64) io.Reader {
	return io.LimitReader(readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, errors.Join(context.Cause(ctx))
		}
		clear(p)
		return len(p), nil
	}), n)
}

type readerFunc func([]byte) (int, error)

// Read calls it.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
