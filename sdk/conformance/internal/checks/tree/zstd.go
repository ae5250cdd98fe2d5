// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// compressed are the checks of compressed archives. They run without the claim too: the SDK may do it.
func compressed() []suite.Check {
	proves := kit.Needs(driver.TreeZstd)
	return []suite.Check{
		{Name: "zstd-import", Proves: proves, Func: zstdImport},
		{Name: "zstd-export", Proves: proves, Func: zstdExport},
		{Name: "zstd-damaged", Proves: proves, Func: zstdDamaged},
		{Name: "zstd-bounded", Proves: proves, Func: zstdBounded},
		{Name: "compression-unknown", Func: compressionUnknown},
	}
}

// offered skips the check when compression is neither claimed nor emulated.
func offered(c *kit.C, err error) {
	if !c.Claims(driver.TreeZstd) && errs.CodeOf(err) == errs.Unsupported {
		c.Skipf("compressed archives are not offered: %v", err)
	}
}

func squeeze(c *kit.C, plain []byte) []byte {
	w, err := zstd.NewWriter(nil)
	c.OK(err, "compress")
	return w.EncodeAll(plain, nil)
}

func zstdImport(c *kit.C) {
	big := string(kit.Pattern(3 << 20))
	// The first import into a fresh sandbox may take another way than those that follow.
	for what, box := range map[string]*rpc.Sandbox{"a fresh sandbox": c.Fresh(), "a sandbox in use": c.Box()} {
		if box == c.Box() {
			c.Sh(box, "true")
		}
		at := c.Word("tree")
		_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: at, Compression: "zstd"}, bytes.NewReader(squeeze(c, archive(c, dir("d/"), file("d/f", "deep"), file("big", big)).Bytes())))
		offered(c, err)
		c.OK(err, "import a compressed archive into %s", what)
		c.Same("a file of a compressed archive", kit.Get(c, box, at+"/d/f"), []byte("deep"))
		c.Same("a big one", kit.Get(c, box, at+"/big"), []byte(big))
	}
}

func zstdExport(c *kit.C) {
	box := c.Box()
	at := c.Dir(box)
	kit.Put(c, box, at+"/f", []byte("content"))
	kit.Put(c, box, at+"/big", bytes.Repeat([]byte("again and again "), 100_000))
	var b bytes.Buffer
	err := box.Export(c.Ctx(), driver.ExportOptions{Path: at, Compression: "zstd"}, &b)
	offered(c, err)
	c.OK(err, "export, compressed")
	if b.Len() > 500_000 {
		c.Errorf("1.6 MB that repeat themselves are %d bytes when compressed", b.Len())
	}
	z, err := zstd.NewReader(&b)
	c.OK(err, "read what was exported")
	defer z.Close()
	plain, err := io.ReadAll(z)
	c.OK(err, "decompress what was exported")
	got := members(c, bytes.NewReader(plain))
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"big", "f"}) || got["f"].body != "content" || len(got["big"].body) != 1_600_000 {
		c.Errorf("a compressed export holds %q, and of f %q", names, got["f"].body)
	}
}

// zstdDamaged wants that what is no whole compressed archive is refused, and that the sandbox goes on.
func zstdDamaged(c *kit.C) {
	box := c.Box()
	plain := archive(c, file("f", string(kit.Pattern(500_000)))).Bytes()
	whole := squeeze(c, plain)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0xff
	for what, data := range map[string][]byte{
		"is not compressed": plain, "is cut off": whole[:len(whole)/2], "is damaged": flipped, "is nothing": {}, "is nonsense": []byte("nonsense"),
		"is a compressed nothing in the middle of an archive": squeeze(c, plain[:1000]),
	} {
		_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: c.Word("tree"), Compression: "zstd"}, bytes.NewReader(data))
		offered(c, err)
		if err == nil && what == "is nothing" {
			continue // an archive of no bytes is empty, compressed or not
		}
		c.Code(err, "import of an archive that "+what, errs.ArchiveInvalid)
	}
	c.Sh(box, "true")
}

// zstdBounded wants that the bounds hold for what comes out, however little goes in.
func zstdBounded(c *kit.C) {
	box := c.Box()
	bomb := squeeze(c, archive(c, file("zeros", strings.Repeat("\x00", 64<<20))).Bytes())
	if len(bomb) > 100_000 {
		c.Fatalf("64 MiB of zeros are %d bytes", len(bomb))
	}
	at := c.Word("tree")
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: at, Compression: "zstd", Limits: driver.TreeLimits{MaxExtractedBytes: 1 << 20}}, bytes.NewReader(bomb))
	offered(c, err)
	c.Code(err, "import of 64 MiB in a few bytes, where 1 MiB is allowed", errs.ArchiveLimit)
	if info, err := kit.StatErr(c, box, at+"/zeros", false); err == nil && info.Size > 2<<20 {
		c.Errorf("where 1 MiB is allowed %d bytes were written", info.Size)
	}
	noise := squeeze(c, archive(c, file("noise", string(kit.Pattern(1<<20)))).Bytes())
	_, err = box.Import(c.Ctx(), driver.ImportOptions{Path: c.Word("tree"), Compression: "zstd", Limits: driver.TreeLimits{MaxInputBytes: 64 << 10}}, bytes.NewReader(noise))
	c.Code(err, "import of 1 MiB of compressed input, where 64 KiB are allowed", errs.ArchiveLimit)
	c.Sh(box, "true")
}

func compressionUnknown(c *kit.C) {
	box := c.Box()
	at := c.Word("tree")
	_, err := box.Import(c.Ctx(), driver.ImportOptions{Path: at, Compression: "no-such"}, archive(c, file("f", "x")))
	c.Code(err, "import with a compression that nobody knows", errs.InvalidArgument, errs.Unsupported)
	kit.Absent(c, box, at+"/f")
	c.Code(box.Export(c.Ctx(), driver.ExportOptions{Path: ".", Compression: "no-such"}, io.Discard), "export with a compression that nobody knows", errs.InvalidArgument, errs.Unsupported)
}
