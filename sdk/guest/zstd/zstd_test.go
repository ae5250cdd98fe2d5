// SPDX-License-Identifier: Apache-2.0

package zstd_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/fsys"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

func open(t *testing.T, root string) *fsys.FS {
	t.Helper()
	fs, err := fsys.Open(root, fsys.Options{Codecs: map[string]fsys.Codec{"zstd": zstd.Codec{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

func TestRoundTrip(t *testing.T) {
	src, dst := open(t, t.TempDir()), t.TempDir()
	body := bytes.Repeat([]byte("compress me "), 100_000)
	if _, err := src.Write(t.Context(), "a/b", driver.WriteOptions{Parents: true}, bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := src.Export(t.Context(), driver.ExportOptions{Compression: "zstd"}, &b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 100_000 {
		t.Errorf("%d bytes are not compressed", b.Len())
	}
	archive := bytes.Clone(b.Bytes())
	if _, err := open(t, dst).Import(t.Context(), driver.ImportOptions{Compression: "zstd"}, &b); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst + "/a/b"); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for n := range 4 {
		_, err := open(t, t.TempDir()).Import(t.Context(), driver.ImportOptions{Compression: "zstd"}, bytes.NewReader(archive[:len(archive)*n/4]))
		if !errors.Is(err, errs.ArchiveInvalid) {
			t.Errorf("cut after %d quarters: %v", n, err)
		}
	}
}

// TestBomb has little input and a lot of output: content first, then nothing but headers that unpack to nothing.
func TestBomb(t *testing.T) {
	for name, members := range map[string]func(*tar.Writer) error{
		"content": func(w *tar.Writer) error {
			if err := w.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 64 << 20}); err != nil {
				return err
			}
			_, err := w.Write(make([]byte, 64<<20))
			return err
		},
		"headers": func(w *tar.Writer) error {
			for range 500 {
				h := &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"BERTH.x": string(make([]byte, 100_000))}}
				if err := w.WriteHeader(h); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		var b bytes.Buffer
		z, err := zstd.Codec{}.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(z)
		if err := members(w); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		if b.Len() > 1<<20 {
			t.Fatalf("%s: no bomb with %d bytes", name, b.Len())
		}
		limits := driver.TreeLimits{MaxExtractedBytes: 10 << 20, MaxMembers: 100}
		_, err = open(t, t.TempDir()).Import(t.Context(), driver.ImportOptions{Compression: "zstd", Limits: limits}, &b)
		if !errors.Is(err, errs.ArchiveLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
