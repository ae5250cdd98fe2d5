// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func writeMode(c *kit.C) {
	box := c.Box()
	for _, mode := range []uint32{0o600, 0o644, 0o755, 0o400, 0o777} {
		name := c.Word("f")
		_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Mode: mode}, strings.NewReader("x"))
		c.OK(err, "write with mode %04o", mode)
		if got := kit.Stat(c, box, name).Mode & 0o777; got != mode {
			c.Errorf("a file written with mode %04o has %04o", mode, got)
		}
	}
}

func writeKeepsMode(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Mode: 0o751}, strings.NewReader("x"))
	c.OK(err, "write")
	before := kit.Stat(c, box, name)
	kit.Put(c, box, name, []byte("y"))
	after := kit.Stat(c, box, name)
	if after.Mode != before.Mode || after.User != before.User || after.Group != before.Group {
		c.Errorf("a file that is replaced had mode %04o of %s:%s and has %04o of %s:%s",
			before.Mode, before.User, before.Group, after.Mode, after.User, after.Group)
	}
}

func writeTime(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{ModTime: kit.When}, strings.NewReader("x"))
	c.OK(err, "write")
	if got := kit.Stat(c, box, name).ModTime; !got.Equal(kit.When) {
		c.Errorf("a file written with the time %v has %v", kit.When, got)
	}
	kit.Put(c, box, name, []byte("y"))
	if got := kit.Stat(c, box, name).ModTime; got.Equal(kit.When) {
		c.Errorf("a file that is replaced keeps its time")
	}
}

func writeExclusive(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Exclusive: true}, strings.NewReader("first"))
	c.OK(err, "write what is not there")
	_, err = box.Write(c.Ctx(), name, driver.WriteOptions{Exclusive: true}, strings.NewReader("second"))
	c.Code(err, "write exclusively what is there", errs.FileExists)
	c.Same("the file", kit.Get(c, box, name), []byte("first"))
}

func writeExclusiveAtOnce(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	results := make([]error, 8)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			_, results[i] = box.Write(c.Ctx(), name, driver.WriteOptions{Exclusive: true}, bytes.NewReader(bytes.Repeat([]byte{byte('a' + i)}, 1000)))
		})
	}
	all.Wait()
	won := -1
	for i, err := range results {
		switch {
		case err != nil:
			c.Code(err, "one of eight exclusive writes at once", errs.FileExists)
		case won >= 0:
			c.Errorf("two of eight exclusive writes at once succeeded")
		default:
			won = i
		}
	}
	if won < 0 {
		c.Fatalf("none of eight exclusive writes at once succeeded")
	}
	c.Same("the file of the one that succeeded", kit.Get(c, box, name), bytes.Repeat([]byte{byte('a' + won)}, 1000))
}

func writeParents(c *kit.C) {
	box := c.Box()
	dir := c.Word("d")
	_, err := box.Write(c.Ctx(), dir+"/e/f/g", driver.WriteOptions{Parents: true}, strings.NewReader("deep"))
	c.OK(err, "write with parents")
	c.Same("it", kit.Get(c, box, dir+"/e/f/g"), []byte("deep"))
	if out := c.Exec(box, "test", "-d", dir+"/e/f"); out.Exit.Code != 0 {
		c.Errorf("a command does not see the directories")
	}
}

