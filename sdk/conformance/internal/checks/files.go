// SPDX-License-Identifier: Apache-2.0
// Size: the checks of one group, each on its own.

package checks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func files() suite.Group {
	native, ranges, atomic := needs(driver.FilesNative), needs(driver.FilesRange), needs(driver.FilesAtomic)
	links, watch := needs(driver.FilesSymlinks), needs(driver.FilesWatch)
	ln := []string{"ln"}
	checks := []suite.Check{
		{Name: "write-and-read", Func: writeRead},
		{Name: "write-says-what-it-wrote", Func: writeResult},
		{Name: "sizes", Func: sizes},
		{Name: "64-MiB", Func: bigFile},
		{Name: "1-GB-sparse", Tools: []string{"sparse"}, Func: sparseFile},
		{Name: "seen-by-commands", Func: seenByCommands},
		{Name: "made-by-commands", Func: madeByCommands},
		{Name: "read-ranges", Proves: ranges, Func: readRanges},
		{Name: "read-past-the-end", Proves: ranges, Func: readPastEnd},
		{Name: "read-if-version", Func: readIfVersion},
		{Name: "read-given-up", Func: readGivenUp},
		{Name: "write-mode", Func: writeMode},
		{Name: "write-keeps-mode", Func: writeKeepsMode},
		{Name: "write-time", Func: writeTime},
		{Name: "write-exclusive", Func: writeExclusive},
		{Name: "write-exclusive-at-once", Func: writeExclusiveAtOnce},
		{Name: "write-parents", Func: writeParents},
		{Name: "write-without-parents", Func: writeNoParents},
		{Name: "write-append", Func: writeAppend},
		{Name: "write-in-place", Tools: []string{"hard"}, Func: writeInPlace},
		{Name: "write-if-version", Func: writeIfVersion},
		{Name: "write-to-a-directory", Func: writeDirectory},
		{Name: "write-is-atomic", Proves: atomic, Func: writeAtomic},
		{Name: "write-that-fails-changes-nothing", Proves: atomic, Func: writeFails},
		{Name: "write-given-up-changes-nothing", Proves: atomic, Func: writeGivenUp},
		{Name: "write-at-once", Func: writeAtOnce},
		{Name: "write-leaves-nothing-else", Proves: atomic, Func: writeLeavesNothing},
		{Name: "versions", Func: versions},
		{Name: "stat", Func: statFile},
		{Name: "stat-many", Func: statMany},
		{Name: "stat-missing", Func: statMissing},
		{Name: "kinds", Tools: []string{"ln", "mkfifo"}, Func: kinds},
		{Name: "no-regular-file", Tools: []string{"mkfifo"}, Func: noRegular},
		{Name: "missing", Func: missing},
		{Name: "file-as-directory", Func: fileAsDirectory},
		{Name: "list", Func: listDir},
		{Name: "list-recursive", Func: listRecursive},
		{Name: "list-exclude", Func: listExclude},
		{Name: "list-limit", Func: listLimit},
		{Name: "list-of-10000", Tools: []string{"loops"}, Func: listMany},
		{Name: "list-errors", Func: listErrors},
		{Name: "mkdir", Func: mkdirs},
		{Name: "mkdir-parents", Func: mkdirParents},
		{Name: "mkdir-errors", Func: mkdirErrors},
		{Name: "remove", Func: remove},
		{Name: "remove-tree", Func: removeTree},
		{Name: "remove-errors", Func: removeErrors},
		{Name: "remove-root", Func: removeRoot},
		{Name: "move", Func: move},
		{Name: "move-replace", Func: moveReplace},
		{Name: "move-errors", Func: moveErrors},
		{Name: "set-mode", Func: setMode},
		{Name: "set-mode-of-a-tree", Func: setModeTree},
		{Name: "set-time", Func: setTime},
		{Name: "names", Func: oddNames},
		{Name: "names-of-255-bytes", Func: longNames},
		{Name: "names-not-UTF-8", Needs: needs(driver.FilesRawNames), Func: rawNames},
		{Name: "names-differ-by-case", Func: caseNames},
		{Name: "names-with-NUL", Func: nulNames},
		{Name: "path-forms", Func: pathForms},
		{Name: "paths-that-escape", Func: escapes},
		{Name: "links-are-kept", Needs: links, Tools: ln, Func: linksKept},
		{Name: "links-inside", Needs: links, Tools: ln, Func: linksInside},
		{Name: "links-that-escape", Tools: ln, Func: linksEscape},
		{Name: "links-that-escape-by-a-directory", Tools: ln, Func: linksEscapeDirectory},
		{Name: "links-removed-and-moved", Tools: ln, Func: linksRemoved},
		{Name: "links-in-circles", Tools: ln, Func: linksLoop},
		{Name: "user", Needs: needs(driver.ProcUser, driver.FilesNative), Proves: native, Tools: []string{"id"}, Func: fileUser},
		{Name: "watch", Needs: watch, Func: watchFiles},
		{Name: "watch-recursive", Needs: watch, Func: watchRecursive},
		{Name: "watch-ends-with-caller", Needs: watch, Func: watchFilesEnds},
	}
	for i := range checks {
		if checks[i].Proves == nil && checks[i].Needs == nil {
			checks[i].Proves = native
		}
	}
	return suite.Group{Name: "files", Doc: "files are read and written whole, and never outside the workspace", Checks: checks}
}

func writeRead(c *C) {
	box := c.Box()
	name := c.Word("f")
	for _, data := range []string{"first\n", "the second is longer\n", "3"} {
		put(c, box, name, []byte(data))
		c.Same("what was written last", get(c, box, name), []byte(data))
	}
}

