// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/tree"
)

func TestExportTellsWhatItLeavesOut(t *testing.T) {
	src := t.TempDir()
	for _, f := range []string{"a", "out.log", "node_modules/x", ".berth-tmp-0123456789abcdef", "strange\nname"} {
		must(t, os.MkdirAll(filepath.Dir(src+"/"+f), 0o755))
		must(t, os.WriteFile(src+"/"+f, []byte(f), 0o600))
	}
	must(t, unix.Mkfifo(src+"/fi\nfo", 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: src + "/sock"}))

	var called []driver.Skipped
	data := exportTree(t, src, tree.ExportOptions{
		Exclude: []string{"*.log", "node_modules/"}, Skipped: func(s driver.Skipped) { called = append(called, s) },
	})
	var names []string
	var told []driver.Skipped
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err != nil {
			break
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			told = append(told, driver.Skipped{Path: h.PAXRecords[driver.PAXSkippedPath], Reason: h.PAXRecords[driver.PAXSkippedReason]})
			continue
		}
		names = append(names, h.Name)
	}
	if d := cmp.Diff([]string{"./", "a", "strange\nname"}, names); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(called, told); d != "" {
		t.Error(d)
	}
	if len(told) != 2 || told[0].Path != "fi\nfo" || !strings.HasPrefix(told[0].Reason, "FIFO") || told[1].Path != "sock" || !strings.HasPrefix(told[1].Reason, "socket") {
		t.Errorf("%+v", told)
	}
	if res, err := importTree(t, t.TempDir(), data, tree.ImportOptions{}); err != nil || res.Members != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}

// shrinker cuts a file while its archive is being written.
type shrinker struct {
	bytes.Buffer
	path string
}

func (s *shrinker) Write(p []byte) (int, error) {
	if s.Len() > 0 {
		_ = os.Truncate(s.path, 300_000)
	}
	return s.Buffer.Write(p)
}

func TestFileThatShrinksWhileItIsRead(t *testing.T) {
	src := t.TempDir()
	must(t, os.WriteFile(src+"/big", bytes.Repeat([]byte("x"), 4<<20), 0o600))
	must(t, os.WriteFile(src+"/next", []byte("fine"), 0o600))
	w := &shrinker{path: src + "/big"}
	var skipped []driver.Skipped
	must(t, tree.Export(t.Context(), dirFD(t, src), "", w, tree.ExportOptions{Skipped: func(s driver.Skipped) { skipped = append(skipped, s) }}))
	if len(skipped) != 1 || skipped[0].Path != "big" || !strings.Contains(skipped[0].Reason, "shrank") {
		t.Errorf("%+v", skipped)
	}
	dst := t.TempDir()
	_, err := importTree(t, dst, w.Bytes(), tree.ImportOptions{})
	must(t, err)
	if b, err := os.ReadFile(dst + "/next"); err != nil || string(b) != "fine" {
		t.Errorf("what follows is damaged: %q, %v", b, err)
	}
}

func TestHostReferences(t *testing.T) {
	host, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	big := bytes.Repeat([]byte("0123456789"), 300_000)
	must(t, os.Mkdir(host+"/d", 0o755))
	must(t, os.WriteFile(host+"/d/big", big, 0o600))
	must(t, os.WriteFile(host+"/d/small", []byte("small"), 0o600))
	must(t, os.WriteFile(host+"/d/empty", nil, 0o600))
	must(t, os.Symlink("d", host+"/link"))
	must(t, unix.Mkfifo(host+"/d/fifo", 0o600))
	ref := func(name, path string, change func(*unix.Stat_t)) member {
		var st unix.Stat_t
		must(t, unix.Stat(path, &st))
		if change != nil {
			change(&st)
		}
		return member{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o751, Format: tar.FormatPAX, PAXRecords: map[string]string{
			driver.PAXSource: path, driver.PAXSourceID: fmt.Sprintf("%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano()),
		}}}
	}
	dst := t.TempDir()
	res, err := importTree(t, dst, archive(t, ref("x/big", host+"/d/big", nil), ref("small", host+"/d/small", nil), ref("empty", host+"/d/empty", nil)),
		tree.ImportOptions{HostReferences: true})
	must(t, err)
	if res.Members != 3 || res.Bytes != uint64(len(big)+5) {
		t.Errorf("%+v", res)
	}
	for name, want := range map[string][]byte{"x/big": big, "small": []byte("small"), "empty": {}} {
		b, err := os.ReadFile(dst + "/" + name)
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		if st, err := os.Stat(dst + "/" + name); err != nil || st.Mode().Perm() != 0o751 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	body := ref("m", host+"/d/small", nil)
	body.Size, body.body = 1, "x"
	badID := ref("m", host+"/d/small", nil)
	badID.PAXRecords[driver.PAXSourceID] = "1:2:x"
	relative := ref("m", host+"/d/small", nil)
	relative.PAXRecords[driver.PAXSource] = "d/small"
	for what, c := range map[string]struct {
		m    member
		want errs.Code
	}{
		"another file":     {ref("m", host+"/d/small", func(st *unix.Stat_t) { st.Ino++ }), errs.VersionMismatch},
		"another time":     {ref("m", host+"/d/small", func(st *unix.Stat_t) { st.Mtim.Nsec++ }), errs.VersionMismatch},
		"another size":     {ref("m", host+"/d/small", func(st *unix.Stat_t) { st.Size = 4 }), errs.VersionMismatch},
		"through a link":   {ref("m", host+"/link/small", nil), errs.VersionMismatch},
		"a directory":      {ref("m", host+"/d", nil), errs.VersionMismatch},
		"a FIFO":           {ref("m", host+"/d/fifo", nil), errs.VersionMismatch},
		"with a body":      {body, errs.ArchiveInvalid},
		"identity garbled": {badID, errs.ArchiveInvalid},
		"relative":         {relative, errs.ArchiveInvalid},
		"too big":          {ref("m", host+"/d/big", nil), errs.ArchiveLimit},
	} {
		root := t.TempDir()
		_, err := importTree(t, root, archive(t, file("before", "1"), c.m), tree.ImportOptions{HostReferences: true, Limits: driver.TreeLimits{MaxExtractedBytes: 1 << 20}})
		var e *errs.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Context["member"] != "m" {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if _, err := os.Lstat(root + "/m"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was left: %v", what, err)
		}
	}
}

func TestExportStopsWithItsContext(t *testing.T) {
	src := t.TempDir()
	must(t, os.WriteFile(src+"/big", make([]byte, 8<<20), 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	w := writerFunc(func(p []byte) (int, error) { cancel(errors.New("enough")); return len(p), nil })
	if err := tree.Export(ctx, dirFD(t, src), "", w, tree.ExportOptions{}); !errors.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
