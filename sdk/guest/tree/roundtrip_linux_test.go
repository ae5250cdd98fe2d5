// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/tree"
)

// dirFD opens a directory for the test's life.
func dirFD(t testing.TB, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

func exportTree(t testing.TB, path string, opts tree.ExportOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tree.Export(t.Context(), dirFD(t, path), "", &b, opts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func importTree(t testing.TB, path string, archive []byte, opts tree.ImportOptions) (driver.ImportResult, error) {
	t.Helper()
	return tree.Import(t.Context(), dirFD(t, path), bytes.NewReader(archive), opts)
}

// entry is what a round trip must keep.
type entry struct {
	Mode    uint32
	UID     uint32
	Size    int64
	Mtime   int64
	Target  string
	Content string
	Twin    string // the first path of the same file
}

// listing describes a tree.
func listing(t testing.TB, root string) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	first := map[uint64]string{}
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		e := entry{Mode: st.Mode, UID: st.Uid, Mtime: st.Mtim.Nano()}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			e.Target, err = os.Readlink(path)
		case unix.S_IFREG:
			e.Size = st.Size
			var b []byte
			b, err = os.ReadFile(path)
			sum := sha256.Sum256(b)
			e.Content = hex.EncodeToString(sum[:8])
		}
		if err != nil {
			return err
		}
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if f, ok := first[st.Ino]; ok {
				e.Twin = f
			} else {
				first[st.Ino] = rel
			}
		}
		out[rel] = e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// grow makes a random tree.
func grow(t testing.TB, root string, rnd *rand.Rand) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	dirs, files := []string{root}, []string{}
	name := func() string {
		pool := []string{
			"a", "file.txt", "-rf", "sp ace", "new\nline", "tab\t", "\xff\xfe", "ünï", "quo\"te", `back\slash`, "C:x", "*", "~", "...", ".hidden", "=", "%s",
			strings.Repeat("l", 120), strings.Repeat("é", 100), strings.Repeat("\xf0", 200),
		}
		return fmt.Sprintf("%s%d", pool[rnd.IntN(len(pool))], rnd.IntN(1000))
	}
	for range 60 {
		dir := dirs[rnd.IntN(len(dirs))]
		path := dir + "/" + name()
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		switch rnd.IntN(8) {
		case 0, 1:
			must(os.Mkdir(path, 0o755))
			dirs = append(dirs, path)
		case 2:
			targets := []string{"/absolute/none", "dangling", "..", "../../../../etc/passwd", "file.txt", strings.Repeat("x/", 120), "\xff", "ünï", "/"}
			must(os.Symlink(targets[rnd.IntN(len(targets))], path))
		case 3:
			if len(files) > 0 {
				must(os.Link(files[rnd.IntN(len(files))], path))
			}
		case 4:
			f, err := os.Create(path) //nolint:forbidigo // in a directory of the test
			must(err)
			for range rnd.IntN(4) {
				_, err = f.WriteAt(bytes.Repeat([]byte("d"), rnd.IntN(9000)), rnd.Int64N(1<<21))
				must(err)
			}
			must(f.Truncate(rnd.Int64N(1 << 22)))
			must(f.Close())
			files = append(files, path)
		default:
			sizes := []int{0, 1, 511, 512, 513, 64 << 10, 64<<10 + 1, 128 << 10, 128<<10 + 1, 300_000}
			b := make([]byte, sizes[rnd.IntN(len(sizes))])
			for i := range b {
				b[i] = byte(rnd.IntN(256))
			}
			must(os.WriteFile(path, b, 0o600))
			files = append(files, path)
		}
	}
	// Modes and times last, the deepest first.
	for _, f := range slices.Backward(files) {
		must(unix.Chmod(f, uint32(rnd.IntN(0o1000))))
		must(os.Chtimes(f, time.Time{}, time.Unix(rnd.Int64N(2e9)-1e8, rnd.Int64N(1e9))))
	}
	for _, d := range slices.Backward(dirs) {
		must(unix.Chmod(d, uint32(rnd.IntN(0o1000))|0o700))
		must(os.Chtimes(d, time.Time{}, time.Unix(rnd.Int64N(2e9), rnd.Int64N(1e9))))
	}
}

func TestRoundTripKeepsEverything(t *testing.T) {
	check := func(seed uint64) bool {
		src, dst := t.TempDir(), t.TempDir()
		grow(t, src, rand.New(rand.NewPCG(seed, 1)))
		archive := exportTree(t, src, tree.ExportOptions{})
		if _, err := importTree(t, dst, archive, tree.ImportOptions{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := cmp.Diff(listing(t, src), listing(t, dst)); d != "" {
			t.Logf("seed %d:\n%s", seed, d)
			return false
		}
		// The same tree gives the same bytes.
		return bytes.Equal(archive, exportTree(t, src, tree.ExportOptions{}))
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 4}); err != nil {
		t.Error(err)
	}
}

// TestTarReadsOurs and TestWeReadTars hold us to what others mean by the format.
func TestTarReadsOurs(t *testing.T) {
	tarPath, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("no tar program here")
	}
	src, dst := t.TempDir(), t.TempDir()
	grow(t, src, rand.New(rand.NewPCG(7, 7)))
	if err := unix.Mkfifo(src+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	archive := exportTree(t, src, tree.ExportOptions{})
	cmd := exec.CommandContext(t.Context(), tarPath, "-xpf", "-", "-C", dst)
	cmd.Stdin = bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	want := listing(t, src)
	delete(want, "fifo")
	if d := cmp.Diff(want, listing(t, dst)); d != "" {
		t.Error(d)
	}
}

func TestWeReadTars(t *testing.T) {
	tarPath, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("no tar program here")
	}
	src := t.TempDir()
	grow(t, src, rand.New(rand.NewPCG(8, 8)))
	for _, format := range []string{"--format=gnu", "--format=pax", "--format=gnu -S", "--format=pax -S", "--format=pax -S --sparse-version=0.1", "--format=pax -S --sparse-version=0.0"} {
		t.Run(format, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), tarPath, append(strings.Fields(format), "-cf", "-", "-C", src, ".")...)
			archive, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			dst := t.TempDir()
			if _, err := importTree(t, dst, archive, tree.ImportOptions{}); err != nil {
				t.Fatal(err)
			}
			want, got := listing(t, src), listing(t, dst)
			if strings.Contains(format, "gnu") { // whole seconds only
				for _, m := range []map[string]entry{want, got} {
					for k, e := range m {
						e.Mtime = time.Unix(0, e.Mtime).Unix()
						m[k] = e
					}
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestHolesStayHoles(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	f, err := os.Create(src + "/big") //nolint:forbidigo // in a directory of the test
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, 2 << 20, 10 << 20} {
		if _, err := f.WriteAt([]byte("data"), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := os.Truncate(src+"/big", 16<<20); err != nil {
		t.Fatal(err)
	}
	archive := exportTree(t, src, tree.ExportOptions{})
	if len(archive) > 1<<20 {
		t.Errorf("the archive of a sparse file has %d bytes", len(archive))
	}
	if _, err := importTree(t, dst, archive, tree.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(listing(t, src), listing(t, dst)); d != "" {
		t.Error(d)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dst+"/big", &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 1<<20 {
		t.Errorf("the file takes %d bytes after the round trip", st.Blocks*512)
	}
}