func writeResult(c *C) {
	box := c.Box()
	data := pattern(100_000)
	r := put(c, box, c.Word("f"), data)
	if r.SHA256 != sha256.Sum256(data) {
		c.Errorf("the digest of what was written is another")
	}
	if r.Info.Size != uint64(len(data)) || r.Info.Type != driver.TypeRegular || r.Info.Mode&0o777 != 0o644 {
		c.Errorf("the file as written: %+v", r.Info)
	}
}

func sizes(c *C) {
	box := c.Box()
	name := c.Word("f")
	const k, m = 1 << 10, 1 << 20
	for _, n := range []int{0, 1, 4*k - 1, 4 * k, 32*k - 1, 32 * k, 32*k + 1, m - 65, m - 64, m - 63, m, m + 64, 3*m + 7} {
		data := pattern(n)
		put(c, box, name, data)
		c.Same(fmt.Sprintf("a file of %d bytes", n), get(c, box, name), data)
		if got := stat(c, box, name).Size; got != uint64(n) {
			c.Errorf("stat of a file of %d bytes says %d", n, got)
		}
	}
}

func bigFile(c *C) {
	box := c.Box()
	name := c.Word("big")
	block := pattern(1 << 20)
	h := sha256.New()
	r, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, io.TeeReader(io.LimitReader(&repeat{block: block}, 64<<20), h))
	c.OK(err, "write 64 MiB")
	if !bytes.Equal(r.SHA256[:], h.Sum(nil)) {
		c.Errorf("the digest of 64 MiB is another")
	}
	_, rd, err := box.Open(c.Ctx(), name, driver.ReadOptions{})
	c.OK(err, "open")
	back := sha256.New()
	n, err := io.Copy(back, rd)
	c.OK(errors.Join(err, rd.Close()), "read 64 MiB")
	if n != 64<<20 || !bytes.Equal(back.Sum(nil), h.Sum(nil)) {
		c.Errorf("of 64 MiB %d bytes came back, or others", n)
	}
	c.OK(box.Remove(c.Ctx(), name, false, ""), "remove")
}

// repeat reads a block over and over.
type repeat struct {
	block []byte
	at    int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.block[r.at:])
	r.at = (r.at + n) % len(r.block)
	return n, nil
}

func sparseFile(c *C) {
	box := c.Box()
	name := c.Word("sparse")
	const size = 1_000_000_000
	c.Sh(box, fmt.Sprintf("printf end | dd of=%s bs=1 seek=%d 2>/dev/null", name, size-3))
	if got := stat(c, box, name).Size; got != size {
		c.Errorf("stat of a file of 1 GB says %d", got)
	}
	b, err := read(c.Ctx(), box, name, driver.ReadOptions{Offset: size - 8})
	c.OK(err, "read the end of 1 GB")
	c.Same("the end of 1 GB", b, []byte("\x00\x00\x00\x00\x00end"))
	c.OK(box.Remove(c.Ctx(), name, false, ""), "remove")
}

func seenByCommands(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, []byte("written"))
	if got := c.Sh(box, "cat "+name); got != "written" {
		c.Errorf("a command reads %q", got)
	}
	c.Sh(box, "echo ' and more' >> "+name)
	c.Same("a file that a command added to", get(c, box, name), []byte("written and more\n"))
}

func madeByCommands(c *C) {
	box := c.Box()
	name := c.Word("f")
	c.Sh(box, "mkdir "+name+"; echo made > "+name+"/f")
	c.Same("a file that a command made", get(c, box, name+"/f"), []byte("made\n"))
	put(c, box, name+"/f", []byte("changed"))
	c.OK(box.Remove(c.Ctx(), name, true, ""), "remove what a command made")
	if out := c.Exec(box, "test", "-e", name); out.Exit.Code == 0 {
		c.Errorf("a command still sees what was removed")
	}
}

func readRanges(c *C) {
	box := c.Box()
	name := c.Word("f")
	data := pattern(3 << 20)
	put(c, box, name, data)
	for _, r := range [][2]int{{0, 1}, {0, len(data)}, {1, 0}, {17, 4096}, {1 << 20, 1 << 20}, {1<<20 - 1, 2}, {len(data) - 1, 1}, {len(data) - 5, 100}} {
		want := data[r[0]:]
		if r[1] > 0 {
			want = want[:min(len(want), r[1])]
		}
		got, err := read(c.Ctx(), box, name, driver.ReadOptions{Offset: uint64(r[0]), Length: uint64(r[1])})
		c.OK(err, "read %d bytes from %d", r[1], r[0])
		c.Same(fmt.Sprintf("%d bytes from %d", r[1], r[0]), got, want)
	}
}

func readPastEnd(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, []byte("short"))
	for _, offset := range []uint64{5, 6, 1 << 40} {
		got, err := read(c.Ctx(), box, name, driver.ReadOptions{Offset: offset})
		if err != nil {
			c.Errorf("read from %d of 5 bytes: %v, want nothing", offset, err)
		} else if len(got) > 0 {
			c.Errorf("read from %d of 5 bytes gives %q", offset, got)
		}
	}
}

func readIfVersion(c *C) {
	box := c.Box()
	name := c.Word("f")
	v := put(c, box, name, []byte("one")).Info.Version
	if v == "" {
		c.Fatalf("a file has no version")
	}
	got, err := read(c.Ctx(), box, name, driver.ReadOptions{IfVersion: v})
	c.OK(err, "read the version that was written")
	c.Same("it", got, []byte("one"))
	put(c, box, name, []byte("two, longer"))
	_, err = read(c.Ctx(), box, name, driver.ReadOptions{IfVersion: v})
	c.Code(err, "read a version that was replaced", errs.VersionMismatch)
}

func readGivenUp(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, pattern(4<<20))
	for range 20 {
		_, r, err := box.Open(c.Ctx(), name, driver.ReadOptions{})
		c.OK(err, "open")
		_, err = io.ReadFull(r, make([]byte, 10))
		c.OK(errors.Join(err, r.Close()), "read a little")
	}
	c.Same("after twenty readers that gave up", get(c, box, name), pattern(4<<20))
}

