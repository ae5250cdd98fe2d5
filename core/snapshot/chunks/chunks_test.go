// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/snapshot/objects"
)

func folder(t testing.TB) (*objects.Folder, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := objects.NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

func content(n, size int) [][]byte {
	src := rand.NewChaCha8([32]byte{1})
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, size+i%7)
		_, _ = src.Read(out[i]) // never fails
		if i%3 == 0 {
			copy(out[i], strings.Repeat("words ", size/6))
		}
		copy(out[i], fmt.Sprint(n, " ", i, " "))
	}
	return out
}

func write(t testing.TB, s *Store, all [][]byte) ([]Hash, Stats) {
	t.Helper()
	w := s.NewWriter(t.Context(), WriterOptions{})
	hashes := make([]Hash, len(all))
	for i, b := range all {
		if err := w.Write(bytes.NewReader(b), len(b), &hashes[i]); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return hashes, stats
}

func TestStore(t *testing.T) {
	objs, _ := folder(t)
	all := append(content(2000, 700), content(90, MaxChunk-7)...)
	hashes, stats := write(t, Open(objs), all)
	if stats.NewChunks != stats.Chunks || stats.Packs == 0 || stats.Packs > 3 {
		t.Errorf("%+v", stats)
	}
	s := Open(objs)
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, again := write(t, s, all); again.NewChunks != 0 || again.Packs != 0 {
		t.Errorf("%+v", again)
	}
	order := rand.Perm(len(all))
	order = append(order, order[:500]...)
	i := 0
	for b, err := range s.Stream(t.Context(), func(yield func(Hash) bool) {
		for _, n := range order {
			if !yield(hashes[n]) {
				return
			}
		}
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, all[order[i]]) {
			t.Fatalf("chunk %d is another one", i)
		}
		i++
	}
	if i != len(order) {
		t.Errorf("%d of %d chunks", i, len(order))
	}
	if bad, err := s.Verify(t.Context(), nil); err != nil || len(bad) > 0 {
		t.Error(bad, err)
	}
}

// What one writer stores twice is stored once, whoever of its workers comes first.
func TestSameTwice(t *testing.T) {
	objs, _ := folder(t)
	one := content(1, 50<<10)[0]
	all := make([][]byte, 300)
	for i := range all {
		all[i] = one
	}
	_, stats := write(t, Open(objs), all)
	if stats.NewChunks != 1 || stats.Chunks != 300 {
		t.Errorf("%+v", stats)
	}
}

func TestStreamEnds(t *testing.T) {
	objs, _ := folder(t)
	s := Open(objs)
	hashes, _ := write(t, s, content(200, 100<<10))
	before := runtime.NumGoroutine()
	for range s.Stream(t.Context(), slices.Values(hashes)) {
		break
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	var last error
	for _, err := range s.Stream(ctx, slices.Values(hashes)) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "enough") {
		t.Errorf("%v", last)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines are left", after-before)
	}
	last = nil
	for _, err := range s.Stream(t.Context(), slices.Values([]Hash{hashes[0], {1}, hashes[1]})) {
		last = err
	}
	if m, ok := errors.AsType[*Missing](last); !ok || m.Chunk != (Hash{1}) {
		t.Errorf("%v", last)
	}
}

// full is a store that has no room.
type full struct{ objects.Store }

func (full) Put(context.Context, string, []byte) (bool, error) { return false, errors.New("no room") }

func TestWriterFails(t *testing.T) {
	objs, _ := folder(t)
	before := runtime.NumGoroutine()
	w := Open(full{objs}).NewWriter(t.Context(), WriterOptions{})
	var err error
	big := content(2, MaxChunk)[1][:MaxChunk]
	for i := 0; err == nil && i < 10_000; i++ {
		big[0], big[1] = byte(i), byte(i>>8)
		err = w.Write(bytes.NewReader(big), len(big), new(Hash))
	}
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
	if _, err := w.Close(); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
	w = Open(objs).NewWriter(t.Context(), WriterOptions{})
	if err := w.Write(strings.NewReader("short"), 10, new(Hash)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	w.Abort()
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines are left", after-before)
	}
}

func TestSweepKeepsWhatLives(t *testing.T) {
	objs, dir := folder(t)
	s := Open(objs)
	old, _ := write(t, s, content(100, 10<<10))
	mixed := content(160, 12<<10)[100:]
	fresh, _ := write(t, s, mixed)
	live := map[Hash]struct{}{}
	for _, h := range fresh[:10] {
		live[h] = struct{}{}
	}
	out, err := s.Sweep(t.Context(), live, false)
	if err != nil || out.Packs != 2 || out.Moved != 10 || out.Chunks != len(old)+len(fresh)-10 {
		t.Errorf("%+v, %v", out, err)
	}
	packs, err := os.ReadDir(filepath.Join(dir, "packs"))
	if err != nil || len(packs) != 1 {
		t.Errorf("%v, %v", packs, err)
	}
	for i, h := range fresh[:10] {
		if b, err := s.Read(t.Context(), h); err != nil || !bytes.Equal(b, mixed[i]) {
			t.Errorf("chunk %d: %v", i, err)
		}
	}
}

func FuzzFooter(f *testing.F) {
	blocks := []block{{stored: 10, raw: 20, codec: codecZstd}, {off: 10, stored: 5, raw: 5}}
	located := []located{{hash: Hash{1}, size: 12}, {hash: Hash{2}, off: 12, size: 8}, {hash: Hash{3}, block: 1, size: 5}}
	good := appendFooter(nil, blocks, located)
	f.Add(good, int64(15))
	f.Add([]byte{0}, int64(0))
	got, chunks, err := parseFooter(good, 15)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(blocks) || fmt.Sprint(chunks) != fmt.Sprint(located) {
		f.Fatal(got, chunks, err)
	}
	f.Fuzz(func(t *testing.T, b []byte, data int64) {
		blocks, chunks, err := parseFooter(b, data)
		if err != nil {
			return
		}
		for _, c := range chunks {
			if bl := blocks[c.block]; c.off+c.size > bl.raw || bl.off+int64(bl.stored) > data {
				t.Errorf("%+v lies outside of %+v", c, bl)
			}
		}
		again, more, err := parseFooter(appendFooter(nil, blocks, chunks), data)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(blocks) {
			t.Error(again, err)
		}
		if d := cmp.Diff(len(chunks), len(more)); d != "" {
			t.Error(d)
		}
	})
}
