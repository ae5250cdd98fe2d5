// SPDX-License-Identifier: Apache-2.0

package index_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/index"
)

// entries are one of each kind, and enough of them for some pages.
func entries() []index.Entry {
	now := time.Unix(1_700_000_000, 123456789)
	out := []index.Entry{{Kind: index.Dir, Mode: 0o755, ModTime: now}}
	for i := range 1000 {
		out = append(out, index.Entry{
			Path: fmt.Sprintf("f%04d", i), Kind: index.File, Mode: 0o644, UID: uint32(i / 300), User: "me", Size: 3, ModTime: now.Add(time.Duration(i)),
			Chunks: []chunks.Hash{chunks.Sum([]byte(fmt.Sprint(i)))}, Seen: uint64(i),
		})
	}
	return append(out,
		index.Entry{Path: "g", Kind: index.Dir, Mode: 0o1777, ModTime: time.Unix(-1, 5)},
		index.Entry{Path: "g/h", Kind: index.File, Linked: true},
		index.Entry{Path: "g/\xff", Kind: index.HardLink, Target: "g/h"},
		index.Entry{Path: "g-", Kind: index.Symlink, Target: "/no\nwhere"},
		index.Entry{
			Path: "h", Kind: index.File, Size: 1 << 40, Sparse: []index.Extent{{Off: 0, Size: 1}, {Off: 1<<40 - 300<<10, Size: 300 << 10}},
			Chunks: []chunks.Hash{{1}, {2}, {3}},
		},
		index.Entry{Path: "i", Kind: index.File, Size: 9, Sparse: []index.Extent{}},
	)
}

func encode(t testing.TB, in []index.Entry) (pages [][]byte, err error) {
	t.Helper()
	x := index.Encoder{Page: func(b []byte) error {
		pages = append(pages, slices.Clone(b))
		return nil
	}}
	for i := range in {
		if err := x.Add(&in[i]); err != nil {
			return nil, err
		}
	}
	return pages, x.Close()
}