func writeMode(c *C) {
	box := c.Box()
	for _, mode := range []uint32{0o600, 0o644, 0o755, 0o400, 0o777} {
		name := c.Word("f")
		_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Mode: mode}, strings.NewReader("x"))
		c.OK(err, "write with mode %04o", mode)
		if got := stat(c, box, name).Mode & 0o777; got != mode {
			c.Errorf("a file written with mode %04o has %04o", mode, got)
		}
	}
}

func writeKeepsMode(c *C) {
	box := c.Box()
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Mode: 0o751}, strings.NewReader("x"))
	c.OK(err, "write")
	before := stat(c, box, name)
	put(c, box, name, []byte("y"))
	after := stat(c, box, name)
	if after.Mode != before.Mode || after.User != before.User || after.Group != before.Group {
		c.Errorf("a file that is replaced had mode %04o of %s:%s and has %04o of %s:%s",
			before.Mode, before.User, before.Group, after.Mode, after.User, after.Group)
	}
}

// when is a time that every file system can hold.
var when = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

func writeTime(c *C) {
	box := c.Box()
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{ModTime: when}, strings.NewReader("x"))
	c.OK(err, "write")
	if got := stat(c, box, name).ModTime; !got.Equal(when) {
		c.Errorf("a file written with the time %v has %v", when, got)
	}
	put(c, box, name, []byte("y"))
	if got := stat(c, box, name).ModTime; got.Equal(when) {
		c.Errorf("a file that is replaced keeps its time")
	}
}

func writeExclusive(c *C) {
	box := c.Box()
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{Exclusive: true}, strings.NewReader("first"))
	c.OK(err, "write what is not there")
	_, err = box.Write(c.Ctx(), name, driver.WriteOptions{Exclusive: true}, strings.NewReader("second"))
	c.Code(err, "write exclusively what is there", errs.FileExists)
	c.Same("the file", get(c, box, name), []byte("first"))
}

func writeExclusiveAtOnce(c *C) {
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
	c.Same("the file of the one that succeeded", get(c, box, name), bytes.Repeat([]byte{byte('a' + won)}, 1000))
}

func writeParents(c *C) {
	box := c.Box()
	dir := c.Word("d")
	_, err := box.Write(c.Ctx(), dir+"/e/f/g", driver.WriteOptions{Parents: true}, strings.NewReader("deep"))
	c.OK(err, "write with parents")
	c.Same("it", get(c, box, dir+"/e/f/g"), []byte("deep"))
	if out := c.Exec(box, "test", "-d", dir+"/e/f"); out.Exit.Code != 0 {
		c.Errorf("a command does not see the directories")
	}
}

func writeNoParents(c *C) {
	dir := c.Word("d")
	_, err := c.Box().Write(c.Ctx(), dir+"/e/f", driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write into a directory that is not there", errs.FileNotFound)
	absent(c, c.Box(), dir)
}

func writeAppend(c *C) {
	box := c.Box()
	name := c.Word("f")
	for _, part := range []string{"one ", "two ", "three"} {
		r, err := box.Write(c.Ctx(), name, driver.WriteOptions{Append: true}, strings.NewReader(part))
		c.OK(err, "append")
		if r.SHA256 != sha256.Sum256([]byte(part)) {
			c.Errorf("the digest of an append is not that of what was appended")
		}
	}
	c.Same("three appends", get(c, box, name), []byte("one two three"))
}

func writeInPlace(c *C) {
	box := c.Box()
	a, b := c.Word("a"), c.Word("b")
	put(c, box, a, []byte("old and long"))
	c.Sh(box, "ln "+a+" "+b)
	_, err := box.Write(c.Ctx(), a, driver.WriteOptions{InPlace: true}, strings.NewReader("new"))
	c.OK(err, "write in place")
	c.Same("the other name of a file that was written in place", get(c, box, b), []byte("new"))
	put(c, box, a, []byte("renamed over"))
	c.Same("the other name of a file that was replaced", get(c, box, b), []byte("new"))
}

func writeIfVersion(c *C) {
	box := c.Box()
	name := c.Word("f")
	v := put(c, box, name, []byte("one")).Info.Version
	r, err := box.Write(c.Ctx(), name, driver.WriteOptions{IfVersion: v}, strings.NewReader("two, longer"))
	c.OK(err, "write over the version that is there")
	_, err = box.Write(c.Ctx(), name, driver.WriteOptions{IfVersion: v}, strings.NewReader("three"))
	c.Code(err, "write over a version that was replaced", errs.VersionMismatch)
	c.Same("the file", get(c, box, name), []byte("two, longer"))
	if got := stat(c, box, name).Version; got != r.Info.Version {
		c.Errorf("the write gave version %q, stat gives %q", r.Info.Version, got)
	}
}

func writeDirectory(c *C) {
	box := c.Box()
	_, err := box.Write(c.Ctx(), c.Dir(box), driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write to a directory", errs.IsDirectory)
}

func writeAtomic(c *C) {
	box := c.Box()
	name := c.Word("f")
	const size = 1 << 20
	a, b := bytes.Repeat([]byte{'a'}, size), bytes.Repeat([]byte{'b'}, size)
	put(c, box, name, a)
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
		got := get(c, box, name)
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

func writeFails(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/f", []byte("old"))
	for _, name := range []string{"/f", "/new"} {
		_, err := box.Write(c.Ctx(), dir+name, driver.WriteOptions{}, &broken{bytes.NewReader(pattern(3 << 20)), errEnough})
		c.Code(err, "write from a source that fails", errs.Canceled)
	}
	c.Eventually("a write whose source failed leaves the old file and nothing else", func() bool {
		return slices.Equal(slices.Collect(maps.Keys(list(c, box, dir, driver.ListOptions{}))), []string{"f"})
	})
	c.Same("the file", get(c, box, dir+"/f"), []byte("old"))
}

func writeGivenUp(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/f", []byte("old"))
	ctx, cancel := context.WithCancelCause(c.Ctx())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := box.Write(ctx, dir+"/f", driver.WriteOptions{}, r)
		done <- err
	}()
	_, err := w.Write(pattern(2 << 20))
	c.OK(err, "send")
	cancel(errEnough)
	c.OK(w.CloseWithError(errEnough), "close")
	select {
	case err := <-done:
		c.Code(err, "a write that was given up", errs.Canceled)
	case <-c.Ctx().Done():
		c.Fatalf("a write goes on after its caller has gone")
	}
	c.Eventually("a write that was given up leaves the old file and nothing else", func() bool {
		return slices.Equal(slices.Collect(maps.Keys(list(c, box, dir, driver.ListOptions{}))), []string{"f"})
	})
	c.Same("the file", get(c, box, dir+"/f"), []byte("old"))
}

func writeAtOnce(c *C) {
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
			if got, err := read(c.Ctx(), box, name, driver.ReadOptions{}); err != nil || !bytes.Equal(got, data) {
				c.Errorf("read %d of 24 at once: %v, %d bytes", i, err, len(got))
			}
		})
	}
	all.Wait()
}

