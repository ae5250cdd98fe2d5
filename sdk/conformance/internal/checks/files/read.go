// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func writeRead(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	for _, data := range []string{"first\n", "the second is longer\n", "3"} {
		kit.Put(c, box, name, []byte(data))
		c.Same("what was written last", kit.Get(c, box, name), []byte(data))
	}
}

func writeResult(c *kit.C) {
	box := c.Box()
	data := kit.Pattern(100_000)
	r := kit.Put(c, box, c.Word("f"), data)
	if r.SHA256 != sha256.Sum256(data) {
		c.Errorf("the digest of what was written is another")
	}
	if r.Info.Size != uint64(len(data)) || r.Info.Type != driver.TypeRegular || r.Info.Mode&0o777 != 0o644 {
		c.Errorf("the file as written: %+v", r.Info)
	}
}

func sizes(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	const k, m = 1 << 10, 1 << 20
	for _, n := range []int{0, 1, 4*k - 1, 4 * k, 32*k - 1, 32 * k, 32*k + 1, m - 65, m - 64, m - 63, m, m + 64, 3*m + 7} {
		data := kit.Pattern(n)
		kit.Put(c, box, name, data)
		c.Same(fmt.Sprintf("a file of %d bytes", n), kit.Get(c, box, name), data)
		if got := kit.Stat(c, box, name).Size; got != uint64(n) {
			c.Errorf("stat of a file of %d bytes says %d", n, got)
		}
	}
}

func bigFile(c *kit.C) {
	box := c.Box()
	name := c.Word("big")
	block := kit.Pattern(1 << 20)
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

func sparseFile(c *kit.C) {
	box := c.Box()
	name := c.Word("sparse")
	const size = 1_000_000_000
	c.Sh(box, fmt.Sprintf("printf end | dd of=%s bs=1 seek=%d 2>/dev/null", name, size-3))
	if got := kit.Stat(c, box, name).Size; got != size {
		c.Errorf("stat of a file of 1 GB says %d", got)
	}
	b, err := kit.Read(c.Ctx(), box, name, driver.ReadOptions{Offset: size - 8})
	c.OK(err, "read the end of 1 GB")
	c.Same("the end of 1 GB", b, []byte("\x00\x00\x00\x00\x00end"))
	c.OK(box.Remove(c.Ctx(), name, false, ""), "remove")
}

func seenByCommands(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, []byte("written"))
	if got := c.Sh(box, "cat "+name); got != "written" {
		c.Errorf("a command reads %q", got)
	}
	c.Sh(box, "echo ' and more' >> "+name)
	c.Same("a file that a command added to", kit.Get(c, box, name), []byte("written and more\n"))
}

func madeByCommands(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	c.Sh(box, "mkdir "+name+"; echo made > "+name+"/f")
	c.Same("a file that a command made", kit.Get(c, box, name+"/f"), []byte("made\n"))
	kit.Put(c, box, name+"/f", []byte("changed"))
	c.OK(box.Remove(c.Ctx(), name, true, ""), "remove what a command made")
	if out := c.Exec(box, "test", "-e", name); out.Exit.Code == 0 {
		c.Errorf("a command still sees what was removed")
	}
}

func readRanges(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	data := kit.Pattern(3 << 20)
	kit.Put(c, box, name, data)
	for _, r := range [][2]int{{0, 1}, {0, len(data)}, {1, 0}, {17, 4096}, {1 << 20, 1 << 20}, {1<<20 - 1, 2}, {len(data) - 1, 1}, {len(data) - 5, 100}} {
		want := data[r[0]:]
		if r[1] > 0 {
			want = want[:min(len(want), r[1])]
		}
		got, err := kit.Read(c.Ctx(), box, name, driver.ReadOptions{Offset: uint64(r[0]), Length: uint64(r[1])})
		c.OK(err, "read %d bytes from %d", r[1], r[0])
		c.Same(fmt.Sprintf("%d bytes from %d", r[1], r[0]), got, want)
	}
}

func readPastEnd(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, []byte("short"))
	for _, offset := range []uint64{5, 6, 1 << 40} {
		got, err := kit.Read(c.Ctx(), box, name, driver.ReadOptions{Offset: offset})
		if err != nil {
			c.Errorf("read from %d of 5 bytes: %v, want nothing", offset, err)
		} else if len(got) > 0 {
			c.Errorf("read from %d of 5 bytes gives %q", offset, got)
		}
	}
}

func readIfVersion(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	v := kit.Put(c, box, name, []byte("one")).Info.Version
	if v == "" {
		c.Fatalf("a file has no version")
	}
	got, err := kit.Read(c.Ctx(), box, name, driver.ReadOptions{IfVersion: v})
	c.OK(err, "read the version that was written")
	c.Same("it", got, []byte("one"))
	kit.Put(c, box, name, []byte("two, longer"))
	_, err = kit.Read(c.Ctx(), box, name, driver.ReadOptions{IfVersion: v})
	c.Code(err, "read a version that was replaced", errs.VersionMismatch)
}

func readGivenUp(c *kit.C) {
	box := c.Box()
	name := c.Word("f")
	kit.Put(c, box, name, kit.Pattern(4<<20))
	for range 20 {
		_, r, err := box.Open(c.Ctx(), name, driver.ReadOptions{})
		c.OK(err, "open")
		_, err = io.ReadFull(r, make([]byte, 10))
		c.OK(errors.Join(err, r.Close()), "read a little")
	}
	c.Same("after twenty readers that gave up", kit.Get(c, box, name), kit.Pattern(4<<20))
}
