// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/sandbox"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/internal/localtest"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func file(path, content string, edit func(*spec.Entry)) spec.Entry {
	e := spec.Entry{Kind: spec.EntryFile, Path: path, File: &spec.FileEntry{Content: []byte(content)}}
	if edit != nil {
		edit(&e)
	}
	return e
}

func mode(m uint32) func(*spec.Entry) { return func(e *spec.Entry) { e.Mode = &m } }

func manifest(entries ...spec.Entry) *spec.Manifest {
	return &spec.Manifest{Root: spec.DefaultRoot, Entries: entries}
}

// left gives what a sandbox has left below the driver's and the core's directories.
func left(t testing.TB, h *localtest.Host, id string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(h.Dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), id) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

type recorder struct {
	mu     sync.Mutex
	events []event.Data // guarded by mu
}

func (r *recorder) emit(d event.Data) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, d)
}

func (r *recorder) ended() (outcomes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.events {
		if e, ok := d.(event.SandboxEnded); ok {
			outcomes = append(outcomes, e.Outcome)
		}
	}
	return outcomes
}

// The workspace holds what the manifest says, with modes and links, and a second one is the same and independent.
func TestFill(t *testing.T) {
	h := localtest.New(t, nil)
	src := filepath.Join(t.TempDir(), "src")
	if err := errors.Join(os.MkdirAll(filepath.Join(src, "sub"), 0o755), os.WriteFile(filepath.Join(src, "sub", "x.sh"), []byte("#!/bin/sh\necho ran\n"), 0o755), // an executable
		os.WriteFile(filepath.Join(src, "plain"), []byte("p"), 0o600), os.Symlink("sub/x.sh", filepath.Join(src, "link"))); err != nil {
		t.Fatal(err)
	}
	m := manifest(
		spec.Entry{Kind: spec.EntryDir, Path: "empty", Mode: new(uint32(0o700))},
		file("a/b/c.txt", "deep\n", nil),
		file("run", "#!/bin/sh\necho run\n", func(e *spec.Entry) { e.File.Executable = true }),
		file("secret", "s", mode(0o600)),
		file("odd name é", "o", mode(0o444)),
		spec.Entry{Kind: spec.EntryLocalDir, Path: "tree", LocalDir: &spec.LocalDirEntry{Source: src, Symlinks: "preserve", KeepModes: true}},
		spec.Entry{Kind: spec.EntryLocalFile, Path: "one", LocalFile: &spec.LocalFileEntry{Source: filepath.Join(src, "plain")}},
	)
	const look = `stat -c '%a %F %n' empty a/b/c.txt run secret odd* tree/sub/x.sh tree/plain; readlink tree/link; ./run; tree/link; cat a/b/c.txt one; id -un; stat -c %U run empty; echo > a/b/new`
	var first string
	for i := range 2 {
		s := h.Open(t, sandbox.Config{Manifest: m})
		began := time.Now()
		got := localtest.Sh(t, s, look)
		if i == 0 {
			first = got
			for _, want := range []string{
				"700 directory empty", "644 regular file a/b/c.txt", "755 regular file run", "600 regular file secret", "444 regular file odd name é",
				"755 regular file tree/sub/x.sh", "600 regular file tree/plain", "sub/x.sh\nrun\nran\ndeep\np",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in:\n%s", want, got)
				}
			}
			localtest.Sh(t, s, "echo changed > a/b/c.txt; rm run")
		} else if got != first {
			t.Errorf("the second is another:\n%s\nthe first was:\n%s", got, first)
		}
		p, ok := s.Sandbox.(driver.Preserved)
		if !ok {
			t.Fatal("the driver does not say whether the workspace was preserved")
		}
		t.Logf("workspace %d: preserved %v, first command after %s", i+1, p.WorkspacePreserved(), time.Since(began).Round(time.Millisecond))
	}
}