func writeLeavesNothing(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	for range 5 {
		put(c, box, dir+"/f", pattern(100_000))
	}
	if got := slices.Collect(maps.Keys(list(c, box, dir, driver.ListOptions{}))); !slices.Equal(got, []string{"f"}) {
		c.Errorf("after five writes of one file the directory holds %q", got)
	}
}

func versions(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, []byte("same length 1"))
	one := stat(c, box, name).Version
	if again := stat(c, box, name).Version; again != one {
		c.Errorf("the version of a file that nobody changes goes from %q to %q", one, again)
	}
	get(c, box, name)
	if again := stat(c, box, name).Version; again != one {
		c.Errorf("reading a file changes its version")
	}
	put(c, box, name, []byte("same length 2"))
	two := stat(c, box, name).Version
	if two == one {
		c.Errorf("a write does not change the version")
	}
	c.Sh(box, "printf 'same length 3' > "+name)
	if three := stat(c, box, name).Version; three == two {
		c.Errorf("what a command writes does not change the version")
	}
}

func statFile(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, []byte("12345"))
	info := stat(c, box, name)
	if info.Path != name || info.Type != driver.TypeRegular || info.Size != 5 || info.User == "" || info.Group == "" || time.Since(info.ModTime).Abs() > hour {
		c.Errorf("stat of a new file of 5 bytes: %+v", info)
	}
	if info := stat(c, box, "."); info.Type != driver.TypeDirectory {
		c.Errorf("stat of the workspace: %+v", info)
	}
}

func statMany(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	var paths []string
	for i := range 300 {
		paths = append(paths, fmt.Sprintf("%s/%d", dir, i))
	}
	put(c, box, paths[7], []byte("7"))
	put(c, box, paths[299], []byte("299"))
	rs, err := box.Stat(c.Ctx(), paths, driver.StatOptions{})
	c.OK(err, "stat 300 paths")
	if len(rs) != len(paths) {
		c.Fatalf("%d answers for %d paths", len(rs), len(paths))
	}
	for i, r := range rs {
		switch {
		case i == 7 || i == 299:
			if r.Err != nil || r.Info.Path != paths[i] {
				c.Errorf("answer %d: %+v", i, r)
			}
		case errs.CodeOf(r.Err) != errs.FileNotFound:
			c.Errorf("answer %d for a file that is not there: %v", i, r.Err)
		}
	}
}

func statMissing(c *C) { absent(c, c.Box(), c.Word("none")) }

func kinds(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+" && echo > file && mkdir dir && mkfifo fifo && ln -s file link && ln -s nowhere dangling")
	all := list(c, box, dir, driver.ListOptions{})
	for name, want := range map[string]driver.FileType{
		"file": driver.TypeRegular, "dir": driver.TypeDirectory, "fifo": driver.TypeFIFO, "link": driver.TypeSymlink, "dangling": driver.TypeSymlink,
	} {
		if got := stat(c, box, dir+"/"+name); got.Type != want {
			c.Errorf("stat of the %s: type %v, want %v", name, got.Type, want)
		}
		if all[name].Type != want {
			c.Errorf("the %s in a listing: type %v, want %v", name, all[name].Type, want)
		}
	}
	if got := stat(c, box, dir+"/link").Target; got != "file" {
		c.Errorf("the target of a link to file is %q", got)
	}
	if info, err := statErr(c, box, dir+"/link", true); err != nil || info.Type != driver.TypeRegular {
		c.Errorf("stat that follows a link: %v, %v", info.Type, err)
	}
	_, err := statErr(c, box, dir+"/dangling", true)
	c.Code(err, "stat that follows a dangling link", errs.FileNotFound)
}

func noRegular(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "mkfifo "+dir+"/fifo")
	_, err := read(c.Ctx(), box, dir+"/fifo", driver.ReadOptions{})
	c.Code(err, "read a FIFO", errs.NotRegular)
	_, err = read(c.Ctx(), box, dir, driver.ReadOptions{})
	c.Code(err, "read a directory", errs.IsDirectory)
}

func missing(c *C) {
	box := c.Box()
	_, err := read(c.Ctx(), box, c.Word("none"), driver.ReadOptions{})
	c.Code(err, "read a file that is not there", errs.FileNotFound)
	mode := uint32(0o600)
	c.Code(box.SetMeta(c.Ctx(), c.Word("none"), driver.MetaChange{Mode: &mode}), "set the mode of a file that is not there", errs.FileNotFound)
}

