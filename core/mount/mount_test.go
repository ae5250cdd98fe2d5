// SPDX-License-Identifier: Apache-2.0

package mount_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/internal/storagetest"
	"github.com/berth-dev/berth/internal/testbin"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// world is a driver, a storage and what was heard.
type world struct {
	*localtest.Host
	s3   *storagetest.S3
	host *mount.Host
	id   string

	mu     sync.Mutex
	events []event.Data // guarded by mu
}

const bucket = "acme"

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount into a sandbox")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("this machine has no FUSE")
	}
	w := &world{Host: localtest.New(t, nil), s3: storagetest.NewS3(t, bucket), id: ulid.Make().String()}
	w.host = &mount.Host{
		Program: testbin.Mount(t), RunDir: filepath.Join(w.Dir, "m"), CacheDir: filepath.Join(w.Dir, "mounts"),
		Environ: os.Environ(), Redact: &redact.Set{},
	}
	return w
}

func (w *world) emit(d event.Data) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, d)
}

// heard gives the warnings.
func (w *world) heard() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, e := range w.events {
		if x, ok := e.(event.Warning); ok {
			fmt.Fprintln(&b, x.Message, "|", x.Hint)
		}
	}
	return b.String()
}

// entry is a mount of the bucket.
func (w *world) entry(path string, readOnly bool, limits map[string]any) spec.Entry {
	return spec.Entry{Kind: spec.EntryMount, Path: path, Ephemeral: true, Mount: &spec.MountEntry{
		Kind: "s3", ReadOnly: readOnly, Strategy: "auto",
		Fields: map[string]any{"bucket": bucket, "endpoint_url": w.s3.Endpoint, "region": "us-east-1", "provider": "AWS"},
		Credentials: map[string]value.Secret{
			"access_key_id": value.PlainSecret(w.s3.KeyID), "secret_access_key": value.PlainSecret(w.s3.Key),
		},
		Settings: map[string]any{"on_failure": "fail", "flush": "turn", "limits": limits},
	}}
}

func (w *world) config(entries ...spec.Entry) sandbox.Config {
	m := &spec.Manifest{Root: spec.DefaultRoot, Entries: entries}
	return sandbox.Config{
		ID: w.id, Manifest: m, Emit: w.emit,
		Mount: func(ctx context.Context, s *sandbox.Session) (sandbox.Mounts, error) {
			return w.host.Attach(ctx, mount.Session{
				ID: w.id, Driver: localtest.Driver, Sandbox: s.Sandbox, Mounts: s.Support(), Entries: mount.Of(m.Entries), Emit: w.emit,
			})
		},
	}
}