// A create that fails says why and leaves nothing.
func TestFailedCreate(t *testing.T) {
	h := localtest.New(t, nil)
	for name, c := range map[string]struct {
		cfg  sandbox.Config
		want string
		code errs.Code
	}{
		"members": {
			sandbox.Config{Manifest: manifest(file("a", "", nil), file("b", "", nil), file("c", "", nil)), Spec: &spec.Sandbox{Archive: spec.ArchiveLimits{MaxMembers: 2}}},
			"raise archive_limits in the sandbox block", errs.ArchiveLimit,
		},
		"bytes": {
			sandbox.Config{Manifest: manifest(file("a", strings.Repeat("x", 1<<20), nil)), Spec: &spec.Sandbox{Archive: spec.ArchiveLimits{MaxExtractedBytes: 1 << 10}}},
			"raise archive_limits in the sandbox block", errs.ArchiveLimit,
		},
		"network":  {sandbox.Config{Spec: &spec.Sandbox{Network: spec.Network{Mode: "allow_list"}}}, `network = "none"`, errs.Unsupported},
		"lifetime": {sandbox.Config{Spec: &spec.Sandbox{Lifetime: spec.Lifetime{Max: time.Hour}}}, "cannot end a sandbox at a time", errs.Unsupported},
		"grant":    {sandbox.Config{Manifest: &spec.Manifest{Root: spec.DefaultRoot, Grants: []spec.PathGrant{{Path: "/g", HostPath: "/no/such/path"}}}}, "/no/such/path", ""},
		"mount":    {sandbox.Config{Manifest: manifest(spec.Entry{Kind: spec.EntryMount, Path: "m", Pos: spec.Pos{File: "f.hcl", Line: 3}})}, `f.hcl:3: mount "m"`, errs.Unsupported},
		"local":    {sandbox.Config{Manifest: manifest(spec.Entry{Kind: spec.EntryLocalFile, Path: "x", LocalFile: &spec.LocalFileEntry{Source: "/etc/no-such-file"}})}, "no-such-file", ""},
		"secret": {sandbox.Config{Manifest: &spec.Manifest{Root: spec.DefaultRoot, Environment: []spec.EnvVar{{Name: "TOKEN", Secret: value.NewSecret("", func(context.Context) (string, error) {
			return "", errors.New("the store is locked")
		})}}}}, "environment variable TOKEN: the store is locked", ""},
		"late": {sandbox.Config{Spec: &spec.Sandbox{Timeouts: spec.Timeouts{Create: new(time.Nanosecond)}}}, "create the sandbox: not done within 1ns", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.ID = ulid.Make().String()
			s, err := h.TryOpen(t, c.cfg)
			if err == nil {
				_ = s.Destroy(t.Context())
				t.Fatal("it was made")
			}
			if hint := hintOf(err); !strings.Contains(err.Error()+hint, c.want) || (c.code != "" && errs.CodeOf(err) != c.code) {
				t.Errorf("%v (%s, code %s)", err, hint, errs.CodeOf(err))
			}
			if found := left(t, h, c.cfg.ID); len(found) > 0 {
				t.Errorf("left: %v", found)
			}
		})
	}
}

func hintOf(err error) string {
	if e, ok := errors.AsType[*errs.Error](err); ok {
		return " hint: " + e.Hint
	}
	return ""
}

// Variables reach the commands; secret ones are in no record.
func TestEnvironment(t *testing.T) {
	h := localtest.New(t, nil)
	secret := "s3cr3t-" + ulid.Make().String()
	missing := value.NewOptionalSecret("", func(context.Context) (string, bool, error) { return "", false, nil })
	id := ulid.Make().String()
	s := h.Open(t, sandbox.Config{ID: id, Manifest: &spec.Manifest{Root: spec.DefaultRoot, Environment: []spec.EnvVar{
		{Name: "PLAIN", Value: spec.Text{Literal: "a b\n$c"}}, {Name: "TOKEN", Secret: value.PlainSecret(secret)}, {Name: "MISSING", Secret: missing},
	}}})
	if got := localtest.Sh(t, s, `printf '%s|%s|%s' "$PLAIN" "$TOKEN" "${MISSING-not set}"`); got != "a b\n$c|"+secret+"|not set" {
		t.Errorf("%q", got)
	}
	state := s.State()
	if bytes.Contains(state.Data, []byte(secret)) || strings.Contains(fmt.Sprint(state.Display), secret) || strings.Contains(h.Log.String(), secret) {
		t.Error("the secret is in the state or in the log")
	}
	err := filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read has no secret for others
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(secret)) {
			t.Errorf("the secret is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"environ", "cmdline"} {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", h.DriverPID(), name)); err != nil || bytes.Contains(b, []byte(secret)) {
			t.Errorf("the driver's %s: %v", name, err)
		}
	}
	if len(localtest.Marked(t, secret)) > 0 {
		t.Error("the secret is in a command line")
	}
}

func TestGrants(t *testing.T) {
	h := localtest.New(t, nil)
	dir := filepath.Join(h.Dir, "g")
	for _, d := range []string{h.Dir, dir, dir + "/ro", dir + "/rw"} {
		if err := errors.Join(os.MkdirAll(d, 0o755), os.Chmod(d, 0o777), os.WriteFile(d+"/f", []byte("host\n"), 0o644)); err != nil { // the sandbox's user is another
			t.Fatal(err)
		}
	}
	s := h.Open(t, sandbox.Config{Manifest: &spec.Manifest{Root: spec.DefaultRoot, Grants: []spec.PathGrant{
		{Path: "/data/ro", HostPath: dir + "/ro", ReadOnly: true}, {Path: "/data/rw", HostPath: dir + "/rw"},
	}}})
	got := localtest.Sh(t, s, fmt.Sprintf("cat /data/ro/f /data/rw/f; echo new > /data/rw/new && echo written; (echo x > /data/ro/new) 2>/dev/null || echo refused; cat %s/f 2>/dev/null || echo hidden", dir))
	if got != "host\nhost\nwritten\nrefused\nhidden" {
		t.Errorf("%q", got)
	}
	if b, err := os.ReadFile(dir + "/rw/new"); err != nil || string(b) != "new\n" {
		t.Errorf("%q, %v", b, err)
	}
	if got := localtest.Read(t, s, "/data/ro/f"); got != "host\n" {
		t.Errorf("%q", got)
	}
	if _, err := s.Write(t.Context(), "/data/ro/f", driver.WriteOptions{}, strings.NewReader("x")); err == nil {
		t.Error("a file of a read-only grant was written")
	}
}