func fileAsDirectory(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, []byte("x"))
	below := name + "/below"
	want := []errs.Code{errs.NotDirectory, errs.FileNotFound}
	_, err := read(c.Ctx(), box, below, driver.ReadOptions{})
	c.Code(err, "read below a file", want...)
	_, err = statErr(c, box, below, false)
	c.Code(err, "stat below a file", want...)
	_, err = box.Write(c.Ctx(), below, driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write below a file", want...)
	_, err = box.Write(c.Ctx(), below, driver.WriteOptions{Parents: true}, strings.NewReader("x"))
	c.Code(err, "write below a file, with parents", errs.NotDirectory, errs.FileExists)
	c.Same("the file", get(c, box, name), []byte("x"))
}

// names are the keys of a listing, in order.
func names(m map[string]driver.FileInfo) []string { return slices.Sorted(maps.Keys(m)) }

func listDir(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "mkdir "+dir+"/sub; echo 12 > "+dir+"/a; echo > "+dir+"/.hidden; echo > "+dir+"/sub/deep")
	all := list(c, box, dir, driver.ListOptions{})
	if got := names(all); !slices.Equal(got, []string{".hidden", "a", "sub"}) {
		c.Errorf("a listing gives %q", got)
	}
	if all["a"].Size != 3 || all["a"].Type != driver.TypeRegular || all["sub"].Type != driver.TypeDirectory {
		c.Errorf("a listing says %+v and %+v", all["a"], all["sub"])
	}
	empty := c.Dir(box)
	if got := names(list(c, box, empty, driver.ListOptions{})); len(got) > 0 {
		c.Errorf("the listing of an empty directory gives %q", got)
	}
}

func listRecursive(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir a; mkdir a/b; echo > a/b/c; echo > d")
	if got := names(list(c, box, dir, driver.ListOptions{Recursive: true})); !slices.Equal(got, []string{"a", "a/b", "a/b/c", "d"}) {
		c.Errorf("a recursive listing gives %q", got)
	}
}

func listExclude(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir keep; mkdir skip; echo > keep/a.log; echo > keep/a.txt; echo > skip/b; echo > c.log")
	if got := names(list(c, box, dir, driver.ListOptions{Recursive: true, Exclude: []string{"*.log", "skip/"}})); !slices.Equal(got, []string{"keep", "keep/a.txt"}) {
		c.Errorf("a listing without *.log and skip/ gives %q", got)
	}
}

func listLimit(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; for_me=1; echo > a; echo > b; echo > c; echo > d; echo > e")
	if got := names(list(c, box, dir, driver.ListOptions{Limit: 3})); len(got) != 3 {
		c.Errorf("a listing of at most 3 gives %q", got)
	}
}

func listMany(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; i=0; while [ $i -lt 10000 ]; do : > file-with-a-long-name-$i; i=$((i+1)); done")
	all := list(c, box, dir, driver.ListOptions{})
	if len(all) != 10000 {
		c.Errorf("a listing of 10000 files gives %d", len(all))
	}
	c.OK(box.Remove(c.Ctx(), dir, true, ""), "remove 10000 files")
	absent(c, box, dir)
}

func listErrors(c *C) {
	box := c.Box()
	name := c.Word("f")
	c.Code(listErr(c, box, name), "list a directory that is not there", errs.FileNotFound)
	put(c, box, name, nil)
	c.Code(listErr(c, box, name), "list a file", errs.NotDirectory)
}

func mkdirs(c *C) {
	box := c.Box()
	name := c.Word("d")
	c.OK(box.Mkdir(c.Ctx(), name, 0, false, ""), "mkdir")
	if info := stat(c, box, name); info.Type != driver.TypeDirectory || info.Mode&0o777 != 0o755 {
		c.Errorf("a new directory: %+v", info)
	}
	name = c.Word("d")
	c.OK(box.Mkdir(c.Ctx(), name, 0o700, false, ""), "mkdir with mode 0700")
	if mode := stat(c, box, name).Mode & 0o777; mode != 0o700 {
		c.Errorf("a directory made with mode 0700 has %04o", mode)
	}
}

func mkdirParents(c *C) {
	box := c.Box()
	name := c.Word("d")
	for range c.Options().Repeat {
		c.OK(box.Mkdir(c.Ctx(), name+"/e/f", 0, true, ""), "mkdir with parents, also when it is there")
	}
	if out := c.Exec(box, "test", "-d", name+"/e/f"); out.Exit.Code != 0 {
		c.Errorf("a command does not see the directories")
	}
}

func mkdirErrors(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Code(box.Mkdir(c.Ctx(), dir, 0, false, ""), "mkdir of what is there", errs.FileExists)
	c.Code(box.Mkdir(c.Ctx(), dir+"/no/such", 0, false, ""), "mkdir in a directory that is not there", errs.FileNotFound)
	put(c, box, dir+"/f", nil)
	c.Code(box.Mkdir(c.Ctx(), dir+"/f", 0, false, ""), "mkdir over a file", errs.FileExists)
	c.Code(box.Mkdir(c.Ctx(), dir+"/f/g", 0, true, ""), "mkdir below a file", errs.NotDirectory, errs.FileExists)
}

func remove(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/f", nil)
	c.OK(box.Remove(c.Ctx(), dir+"/f", false, ""), "remove a file")
	absent(c, box, dir+"/f")
	c.OK(box.Remove(c.Ctx(), dir, false, ""), "remove an empty directory")
	absent(c, box, dir)
}

func removeTree(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir a; mkdir a/b; echo > a/b/c; echo > d")
	for range c.Options().Repeat {
		c.OK(box.Remove(c.Ctx(), dir, true, ""), "remove a tree, also when it is gone")
	}
	absent(c, box, dir)
}