// open opens a session that the test ends.
func (w *world) open(t *testing.T, entries ...spec.Entry) *sandbox.Session {
	t.Helper()
	s, err := w.TryOpen(t, w.config(entries...))
	if errors.Is(err, errs.IsolationMissing) || errors.Is(err, errs.Unsupported) && strings.Contains(err.Error(), "mounts of its own") {
		t.Skipf("this machine cannot make such a sandbox: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try runs a script that may fail.
func try(t *testing.T, s *sandbox.Session, script string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return strings.TrimSpace(out.String()), int(exit.Code)
}

// servers are the processes that serve mounts of this world.
func (w *world) servers(t *testing.T) []int {
	t.Helper()
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, d := range dirs {
		b, err := os.ReadFile(d)
		if err == nil && bytes.Contains(b, []byte(w.host.RunDir)) {
			var pid int
			if _, err := fmt.Sscanf(d, "/proc/%d/environ", &pid); err == nil && pid != os.Getpid() {
				out = append(out, pid)
			}
		}
	}
	return out
}

// quick are limits for storage that fails.
func quick() map[string]any {
	return map[string]any{
		"io_timeout": 2 * time.Second, "connect_timeout": time.Second, "probe_timeout": 5 * time.Second, "drain_timeout": 2 * time.Second, "retries": float64(0),
	}
}

func TestReadOnly(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "docs/a.txt", "alpha\n")
	w.s3.Put(t, bucket, "docs/b.txt", storagetest.Lines(20000))
	s := w.open(t, w.entry("data", true, nil))
	if got := localtest.Sh(t, s, "cat data/docs/a.txt; ls data/docs; tail -n 1 data/docs/b.txt; stat -c '%a %U' data/docs/a.txt"); got != "alpha\na.txt\nb.txt\nline 19999\n644 agent" && !strings.HasPrefix(got, "alpha\na.txt\nb.txt\nline 19999\n644 ") {
		t.Errorf("got %q", got)
	}
	for _, script := range []string{"echo x > data/new", "rm data/docs/a.txt", "mkdir data/d", "mv data/docs/a.txt data/docs/c.txt", "umount data", "mount -o remount,rw data"} {
		if out, code := try(t, s, script); code == 0 {
			t.Errorf("%s: %s", script, out)
		}
	}
	if !w.s3.Has(bucket, "docs/a.txt", "alpha\n") {
		t.Error("the object has changed")
	}
	// The file tools see it as commands do.
	if got := localtest.Read(t, s, "data/docs/a.txt"); got != "alpha\n" {
		t.Errorf("read %q", got)
	}
	if err := s.End(t.Context(), "destroy"); err != nil {
		t.Error(err)
	}
	if pids := w.servers(t); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	if left, _ := filepath.Glob(filepath.Join(w.host.CacheDir, "*")); len(left) > 0 {
		t.Errorf("the cache is left: %v", left)
	}
}

func TestReadWrite(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "in.txt", "in\n")
	s := w.open(t, w.entry("data", false, nil))
	localtest.Sh(t, s, `cd data && echo one > one.txt && echo two >> one.txt && cp one.txt sub.txt && mkdir dir && mv sub.txt dir/moved.txt &&
		sed -i s/in/out/ in.txt && printf x > gone && rm gone && dd if=/dev/zero of=big bs=1M count=3 2>/dev/null && truncate -s 5 big`)
	if got := localtest.Sh(t, s, "cd data && cat one.txt dir/moved.txt in.txt; wc -c < big; ls | tr '\\n' ' '"); got != "one\ntwo\none\ntwo\nout\n5\nbig dir in.txt one.txt" {
		t.Errorf("got %q", got)
	}
	if err := s.End(t.Context(), "destroy"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one.txt": "one\ntwo\n", "dir/moved.txt": "one\ntwo\n", "in.txt": "out\n", "big": "\x00\x00\x00\x00\x00"} {
		if got, err := w.s3.Get(bucket, name); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"gone", "sub.txt"} {
		if _, err := w.s3.Get(bucket, name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if got := w.heard(); got != "" {
		t.Errorf("warned: %s", got)
	}
}

// TestCanary looks for the keys wherever a sandbox, a log or another process could.
func TestCanary(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "a", "a")
	s := w.open(t, w.entry("data", false, nil))
	localtest.Sh(t, s, "cat data/a; echo b > data/b")
	forms := []string{w.s3.Key, w.s3.KeyID, base64.StdEncoding.EncodeToString([]byte(w.s3.Key))}
	look := func(where, text string) {
		for _, f := range forms {
			if strings.Contains(text, f) {
				t.Errorf("%s holds a key", where)
			}
		}
	}
	for _, script := range []string{
		"env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'", "cat /proc/self/mountinfo",
		"find /workspace /tmp /run /home /root /etc /var -type f -size -64k 2>/dev/null | head -n 300 | xargs -r cat 2>/dev/null",
	} {
		out, _ := try(t, s, script)
		look("the sandbox: "+script, out)
	}
	pids := w.servers(t)
	if len(pids) != 1 {
		t.Fatalf("processes that serve: %v", pids)
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue // the test knows the keys
		}
		for _, f := range []string{"cmdline", "environ"} {
			b, _ := os.ReadFile(filepath.Join(p, f))
			look(filepath.Join(p, f), string(b))
		}
	}
	err := filepath.WalkDir(w.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what is gone holds nothing
		}
		b, _ := os.ReadFile(p)
		look(p, string(b))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.End(t.Context(), "destroy"); err != nil {
		t.Error(err)
	}
	look("the log", w.Log.String())
	w.mu.Lock()
	look("events", fmt.Sprintf("%+v", w.events))
	w.mu.Unlock()
	if w.host.Redact.String(w.s3.Key) == w.s3.Key {
		t.Error("the key would be shown")
	}
}

func TestWhatCannotBeReached(t *testing.T) {
	w := newWorld(t)
	wrongKey, wrongBucket := w.entry("data", true, quick()), w.entry("data", true, quick())
	wrongKey.Mount.Credentials["secret_access_key"] = value.PlainSecret("not-the-key-of-this-server")
	wrongBucket.Mount.Fields["bucket"] = "other"
	frozen := w.entry("data", true, quick())
	frozen.Mount.Settings["limits"].(map[string]any)["probe_timeout"] = time.Second
	for _, tc := range []struct {
		name, want string
		entry      spec.Entry
		freeze     bool
	}{
		{"wrong key", "refuses the credentials", wrongKey, false},
		{"wrong bucket", "no such bucket", wrongBucket, false},
		{"frozen", "does not answer", frozen, true},
	} {
		if tc.freeze {
			w.s3.Freeze()
		}
		w.id = ulid.Make().String()
		s, err := w.TryOpen(t, w.config(tc.entry))
		if err == nil {
			t.Fatalf("%s: opened: %v", tc.name, s.End(t.Context(), "destroy"))
		}
		e, ok := errors.AsType[*errs.Error](err)
		if !ok || !strings.Contains(fmt.Sprint(err, hint(err)), tc.want) {
			t.Errorf("%s: %v (%+v)", tc.name, err, e)
		}
		if strings.Contains(err.Error(), w.s3.KeyID) || strings.Contains(err.Error(), "not-the-key") {
			t.Errorf("%s: the error holds a key: %v", tc.name, err)
		}
	}
	if pids := w.servers(t); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
}

// hint is the innermost hint of an error.
func hint(err error) string {
	out := ""
	for err != nil {
		e, ok := errors.AsType[*errs.Error](err)
		if !ok {
			break
		}
		if e.Hint != "" {
			out = e.Hint
		}
		err = errors.Unwrap(e)
	}
	return out
}

// TestServerOfFilesIsKilled kills the process that serves a mount while it is read and written.
func TestServerOfFilesIsKilled(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "a", "alpha")
	s := w.open(t, w.entry("data", false, nil))
	localtest.Sh(t, s, "cat data/a; echo kept > data/kept")
	// It has reached the cache with its description, and is yet to be sent or was.
	localtest.Eventually(t, "the write reaches the storage", func() bool { return w.s3.Has(bucket, "kept", "kept\n") })
	pids := w.servers(t)
	if len(pids) != 1 {
		t.Fatalf("processes that serve: %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Until it is mounted again a command gets an error, and never an empty directory.
	localtest.Eventually(t, "the mount is back", func() bool {
		out, code := try(t, s, "cat data/a && ls data")
		if code == 0 && out != "alphaa\nkept" {
			t.Fatalf("an empty directory: %q", out)
		}
		return code == 0
	})
	localtest.Eventually(t, "it is told", func() bool { return strings.Contains(w.heard(), "mounted again") })
	localtest.Sh(t, s, "echo more > data/more")
	if err := s.End(t.Context(), "destroy"); err != nil {
		t.Error(err)
	}
	if !w.s3.Has(bucket, "more", "more\n") {
		t.Error("what was written afterwards is not in the storage")
	}
}

// TestStorageDies ends the storage in the middle, and brings it back.
func TestStorageDies(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "a", "alpha")
	w.s3.Put(t, bucket, "later", "later")
	s := w.open(t, w.entry("data", false, quick()))
	localtest.Sh(t, s, "cat data/a")
	w.s3.Down()
	if out, code := try(t, s, "timeout 60 cat data/later"); code == 0 || code == 124 {
		t.Errorf("read from a storage that is gone: exit %d, %q", code, out)
	}
	w.s3.Up(t)
	localtest.Eventually(t, "the storage is read again", func() bool { _, code := try(t, s, "cat data/later"); return code == 0 })
	w.s3.Freeze()
	localtest.Sh(t, s, "echo lost > data/lost")
	// The sandbox ends all the same, and what is not stored is named.
	err := s.End(t.Context(), "destroy")
	if err == nil || !strings.Contains(err.Error(), "lost") || !strings.Contains(err.Error(), "data") {
		t.Errorf("the end: %v", err)
	}
	w.s3.Thaw()
	if pids := w.servers(t); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	// A later session of the same name sends it.
	s = w.open(t, w.entry("data", false, quick()))
	localtest.Sh(t, s, "ls data")
	localtest.Eventually(t, "what was left is sent", func() bool { return w.s3.Has(bucket, "lost", "lost\n") })
	if err := s.End(t.Context(), "destroy"); err != nil {
		t.Error(err)
	}
}

// TestDriverDies kills the driver; the sandbox and its mounts go on.
func TestDriverDies(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "a", "alpha")
	s := w.open(t, w.entry("data", true, nil))
	localtest.Sh(t, s, "cat data/a")
	w.KillDriver(t)
	if got := localtest.Sh(t, s, "cat data/a; grep -c berth: /proc/self/mountinfo"); got != "alpha1" {
		t.Errorf("got %q", got)
	}
	if err := s.End(t.Context(), "destroy"); err != nil {
		t.Error(err)
	}
}

// TestStopAndResume takes a sandbox up again; the mount is there before any command.
func TestStopAndResume(t *testing.T) {
	w := newWorld(t)
	w.s3.Put(t, bucket, "a", "alpha")
	s := w.open(t, w.entry("data", false, nil))
	localtest.Sh(t, s, "echo one > data/one; echo kept > own")
	state := s.State()
	if err := s.End(t.Context(), "stop"); err != nil {
		t.Fatal(err)
	}
	if !w.s3.Has(bucket, "one", "one\n") {
		t.Error("what was written is not in the storage")
	}
	cfg := w.config(w.entry("data", false, nil))
	cfg.Resume = &state
	s, err := w.TryOpen(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := localtest.Sh(t, s, "cat data/a data/one own"); got != "alphaone\nkept" {
		t.Errorf("got %q", got)
	}
	localtest.Close(t, s, run.Completed)
}