func writeNoParents(c *kit.C) {
	dir := c.Word("d")
	_, err := c.Box().Write(c.Ctx(), dir+"/e/f", driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write into a directory that is not there", errs.FileNotFound)
	kit.Absent(c, c.Box(), dir)
}

func writeAppend(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	for _, part := range []string{"one ", "two ", "three"} {
		r, err := box.Write(c.Ctx(), name, driver.WriteOptions{Append: true}, strings.NewReader(part))
		c.OK(err, "append")
		if r.SHA256 != sha256.Sum256([]byte(part)) {
			c.Errorf("the digest of an append is not that of what was appended")
		}
	}
	c.Same("three appends", kit.Get(c, box, name), []byte("one two three"))
}

func writeInPlace(c *kit.C) {
	box := c.Box()
	a, b := c.Word("a"), c.Word("b")
	kit.Put(c, box, a, []byte("old and long"))
	c.Sh(box, "ln "+a+" "+b)
	_, err := box.Write(c.Ctx(), a, driver.WriteOptions{InPlace: true}, strings.NewReader("new"))
	c.OK(err, "write in place")
	c.Same("the other name of a file that was written in place", kit.Get(c, box, b), []byte("new"))
	kit.Put(c, box, a, []byte("renamed over"))
	c.Same("the other name of a file that was replaced", kit.Get(c, box, b), []byte("new"))
}

func writeIfVersion(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	v := kit.Put(c, box, name, []byte("one")).Info.Version
	r, err := box.Write(c.Ctx(), name, driver.WriteOptions{IfVersion: v}, strings.NewReader("two, longer"))
	c.OK(err, "write over the version that is there")
	_, err = box.Write(c.Ctx(), name, driver.WriteOptions{IfVersion: v}, strings.NewReader("three"))
	c.Code(err, "write over a version that was replaced", errs.VersionMismatch)
	c.Same("the file", kit.Get(c, box, name), []byte("two, longer"))
	if got := kit.Stat(c, box, name).Version; got != r.Info.Version {
		c.Errorf("the write gave version %q, stat gives %q", r.Info.Version, got)
	}
}

func writeDirectory(c *kit.C) {
	box := c.Box()
	_, err := box.Write(c.Ctx(), c.Dir(box), driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write to a directory", errs.IsDirectory)
}

func writeAtomic(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	const size = 1 << 20
	a, b := bytes.Repeat([]byte{'a'}, size), bytes.Repeat([]byte{'b'}, size)
	kit.Put(c, box, name, a)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(stop)
		for i := range 12 {
			if _, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, bytes.NewReader([][]byte{b, a}[i%2])); err != nil {
				c.Errorf("write: %v", err)
			}
		}
	})
	for over := false; !over; {
		select {
		case <-stop:
			over = true
		default:
		}
		got := kit.Get(c, box, name)
		if !bytes.Equal(got, a) && !bytes.Equal(got, b) {
			c.Errorf("beside a write a reader got %d bytes that are neither the old nor the new ones", len(got))
			break
		}
	}
	all.Wait()
}

// broken is a source that ends with an error.
type broken struct {
	r   io.Reader
	err error
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

func writeFails(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/f", []byte("old"))
	for _, name := range []string{"/f", "/new"} {
		_, err := box.Write(c.Ctx(), dir+name, driver.WriteOptions{}, &broken{bytes.NewReader(kit.Pattern(3 << 20)), kit.ErrEnough})
		c.Code(err, "write from a source that fails", errs.Canceled)
	}
	c.Eventually("a write whose source failed leaves the old file and nothing else", func() bool {
		return slices.Equal(slices.Collect(maps.Keys(kit.List(c, box, dir, driver.ListOptions{}))), []string{"f"})
	})
	c.Same("the file", kit.Get(c, box, dir+"/f"), []byte("old"))
}

func writeGivenUp(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	kit.Put(c, box, dir+"/f", []byte("old"))
	ctx, cancel := context.WithCancelCause(c.Ctx())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := box.Write(ctx, dir+"/f", driver.WriteOptions{}, r)
		done <- err
	}()
	_, err := w.Write(kit.Pattern(2 << 20))
	c.OK(err, "send")
	cancel(kit.ErrEnough)
	c.OK(w.CloseWithError(kit.ErrEnough), "close")
	select {
	case err := <-done:
		c.Code(err, "a write that was given up", errs.Canceled)
	case <-c.Ctx().Done():
		c.Fatalf("a write goes on after its caller has gone")
	}
	c.Eventually("a write that was given up leaves the old file and nothing else", func() bool {
		return slices.Equal(slices.Collect(maps.Keys(kit.List(c, box, dir, driver.ListOptions{}))), []string{"f"})
	})
	c.Same("the file", kit.Get(c, box, dir+"/f"), []byte("old"))
}

func writeAtOnce(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			data := bytes.Repeat([]byte{byte(i)}, 10_000)
			name := fmt.Sprintf("%s/%d", dir, i)
			if _, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, bytes.NewReader(data)); err != nil {
				c.Errorf("write %d of 24 at once: %v", i, err)
				return
			}
			if got, err := kit.Read(c.Ctx(), box, name, driver.ReadOptions{}); err != nil || !bytes.Equal(got, data) {
				c.Errorf("read %d of 24 at once: %v, %d bytes", i, err, len(got))
			}
		})
	}
	all.Wait()
}

func writeLeavesNothing(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	for range 5 {
		kit.Put(c, box, dir+"/f", kit.Pattern(100_000))
	}
	if got := slices.Collect(maps.Keys(kit.List(c, box, dir, driver.ListOptions{}))); !slices.Equal(got, []string{"f"}) {
		c.Errorf("after five writes of one file the directory holds %q", got)
	}
}