func removeErrors(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/f", nil)
	c.Code(box.Remove(c.Ctx(), dir+"/none", false, ""), "remove a file that is not there", errs.FileNotFound)
	c.Code(box.Remove(c.Ctx(), dir, false, ""), "remove a directory that is not empty", errs.DirectoryNotEmpty)
	stat(c, box, dir+"/f")
}

func removeRoot(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, nil)
	for _, root := range []string{".", c.Options().Workspace, c.Options().Workspace + "/", ""} {
		c.Code(box.Remove(c.Ctx(), root, true, ""), fmt.Sprintf("remove the workspace as %q", root), errs.InvalidArgument, errs.PermissionDenied, errs.PathEscapes)
	}
	stat(c, box, name)
}

func move(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/a", []byte("a"))
	c.OK(box.Move(c.Ctx(), dir+"/a", dir+"/b", false, ""), "move a file")
	absent(c, box, dir+"/a")
	c.Same("a file that was moved", get(c, box, dir+"/b"), []byte("a"))
	other := c.Dir(box)
	c.OK(box.Move(c.Ctx(), dir, other+"/moved", false, ""), "move a directory")
	absent(c, box, dir)
	c.Same("a file in a directory that was moved", get(c, box, other+"/moved/b"), []byte("a"))
}

func moveReplace(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/a", []byte("a"))
	put(c, box, dir+"/b", []byte("b"))
	c.Code(box.Move(c.Ctx(), dir+"/a", dir+"/b", false, ""), "move over a file", errs.FileExists)
	c.Same("the file", get(c, box, dir+"/b"), []byte("b"))
	c.OK(box.Move(c.Ctx(), dir+"/a", dir+"/b", true, ""), "move and replace")
	absent(c, box, dir+"/a")
	c.Same("the file", get(c, box, dir+"/b"), []byte("a"))
}

func moveErrors(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/f", nil)
	c.Code(box.Move(c.Ctx(), dir+"/none", dir+"/x", false, ""), "move a file that is not there", errs.FileNotFound)
	c.Code(box.Move(c.Ctx(), dir+"/f", dir+"/no/such", false, ""), "move into a directory that is not there", errs.FileNotFound)
	c.Code(box.Move(c.Ctx(), dir, dir+"/below", false, ""), "move a directory into itself", errs.InvalidArgument)
	stat(c, box, dir+"/f")
}

func setMode(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, nil)
	for _, mode := range []uint32{0o600, 0o751, 0o400} {
		c.OK(box.SetMeta(c.Ctx(), name, driver.MetaChange{Mode: &mode}), "set mode %04o", mode)
		if got := stat(c, box, name).Mode & 0o7777; got != mode {
			c.Errorf("mode %04o was set, it is %04o", mode, got)
		}
	}
}

func setModeTree(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "mkdir "+dir+"/d; echo > "+dir+"/d/f")
	mode := uint32(0o750)
	c.OK(box.SetMeta(c.Ctx(), dir, driver.MetaChange{Mode: &mode, Recursive: true}), "set the mode of a tree")
	for _, name := range []string{"", "/d", "/d/f"} {
		if got := stat(c, box, dir+name).Mode & 0o777; got != mode {
			c.Errorf("the mode of a tree was set to 0750, that of %s is %04o", path.Join("tree", name), got)
		}
	}
}

func setTime(c *C) {
	box := c.Box()
	name := c.Word("f")
	put(c, box, name, []byte("x"))
	c.OK(box.SetMeta(c.Ctx(), name, driver.MetaChange{ModTime: when}), "set the time")
	if got := stat(c, box, name).ModTime; !got.Equal(when) {
		c.Errorf("the time %v was set, it is %v", when, got)
	}
}

// odd are names that a program which builds commands or lists by lines gets wrong.
var odd = []string{
	" leading", "trailing ", "  both  ", "two words", ".dot", "trailing.", "-dash", "--double", "tab\there", "new\nline", "\nleading newline",
	"trailing newline\n", "cr\rhere", `back\slash`, `trailing\`, `quote"s`, "single'quote", "back`tick", "$HOME", "$(id)", "a;b", "a&b", "a|b", "*", "?", "[x]",
	"{a,b}", "~", "#hash", "!bang", "%s", "a=b", "a:b", "\x01control", "\x7fdelete", "äöü", "e\u0301", "日本語", "😀", "\u202ertl", "...", "CON", "nul.txt",
}

func oddNames(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, name := range odd {
		data := []byte("the file " + name)
		put(c, box, dir+"/"+name, data)
		c.Same(fmt.Sprintf("the file %q", name), get(c, box, dir+"/"+name), data)
	}
	want := slices.Sorted(slices.Values(odd))
	if got := names(list(c, box, dir, driver.ListOptions{})); !slices.Equal(got, want) {
		for _, name := range want {
			if !slices.Contains(got, name) {
				c.Errorf("%q is not in the listing", name)
			}
		}
		for _, name := range got {
			if !slices.Contains(want, name) {
				c.Errorf("%q is in the listing, and nobody made it", name)
			}
		}
	}
	for _, name := range odd {
		c.OK(box.Move(c.Ctx(), dir+"/"+name, dir+"/moved "+name, false, ""), "move %q", name)
		c.OK(box.Remove(c.Ctx(), dir+"/moved "+name, false, ""), "remove %q", name)
	}
	if got := names(list(c, box, dir, driver.ListOptions{})); len(got) > 0 {
		c.Errorf("after all were removed there are %q", got)
	}
}

