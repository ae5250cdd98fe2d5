// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// Put writes a file that must not fail to be written.
func Put(c *C, box *rpc.Sandbox, path string, data []byte) driver.WriteResult {
	r, err := box.Write(c.Ctx(), path, driver.WriteOptions{}, bytes.NewReader(data))
	c.OK(err, "write %q", path)
	return r
}

// Get reads a file that must not fail to be read.
func Get(c *C, box *rpc.Sandbox, path string) []byte {
	b, err := Read(c.Ctx(), box, path, driver.ReadOptions{})
	c.OK(err, "read %q", path)
	return b
}

// Read reads a file, or a part of one.
func Read(ctx context.Context, box *rpc.Sandbox, path string, opts driver.ReadOptions) ([]byte, error) {
	_, r, err := box.Open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// Stat describes a file that must be there.
func Stat(c *C, box *rpc.Sandbox, path string) driver.FileInfo {
	info, err := StatErr(c, box, path, false)
	c.OK(err, "stat %q", path)
	return info
}

// StatErr describes a file.
func StatErr(c *C, box *rpc.Sandbox, path string, follow bool) (driver.FileInfo, error) {
	rs, err := box.Stat(c.Ctx(), []string{path}, driver.StatOptions{Follow: follow})
	if err != nil {
		return driver.FileInfo{}, err
	}
	if len(rs) != 1 {
		return driver.FileInfo{}, fmt.Errorf("%d answers for one path", len(rs))
	}
	return rs[0].Info, rs[0].Err
}

// Absent wants that there is no such file.
func Absent(c *C, box *rpc.Sandbox, path string) {
	_, err := StatErr(c, box, path, false)
	c.Code(err, "stat "+path, errs.FileNotFound)
}

// List gives the names in a directory.
func List(c *C, box *rpc.Sandbox, path string, opts driver.ListOptions) map[string]driver.FileInfo {
	out := map[string]driver.FileInfo{}
	for info, err := range box.List(c.Ctx(), path, opts) {
		c.OK(err, "list %q", path)
		if _, twice := out[info.Path]; twice {
			c.Errorf("list %q: %q comes twice", path, info.Path)
		}
		out[info.Path] = info
	}
	return out
}

// ListErr is how listing a directory fails; nil = it does not.
func ListErr(c *C, box *rpc.Sandbox, path string) error {
	for _, err := range box.List(c.Ctx(), path, driver.ListOptions{}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Pattern is n bytes in which each place can be told from others.
func Pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// Names are the keys of a listing, in order.
func Names(m map[string]driver.FileInfo) []string { return slices.Sorted(maps.Keys(m)) }

// Odd are names that a program which builds commands or lists by lines gets wrong.
var Odd = []string{
	" leading", "trailing ", "  both  ", "two words", ".dot", "trailing.", "-dash", "--double", "tab\there", "new\nline", "\nleading newline",
	"trailing newline\n", "cr\rhere", `back\slash`, `trailing\`, `quote"s`, "single'quote", "back`tick", "$HOME", "$(id)", "a;b", "a&b", "a|b", "*", "?", "[x]",
	"{a,b}", "~", "#hash", "!bang", "%s", "a=b", "a:b", "\x01control", "\x7fdelete", "äöü", "e\u0301", "日本語", "😀", "\u202ertl", "...", "CON", "nul.txt",
}

// When is a time that every file system can hold.
var When = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
