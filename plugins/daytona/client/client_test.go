// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/plugins/daytona/internal/fake/machine"
	"github.com/berth-dev/berth/sdk/errs"
)

func TestMain(m *testing.M) {
	machine.Enter()
	os.Exit(m.Run())
}

// vendor gives a fake and a client of it.
func vendor(t testing.TB, o fake.Options) (*fake.Fake, *client.Client) {
	t.Helper()
	if err := machine.Supported(); err != nil {
		t.Skip(err)
	}
	f, err := fake.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(client.Options{URL: f.URL + "/api", Token: f.Key()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return f, c
}

// box makes a sandbox and gives its toolbox.
func box(t testing.TB, c *client.Client, want *client.Create) (*client.Sandbox, *client.Toolbox) {
	t.Helper()
	s, err := c.Create(t.Context(), want)
	if err == nil {
		s, err = c.Await(t.Context(), s.ID, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.State != client.StateStarted {
		t.Fatalf("the sandbox is %s: %s", s.State, s.ErrorReason)
	}
	tb, err := c.Toolbox(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, tb
}

func text(s string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

func TestExecute(t *testing.T) {
	_, c := vendor(t, fake.Options{})
	_, tb := box(t, c, &client.Create{})
	out, err := tb.Execute(t.Context(), client.Execution{Command: "echo out; echo err >&2; id -un; pwd; exit 3"})
	if err != nil || out.ExitCode != 3 || out.Result != "out\nerr\ndaytona\n/home/daytona\n" {
		t.Errorf("%+v, %v", out, err)
	}
	// A command that reads standard input reads the lines that follow it.
	out, err = tb.Execute(t.Context(), client.Execution{Command: "cat\necho second"})
	if err != nil || out.Result != "echo second" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err = tb.Execute(t.Context(), client.Execution{Command: "true", Dir: "/nowhere"}); err != nil || out.ExitCode != -1 {
		t.Errorf("in a directory that is not there: %+v, %v", out, err)
	}
	if _, err = tb.Execute(t.Context(), client.Execution{Command: "sleep 60", Timeout: 1}); !errors.Is(err, errs.ExecTimeout) {
		t.Errorf("a command that takes too long: %v", err)
	}
	if _, err = tb.Execute(t.Context(), client.Execution{Command: " "}); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("an empty command: %v", err)
	}
}

func TestSession(t *testing.T) {
	_, c := vendor(t, fake.Options{})
	_, tb := box(t, c, &client.Create{})
	s, err := tb.OpenSession(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tb.OpenSession(t.Context(), "one"); !client.Conflict(err) {
		t.Errorf("a session twice: %v", err)
	}
	r, err := s.Exec(t.Context(), "cd /tmp; X=1; echo out; printf err >&2; (exit 4)", false)
	if err != nil || *r.ExitCode != 4 || *r.Stdout != "out\n" || *r.Stderr != "err\n" { // a newline that nobody wrote
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = s.Exec(t.Context(), `printf 'a\0b'; pwd`, false); err != nil || *r.Stdout != "ab/tmp\n" { // the zero byte is lost
		t.Errorf("%+v, %v", r, err)
	}
	r, err = s.Exec(t.Context(), "read line; echo got $line", true)
	if err != nil || r.ExitCode != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := s.Input(t.Context(), r.ID, "hello"); err != nil {
		t.Error(err)
	}
	eventually(t, func() bool {
		exit, err := s.Command(t.Context(), r.ID)
		return err == nil && exit != nil && *exit == 0
	})
	if out, _, err := s.Logs(t.Context(), r.ID); err != nil || out != "hello\ngot hello\n" {
		t.Errorf("%q, %v", out, err)
	}
	if err := s.Input(t.Context(), r.ID, "more"); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("input after the end: %v", err)
	}

	// An exit ends the shell, and the call never.
	hung := make(chan error, 1)
	go func() {
		_, err := s.Exec(context.WithoutCancel(t.Context()), "exit 7", false)
		hung <- err
	}()
	eventually(t, func() bool {
		_, err := s.Exec(t.Context(), "true", true)
		return err != nil && strings.Contains(err.Error(), "broken pipe")
	})
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-hung; err == nil {
		t.Error("a command that ended its session has an end")
	}
	if _, err := s.Exec(t.Context(), "true", false); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("a command in a session that is not there: %v", err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("it did not happen")
		}
	}
}

func TestPTY(t *testing.T) {
	_, c := vendor(t, fake.Options{})
	_, tb := box(t, c, &client.Create{})
	if err := tb.OpenPTY(t.Context(), &client.PTY{ID: "p", Cols: 100, Rows: 30, LazyStart: true}); err != nil {
		t.Fatal(err)
	}
	conn, err := tb.ConnectPTY(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "stty raw -echo; stty size; printf 'RE''ADY\\1'; exec sh -c 'head -c 200000 | wc -c; exit 5'\n"); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	b := make([]byte, 1<<16)
	for !strings.Contains(said.String(), "READY\x01") {
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(b[:n])
	}
	if !strings.Contains(said.String(), "30 100") {
		t.Errorf("the terminal's size: %q", said.String())
	}
	if err := tb.ResizePTY(t.Context(), "p", 90, 20); err != nil {
		t.Error(err)
	}
	if p, err := tb.PTY(t.Context(), "p"); err != nil || !p.Active || p.Cols != 90 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := conn.Write(make([]byte, 200000)); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(conn)
	if exit, ok := errors.AsType[*client.PTYExit](err); !ok || exit.Code != 5 || strings.TrimSpace(string(rest)) != "200000" {
		t.Errorf("%q, %v", rest, err)
	}
	if _, err := tb.ConnectPTY(t.Context(), "p"); !errors.Is(err, errs.ProcessUnknown) {
		t.Errorf("a terminal that is not there: %v", err)
	}
	if err := tb.DeletePTY(t.Context(), "p"); err != nil {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	_, c := vendor(t, fake.Options{})
	_, tb := box(t, c, &client.Create{})
	if err := tb.Upload(t.Context(), "/home/daytona/d/f", text("hello, file\x00\xff")); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]string{0: "hello, file\x00\xff", 7: "file\x00\xff", 13: "", 99: ""} {
		r, err := tb.Download(t.Context(), "/home/daytona/d/f", offset)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || string(b) != want {
			t.Errorf("from %d: %q, %v", offset, b, err)
		}
	}
	if err := tb.SetMode(t.Context(), "/home/daytona/d/f", 0o700); err != nil {
		t.Error(err)
	}
	if f, err := tb.FileInfo(t.Context(), "/home/daytona/d/f"); err != nil || f.Permissions != "0700" || f.Size != 13 {
		t.Errorf("%+v, %v", f, err)
	}
	if err := tb.MakeDir(t.Context(), "/home/daytona/e", 0o755); err != nil {
		t.Error(err)
	}
	if err := tb.Move(t.Context(), "/home/daytona/d/f", "/home/daytona/e"); !client.Conflict(err) {
		t.Errorf("move onto what is there: %v", err)
	}
	if err := tb.Move(t.Context(), "/home/daytona/d/f", "/home/daytona/e/f"); err != nil {
		t.Error(err)
	}
	if all, err := tb.ListFiles(t.Context(), "/home/daytona/e"); err != nil || len(all) != 1 || all[0].Name != "f" {
		t.Errorf("%+v, %v", all, err)
	}
	for path, want := range map[string]errs.Code{"/home/daytona/none": errs.FileNotFound, "/root/x": errs.PermissionDenied, "/home/daytona/e": errs.InvalidArgument} {
		if _, err := tb.Download(t.Context(), path, 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	if err := tb.Remove(t.Context(), "/home/daytona/e", false); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("remove a directory: %v", err)
	}
	if err := tb.Remove(t.Context(), "/home/daytona/e", true); err != nil {
		t.Error(err)
	}
}

// The states of a life, and what is refused in each.
func TestLife(t *testing.T) {
	f, c := vendor(t, fake.Options{})
	s, tb := box(t, c, &client.Create{Name: "life", Labels: map[string]string{"a": "1"}})
	if _, err := c.Create(t.Context(), &client.Create{Name: "life"}); !client.Conflict(err) {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := c.Create(t.Context(), &client.Create{Snapshot: "none"}); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("a snapshot that is not there: %v", err)
	}
	if _, err := c.Create(t.Context(), &client.Create{CPU: 2}); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("resources with a snapshot: %v", err)
	}
	if err := tb.Upload(t.Context(), "/home/daytona/kept", text("kept")); err != nil {
		t.Fatal(err)
	}
	before, err := c.Preview(t.Context(), s.ID, 3000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stop(t.Context(), "life", false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(t.Context(), "life"); err != nil && !client.StateChanging(err) {
		t.Errorf("start while it stops: %v", err)
	}
	if s, err = c.Await(t.Context(), "life", nil); err != nil {
		t.Fatal(err)
	}
	if s.State == client.StateStopped {
		if _, err := tb.Version(t.Context()); !client.NotStarted(err) {
			t.Errorf("the toolbox of a stopped sandbox: %v", err)
		}
		if _, err := c.Archive(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
		if s, err = c.Await(t.Context(), s.ID, nil); err != nil || s.State != client.StateArchived {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err = c.Start(t.Context(), s.ID); err != nil || s.State != client.StateStarted {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if r, err := tb.Download(t.Context(), "/home/daytona/kept", 0); err != nil {
		t.Error(err)
	} else {
		_ = r.Close() // it is there
	}
	if after, err := c.Preview(t.Context(), s.ID, 3000); err != nil || after.Token == before.Token {
		t.Errorf("the token of previews is the same after a start (%v)", err)
	}
	found := 0
	for l, err := range c.Sandboxes(t.Context(), map[string]string{"a": "1"}) {
		if err != nil || l.ID != s.ID {
			t.Errorf("%+v, %v", l, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d sandboxes have the label", found)
	}
	if _, err := c.Pause(t.Context(), s.ID); !errors.Is(err, errs.Unsupported) {
		t.Errorf("pause: %v", err)
	}

	// Whatever runs in it: a sandbox that nobody speaks with is stopped.
	f.Advance(14 * time.Minute)
	if err := c.Touch(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	f.Advance(14 * time.Minute)
	if s, err = c.Sandbox(t.Context(), s.ID); err != nil || s.State != client.StateStarted {
		t.Errorf("%+v, %v", s, err)
	}
	f.Advance(2 * time.Minute)
	if s, err = c.Await(t.Context(), s.ID, nil); err != nil || s.State != client.StateStopped {
		t.Errorf("%+v, %v", s, err)
	}

	if err := c.Delete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	eventually(t, func() bool {
		_, err := c.Sandbox(t.Context(), s.ID)
		return errors.Is(err, errs.SandboxGone)
	})
	if _, err := tb.Version(t.Context()); err == nil {
		t.Error("the toolbox of a sandbox that is gone answers")
	}
}

func TestBuildFails(t *testing.T) {
	_, c := vendor(t, fake.Options{})
	s, err := c.Create(t.Context(), &client.Create{Build: client.FromImage("unbuildable"), CPU: 2})
	if err != nil || s.State != client.StatePendingBuild {
		t.Fatalf("%+v, %v", s, err)
	}
	if s, err = c.Await(t.Context(), s.ID, nil); err != nil || s.State != client.StateBuildFailed || s.ErrorReason == "" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSnapshotsAndVolumes(t *testing.T) {
	_, c := vendor(t, fake.Options{})
	v, err := c.EnsureVolume(t.Context(), "data")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.EnsureVolume(t.Context(), "data"); err != nil || again.ID != v.ID {
		t.Errorf("%+v, %v", again, err)
	}
	s, tb := box(t, c, &client.Create{Volumes: []client.VolumeMount{{VolumeID: v.ID, MountPath: "/mnt/data", Subpath: "sub"}}})
	for _, path := range []string{"/mnt/data/in-volume", "/home/daytona/in-disk"} {
		if err := tb.Upload(t.Context(), path, text(path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.DeleteVolume(t.Context(), v.ID); !client.Conflict(err) {
		t.Errorf("a volume in use: %v", err)
	}
	if _, err := c.TakeSnapshot(t.Context(), s.ID, "snap", false); err != nil {
		t.Fatal(err)
	}
	if s, err = c.Await(t.Context(), s.ID, nil); err != nil || s.State != client.StateStarted {
		t.Fatalf("%+v, %v", s, err)
	}
	if snap, err := c.Snapshot(t.Context(), "snap"); err != nil || snap.State != client.SnapshotActive {
		t.Fatalf("%+v, %v", snap, err)
	}
	_, other := box(t, c, &client.Create{Snapshot: "snap", Volumes: []client.VolumeMount{{VolumeID: v.ID, MountPath: "/mnt/data"}}})
	for _, path := range []string{"/mnt/data/sub/in-volume", "/home/daytona/in-disk"} {
		if _, err := other.FileInfo(t.Context(), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	names := map[string]bool{}
	for snap, err := range c.Snapshots(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names[snap.Name] = true
	}
	if !names["snap"] || !names[fake.DefaultSnapshot] {
		t.Errorf("snapshots: %v", names)
	}
}

func TestCheck(t *testing.T) {
	f, c := vendor(t, fake.Options{})
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for url, token := range map[string]string{f.URL: f.Key(), f.URL + "/api": "wrong"} {
		other, err := client.New(client.Options{URL: url, Token: token, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		err = other.Check(t.Context())
		if err == nil {
			t.Errorf("%s with %q is taken for the API", url, token)
		}
		if fmt.Sprint(err) != strings.ReplaceAll(fmt.Sprint(err), f.Key(), "") {
			t.Errorf("the key is in %v", err)
		}
	}
}