func longNames(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, name := range []string{strings.Repeat("n", 255), strings.Repeat("é", 127) + "n"} {
		put(c, box, dir+"/"+name, []byte("long"))
		c.Same("a file with a name of 255 bytes", get(c, box, dir+"/"+name), []byte("long"))
	}
	_, err := box.Write(c.Ctx(), dir+"/"+strings.Repeat("n", 256), driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write a file with a name of 256 bytes", errs.InvalidArgument)
}

func rawNames(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, name := range []string{"\xff", "a\xfe\x80b", "latin-\xe4"} {
		put(c, box, dir+"/"+name, []byte(name))
		c.Same(fmt.Sprintf("the file %q", name), get(c, box, dir+"/"+name), []byte(name))
		if got := names(list(c, box, dir, driver.ListOptions{})); !slices.Equal(got, []string{name}) {
			c.Errorf("the listing gives %q, want %q", got, name)
		}
		c.OK(box.Remove(c.Ctx(), dir+"/"+name, false, ""), "remove %q", name)
	}
}

func caseNames(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/name", []byte("lower"))
	put(c, box, dir+"/Name", []byte("upper"))
	c.Same("a file beside one whose name differs by case", get(c, box, dir+"/name"), []byte("lower"))
}

func nulNames(c *C) {
	box := c.Box()
	name := c.Word("f") + "\x00x"
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write a name with a NUL byte", errs.InvalidArgument)
	_, err = read(c.Ctx(), box, name, driver.ReadOptions{})
	c.Code(err, "read a name with a NUL byte", errs.InvalidArgument)
	_, err = statErr(c, box, name, false)
	c.Code(err, "stat of a name with a NUL byte", errs.InvalidArgument)
}

func pathForms(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	put(c, box, dir+"/f", []byte("x"))
	for _, p := range []string{"./" + dir + "/f", dir + "//f", dir + "/./f", dir + "/../" + dir + "/f", c.Options().Workspace + "/" + dir + "/f"} {
		c.Same("the file as "+p, get(c, box, p), []byte("x"))
	}
}

// outside are paths of files that every sandbox has, and that lie outside its workspace.
func outside(c *C) []string {
	up := strings.Repeat("../", strings.Count(c.Options().Workspace, "/"))
	return []string{"/etc/passwd", up + "etc/passwd", "..", "../x", c.Options().Workspace + "/../x", "/", "/tmp/x"}
}

func escapes(c *C) {
	box := c.Box()
	for _, p := range outside(c) {
		_, err := read(c.Ctx(), box, p, driver.ReadOptions{})
		c.Code(err, "read "+p, errs.PathEscapes)
		_, err = statErr(c, box, p, false)
		c.Code(err, "stat "+p, errs.PathEscapes)
		_, err = box.Write(c.Ctx(), p, driver.WriteOptions{Parents: true}, strings.NewReader("x"))
		c.Code(err, "write "+p, errs.PathEscapes)
		c.Code(listErr(c, box, p), "list "+p, errs.PathEscapes)
		c.Code(box.Mkdir(c.Ctx(), p, 0, true, ""), "mkdir "+p, errs.PathEscapes)
		c.Code(box.Remove(c.Ctx(), p, true, ""), "remove "+p, errs.PathEscapes)
	}
	name := c.Word("f")
	put(c, box, name, nil)
	c.Code(box.Move(c.Ctx(), name, "/tmp/"+name, false, ""), "move out of the workspace", errs.PathEscapes)
	c.Code(box.Move(c.Ctx(), "/etc/passwd", name+"2", false, ""), "move into the workspace", errs.PathEscapes)
}

func linksKept(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; echo target > t; ln -s t link")
	put(c, box, dir+"/link", []byte("written"))
	if info := stat(c, box, dir+"/link"); info.Type != driver.TypeSymlink || info.Target != "t" {
		c.Errorf("after a write through a link it is %v to %q", info.Type, info.Target)
	}
	c.Same("the target of a link that was written through", get(c, box, dir+"/t"), []byte("written"))
}

func linksInside(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir d; echo deep > d/f; ln -s d up; ln -s ../"+dir+"/d/f relative; ln -s "+c.Options().Workspace+"/"+dir+"/d/f absolute")
	for _, p := range []string{"/up/f", "/relative", "/absolute"} {
		c.Same("a file by the link "+p, get(c, box, dir+p), []byte("deep\n"))
	}
}

func linksEscape(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	word := c.Word("victim")
	c.Sh(box, "cd "+dir+"; echo victim > /tmp/"+word+"; ln -s /tmp/"+word+" out; ln -s out again; ln -s /tmp/"+word+"-new dangling")
	for _, p := range []string{"/out", "/again"} {
		_, err := read(c.Ctx(), box, dir+p, driver.ReadOptions{})
		c.Code(err, "read by a link that leads out", errs.PathEscapes)
		_, err = statErr(c, box, dir+p, true)
		c.Code(err, "stat by a link that leads out", errs.PathEscapes)
		if info := stat(c, box, dir+p); info.Type != driver.TypeSymlink {
			c.Errorf("stat of the link itself: %v", info.Type)
		}
		_, err = box.Write(c.Ctx(), dir+p, driver.WriteOptions{}, strings.NewReader("x"))
		c.Code(err, "write by a link that leads out", errs.PathEscapes)
		mode := uint32(0o777)
		c.Code(box.SetMeta(c.Ctx(), dir+p, driver.MetaChange{Mode: &mode}), "set the mode by a link that leads out", errs.PathEscapes)
	}
	_, err := box.Write(c.Ctx(), dir+"/dangling", driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write by a dangling link that leads out", errs.PathEscapes)
	if got := c.Sh(box, "cat /tmp/"+word); got != "victim\n" {
		c.Errorf("a file outside the workspace was changed to %q", got)
	}
	if out := c.Exec(box, "test", "-e", "/tmp/"+word+"-new"); out.Exit.Code == 0 {
		c.Errorf("a file outside the workspace was made")
	}
}

func linksEscapeDirectory(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	word := c.Word("victim")
	c.Sh(box, "mkdir /tmp/"+word+"; echo victim > /tmp/"+word+"/f; ln -s /tmp/"+word+" "+dir+"/out")
	_, err := read(c.Ctx(), box, dir+"/out/f", driver.ReadOptions{})
	c.Code(err, "read by a directory that leads out", errs.PathEscapes)
	_, err = box.Write(c.Ctx(), dir+"/out/new", driver.WriteOptions{}, strings.NewReader("x"))
	c.Code(err, "write by a directory that leads out", errs.PathEscapes)
	c.Code(box.Remove(c.Ctx(), dir+"/out/f", false, ""), "remove by a directory that leads out", errs.PathEscapes)
	c.Code(box.Mkdir(c.Ctx(), dir+"/out/d/e", 0, true, ""), "mkdir by a directory that leads out", errs.PathEscapes)
	c.Code(listErr(c, box, dir+"/out"), "list by a directory that leads out", errs.PathEscapes)
	put(c, box, dir+"/f", nil)
	c.Code(box.Move(c.Ctx(), dir+"/f", dir+"/out/g", false, ""), "move by a directory that leads out", errs.PathEscapes)
	for name := range list(c, box, dir, driver.ListOptions{Recursive: true}) {
		if strings.HasPrefix(name, "out/") {
			c.Errorf("a recursive listing leads out: %q", name)
		}
	}
	if got := c.Sh(box, "cat /tmp/"+word+"/f"); got != "victim\n" {
		c.Errorf("a file outside the workspace holds %q", got)
	}
}

func linksRemoved(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; mkdir d; echo kept > d/f; ln -s d/f file; ln -s d tree; ln -s d other")
	c.OK(box.Remove(c.Ctx(), dir+"/file", false, ""), "remove a link to a file")
	c.OK(box.Remove(c.Ctx(), dir+"/tree", true, ""), "remove a link to a directory, recursively")
	c.OK(box.Move(c.Ctx(), dir+"/other", dir+"/moved", false, ""), "move a link")
	c.Same("a file whose links were removed", get(c, box, dir+"/d/f"), []byte("kept\n"))
	absent(c, box, dir+"/tree")
	if info := stat(c, box, dir+"/moved"); info.Type != driver.TypeSymlink || info.Target != "d" {
		c.Errorf("a link that was moved is %v to %q", info.Type, info.Target)
	}
}

func linksLoop(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.Sh(box, "cd "+dir+"; ln -s b a; ln -s a b; mkdir d; ln -s .. d/up")
	_, err := read(c.Ctx(), box, dir+"/a", driver.ReadOptions{})
	c.Code(err, "read a link that leads to itself", errs.InvalidArgument, errs.FileNotFound)
	if got := names(list(c, box, dir, driver.ListOptions{Recursive: true})); !slices.Equal(got, []string{"a", "b", "d", "d/up"}) {
		c.Errorf("a recursive listing with a link upwards gives %q", got)
	}
}

func fileUser(c *C) {
	box := c.Box()
	own := strings.TrimSpace(c.Sh(box, "id -un"))
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{User: own}, strings.NewReader("x"))
	c.OK(err, "write as user %s", own)
	if got := stat(c, box, name).User; got != own {
		c.Errorf("a file that user %s wrote belongs to %s", own, got)
	}
	_, err = box.Write(c.Ctx(), name, driver.WriteOptions{User: "no-such-user-here"}, strings.NewReader("x"))
	c.Code(err, "write as a user that does not exist", errs.InvalidArgument, errs.Unsupported, errs.PermissionDenied, errs.FileNotFound)
}

// watching follows the changes in a directory until the check ends.
func watching(c *C, dir string, recursive bool) (events chan driver.FileEvent, ended chan error, cancel func()) {
	ctx, stop := context.WithCancelCause(c.Ctx())
	events, ended = make(chan driver.FileEvent, 1000), make(chan error, 1)
	box := c.Box()
	go func() {
		ended <- box.WatchFiles(ctx, dir, recursive, "", func(e driver.FileEvent) { events <- e })
	}()
	// The watch is under way once it sees something.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		put(c, box, fmt.Sprintf("%s/probe-%d", dir, i), nil)
		select {
		case <-events:
			return events, ended, func() { stop(errEnough) }
		case err := <-ended:
			c.Fatalf("the watch ended: %v", err)
		case <-tick.C:
		case <-c.Ctx().Done():
			c.Fatalf("a watch saw nothing")
		}
	}
}