func TestAccounts(t *testing.T) {
	h := localtest.New(t, nil)
	s := h.Open(t, sandbox.Config{RunAs: "ada", Manifest: &spec.Manifest{
		Root: spec.DefaultRoot, Users: []string{"bob"}, OwnByRunAs: true,
		Groups:  []spec.Group{{Name: "team", Users: []string{"ada", "carol"}}},
		Entries: []spec.Entry{file("own", "x", mode(0o640)), file("bobs", "x", func(e *spec.Entry) { e.Owner, e.Group = "bob", "team" })},
	}})
	got := localtest.Sh(t, s, "id -un; id -Gn; stat -c '%U:%G %a' own bobs; id -u carol >/dev/null && echo carol; touch mine && stat -c %U mine; stat -c %U .")
	for _, want := range []string{"ada\nada team\nada:", " 640\nbob:team 644\ncarol\nada\nada"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "id -un; cat own"}, User: "bob"}, driver.Streams{Stdout: &out})
	if err != nil || exit.Code == 0 || !strings.HasPrefix(out.String(), "bob\n") {
		t.Errorf("bob read ada's file: %+v, %v, %q", exit, err, out.String())
	}
}

// What becomes of a sandbox is what the policy says, and no process is left except where it is kept.
func TestClose(t *testing.T) {
	h := localtest.New(t, nil)
	for name, c := range map[string]struct {
		atEnd   string
		keep    bool
		status  run.Status
		outcome string
	}{
		"complete":         {"", false, run.Completed, "destroyed"},
		"cancelled":        {"", false, run.Cancelled, "stopped"},
		"failed":           {"", false, run.Failed, "stopped"},
		"keep flag":        {"", true, run.Completed, "stopped"},
		"keep over policy": {"destroy", true, run.Completed, "stopped"},
		"destroy":          {"destroy", false, run.Cancelled, "destroyed"},
		"stop":             {"stop", false, run.Completed, "stopped"},
		"keep":             {"keep", false, run.Completed, "kept"},
	} {
		t.Run(name, func(t *testing.T) {
			var rec recorder
			mark := localtest.Mark()
			cfg := sandbox.Config{
				ID: ulid.Make().String(), Emit: rec.emit, Keep: c.keep, Manifest: manifest(file("a", "from the manifest", nil)),
				Spec: &spec.Sandbox{Session: spec.SessionPolicy{AtEnd: c.atEnd}},
			}
			s, err := h.TryOpen(t, cfg)
			if err != nil {
				t.Fatal(err)
			}
			localtest.Sh(t, s, fmt.Sprintf("echo work > b; (setsid sh -c 'sleep 1000; : %s' >/dev/null 2>&1 &)", mark))
			localtest.Eventually(t, "the background process runs", func() bool { return len(localtest.Marked(t, mark)) > 0 })
			state := s.State()
			localtest.Close(t, s, c.status)
			if got := rec.ended(); len(got) != 1 || got[0] != c.outcome {
				t.Errorf("outcomes %v", got)
			}
			if c.outcome != "kept" {
				localtest.Eventually(t, "no process is left", func() bool { return len(localtest.Marked(t, mark)) == 0 })
			}
			cfg.Resume = &state
			again, err := h.TryOpen(t, cfg)
			if c.outcome == "destroyed" {
				if !errors.Is(err, errs.SandboxGone) {
					t.Errorf("a sandbox that was destroyed: %v", err)
				}
				if found := left(t, h, cfg.ID); len(found) > 0 {
					t.Errorf("left: %v", found)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// The workspace is as it was left, not filled again.
			if got := localtest.Sh(t, again, "cat a b"); got != "from the manifestwork" {
				t.Errorf("%q", got)
			}
			if running := len(localtest.Marked(t, mark)) > 0; running != (c.outcome == "kept") {
				t.Errorf("background process: %v", running)
			}
			if err := again.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			localtest.Eventually(t, "no process is left", func() bool { return len(localtest.Marked(t, mark)) == 0 })
			if found := left(t, h, cfg.ID); len(found) > 0 {
				t.Errorf("left: %v", found)
			}
		})
	}
}
