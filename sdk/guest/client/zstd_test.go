// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// compressed is an archive with one file.
func compressed(t *testing.T, name string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.Codec{}.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The guest itself unpacks compressed archives, within the limits, and says that it makes none.
func TestCompressedImport(t *testing.T) {
	g := begin(t, nil)
	c := g.connect(t)
	body := bytes.Repeat([]byte("compress me "), 1<<20)
	archive := compressed(t, "sub/file", body)
	opts := driver.ImportOptions{Path: "in", Compression: "zstd", Limits: driver.TreeLimits{MaxInputBytes: uint64(len(archive)) + 64}}
	res, err := c.Import(t.Context(), opts, bytes.NewReader(archive))
	if err != nil || res.Bytes != uint64(len(body)) {
		t.Fatalf("%+v, %v", res, err)
	}
	if got, err := os.ReadFile(filepath.Join(g.root, "in", "sub", "file")); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	opts.Limits.MaxExtractedBytes = 1 << 20
	if _, err := c.Import(t.Context(), opts, bytes.NewReader(archive)); !errors.Is(err, errs.ArchiveLimit) {
		t.Errorf("more than may be extracted: %v", err)
	}
	opts.Limits.MaxExtractedBytes = 0
	if _, err := c.Import(t.Context(), opts, bytes.NewReader(archive[:len(archive)/2])); !errors.Is(err, errs.ArchiveInvalid) {
		t.Errorf("half an archive: %v", err)
	}
	if err := c.Export(t.Context(), driver.ExportOptions{Compression: "zstd"}, &bytes.Buffer{}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("a compressed export: %v", err)
	}
}