// event waits for an event about a path.
func event(c *C, events <-chan driver.FileEvent, name string, kinds ...driver.FileEventKind) {
	for {
		select {
		case e := <-events:
			if e.Path == name && slices.Contains(kinds, e.Kind) || e.Kind == driver.FileOverflow {
				return
			}
		case <-c.Ctx().Done():
			c.Fatalf("no event of kind %v about %s", kinds, name)
		}
	}
}

func watchFiles(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	events, _, cancel := watching(c, dir, false)
	defer cancel()
	put(c, box, dir+"/f", []byte("1"))
	event(c, events, "f", driver.FileCreated, driver.FileChanged)
	c.Sh(box, "echo more >> "+dir+"/f")
	event(c, events, "f", driver.FileChanged)
	c.OK(box.Remove(c.Ctx(), dir+"/f", false, ""), "remove")
	event(c, events, "f", driver.FileRemoved)
}

func watchRecursive(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	c.OK(box.Mkdir(c.Ctx(), dir+"/a/b", 0, true, ""), "mkdir")
	events, _, cancel := watching(c, dir, true)
	defer cancel()
	put(c, box, dir+"/a/b/f", []byte("1"))
	event(c, events, "a/b/f", driver.FileCreated, driver.FileChanged)
}

func watchFilesEnds(c *C) {
	_, ended, cancel := watching(c, c.Dir(c.Box()), false)
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			c.Code(err, "a watch whose caller has gone", errs.Canceled)
		}
	case <-c.Ctx().Done():
		c.Fatalf("a watch goes on after its caller has gone")
	}
}