func decode(pages [][]byte) (out []index.Entry, err error) {
	var d index.Decoder
	for _, p := range pages {
		if err := d.Page(p, func(e *index.Entry) error {
			out = append(out, *e)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func TestRoundTrip(t *testing.T) {
	in := entries()
	pages, err := encode(t, in)
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 4 || len(pages) > 34 {
		t.Errorf("%d pages", len(pages))
	}
	out, err := decode(pages)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in[1:], out[1:], cmp.Comparer(time.Time.Equal)); d != "" {
		t.Error(d)
	}
	// One more file changes the page that it is on.
	more := slices.Insert(slices.Clone(in), 500, index.Entry{Path: "f0498x", Kind: index.File})
	changed, err := encode(t, more)
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, p := range changed {
		if slices.ContainsFunc(pages, func(q []byte) bool { return string(q) == string(p) }) {
			same++
		}
	}
	if len(changed)-same > 2 {
		t.Errorf("%d of %d pages changed with one file", len(changed)-same, len(changed))
	}
}

func TestRefused(t *testing.T) {
	top := index.Entry{Kind: index.Dir}
	file := func(path string) index.Entry { return index.Entry{Path: path, Kind: index.File} }
	for want, in := range map[string][]index.Entry{
		"not the top":             {file("a")},
		"not a clean":             {top, file("../a")},
		"not a clean, relative":   {top, file("/a")},
		"relative one":            {top, file("a//b")},
		"NUL":                     {top, file("a\x00b")},
		"there twice":             {top, file("a"), file("a")},
		"out of order":            {top, file("b"), file("a")},
		"no directory":            {top, file("a"), file("a/b")},
		"below something":         {top, {Path: "a", Kind: index.Symlink, Target: "/etc"}, file("a/passwd")},
		"which is not before":     {top, {Path: "a", Kind: index.HardLink, Target: "b"}, file("b")},
		"hard link to":            {top, file("a"), {Path: "b", Kind: index.HardLink, Target: "a"}},
		"hard link to \"b\"":      {top, {Path: "b", Kind: index.HardLink, Target: "b"}},
		"chunks, which":           {top, {Path: "a", Kind: index.File, Size: 1}},
		"does not fit":            {top, {Path: "a", Kind: index.File, Size: 10, Sparse: []index.Extent{{Off: 8, Size: 8}}, Chunks: []chunks.Hash{{}}}},
		"bytes does not fit":      {top, {Path: "a", Kind: index.File, Size: 10, Sparse: []index.Extent{{Off: 4, Size: 4}, {Off: 0, Size: 1}}, Chunks: []chunks.Hash{{}}}},
		"its size":                {top, {Path: "a", Kind: index.File, Size: -1}},
		"content and is no file":  {top, {Path: "a", Kind: index.Dir, Chunks: []chunks.Hash{{}}}},
		"its mode":                {top, {Path: "a", Kind: index.Dir, Mode: 0o10000}},
		"its target":              {top, {Path: "a", Kind: index.Symlink}},
		"can be no hard links to": {top, {Path: "a", Kind: index.Dir, Linked: true}},
	} {
		if _, err := encode(t, in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", in[1:], err, want)
		}
	}
}

func TestPieces(t *testing.T) {
	for range 200 {
		e := index.Entry{Kind: index.File, Size: 10 << 20, Sparse: []index.Extent{}}
		for at := rand.Int64N(1 << 20); at < e.Size; {
			n := min(1+rand.Int64N(1<<20), e.Size-at)
			e.Sparse = append(e.Sparse, index.Extent{Off: at, Size: n})
			at += n + 1 + rand.Int64N(1<<20)
		}
		var sum int64
		for n := range e.Pieces {
			if n <= 0 || n > chunks.MaxChunk {
				t.Fatalf("a piece of %d bytes", n)
			}
			sum += int64(n)
		}
		if sum != e.Data() {
			t.Fatalf("the pieces have %d bytes, the file %d: %v", sum, e.Data(), e.Sparse)
		}
	}
}

func TestRoot(t *testing.T) {
	in := &index.Root{Entries: 7, Bytes: 9, Pages: []index.Page{{Entries: 7, Chunks: []chunks.Hash{{1}, {2}}}}, Left: []index.Left{{Path: "\xff", Reason: "FIFO"}}}
	out, err := index.ParseRoot(in.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, out); d != "" {
		t.Error(d)
	}
}

// What decodes is made of the rules: it encodes to what decodes the same.
func FuzzPage(f *testing.F) {
	all := entries()
	pages, err := encode(f, append(all[:3:3], all[len(all)-6:]...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pages[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := decode([][]byte{b})
		if err != nil {
			return
		}
		again, err := encode(t, out)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != len(twice) {
			t.Fatalf("%d entries became %d", len(out), len(twice))
		}
		for i := range out {
			if !out[i].Same(&twice[i]) || out[i].Path != twice[i].Path || out[i].Seen != twice[i].Seen || out[i].Linked != twice[i].Linked {
				t.Errorf("%+v became %+v", out[i], twice[i])
			}
		}
	})
}

func FuzzRoot(f *testing.F) {
	f.Add((&index.Root{}).Append(nil))
	f.Add((&index.Root{Entries: 7, Bytes: 9, Pages: []index.Page{{Entries: 7, Chunks: []chunks.Hash{{1}}}}, Left: []index.Left{{Path: "a", Reason: "b"}}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := index.ParseRoot(b)
		if err != nil {
			return
		}
		twice, err := index.ParseRoot(out.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(out, twice); d != "" {
			t.Error(d)
		}
	})
}

func FuzzCompare(f *testing.F) {
	f.Add("a/b", "a-b")
	f.Fuzz(func(t *testing.T, a, b string) {
		if index.Compare(a, b) != -index.Compare(b, a) && (index.Compare(a, b) > 0) == (index.Compare(b, a) > 0) {
			t.Errorf("%q and %q have no order", a, b)
		}
		split := func(s string) []string { return strings.Split(s, "/") }
		if a != "" && b != "" && (index.Compare(a, b) < 0) != (slices.Compare(split(a), split(b)) < 0) {
			t.Errorf("%q and %q are not in the order of a walk", a, b)
		}
	})
}
