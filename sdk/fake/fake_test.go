// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/fake"
)

type box interface {
	driver.Sandbox
	driver.FileSystem
	driver.TreeIO
	driver.ProcessTable
	driver.Stopper
	driver.PortForwarder
}

func open(t *testing.T, d *fake.Driver, id string) box {
	t.Helper()
	s, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: id, Workspace: driver.Workspace{Root: "/workspace"}, Env: map[string]string{"GREETING": "hi"}})
	if err != nil {
		t.Fatal(err)
	}
	return s.(box)
}

func run(t *testing.T, s driver.Sandbox, argv ...string) (stdout, stderr string, exit driver.Exit) {
	t.Helper()
	var out, errOut bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: argv}, driver.Streams{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), exit
}

func TestShell(t *testing.T) {
	s := open(t, fake.New(fake.Options{}), "a")
	for script, want := range map[string]struct {
		out, err string
		code     int
	}{
		`echo hello "$GREETING" '$GREETING' \$x`:           {"hello hi $GREETING $x\n", "", 0},
		`false && echo no || echo yes; echo $?`:            {"yes\n0\n", "", 0},
		`true || echo no; echo end`:                        {"end\n", "", 0},
		`echo one > f; echo two >> f; cat f`:               {"one\ntwo\n", "", 0},
		`echo bad >&2; exit 3; echo never`:                 {"", "bad\n", 3},
		`X=1; echo "a${X}b"`:                               {"a1b\n", "", 0},
		`echo abc | cat | tee g; cat g`:                    {"abc\nabc\n", "", 0},
		`cat missing`:                                      {"", "cat: missing: no such file\n", 1},
		`nosuch`:                                           {"", "sh: nosuch: not found\n", 127},
		`mkdir -p d/e; test -d d/e && echo dir; cd d; pwd`: {"dir\n/workspace/d\n", "", 0},
		`printf '%s-%s\n' a b`:                             {"a-b\n", "", 0},
		`sh -c 'echo in; exit 4'`:                          {"in\n", "", 4},
		`signal TERM`:                                      {"", "", 143},
		`both 2 12`:                                        {string(fake.Line(0, 12)), string(fake.Line(1, 12)), 0},
		`echo "unterminated`:                               {"", "sh: syntax error: unterminated \"\n", 2},
	} {
		t.Run(script, func(t *testing.T) {
			out, errOut, exit := run(t, s, "sh", "-c", script)
			if out != want.out || errOut != want.err || exit.Code != want.code {
				t.Errorf("got %q, %q, %d", out, errOut, exit.Code)
			}
		})
	}
	_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"nosuch"}}, driver.Streams{})
	if !errors.Is(err, errs.ExecNotFound) {
		t.Errorf("unknown program: %v", err)
	}
}

func TestStdinTimeoutAndCancel(t *testing.T) {
	s := open(t, fake.New(fake.Options{}), "a")
	var out bytes.Buffer
	if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"cat"}}, driver.Streams{Stdin: strings.NewReader("in"), Stdout: &out}); err != nil || out.String() != "in" {
		t.Errorf("%q, %v", out.String(), err)
	}
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sleep", "60"}, Timeout: 20 * time.Millisecond}, driver.Streams{})
	if err != nil || !exit.TimedOut || exit.Signal != "TERM" {
		t.Errorf("timeout: %+v, %v", exit, err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	_, err = s.Run(ctx, &driver.Command{ID: "c", Argv: []string{"sh", "-c", "trap '' TERM; sleep 60"}, KillGrace: 30 * time.Millisecond}, driver.Streams{})
	if !errors.Is(err, why) {
		t.Errorf("cancel: %v", err)
	}
	procs, err := s.Processes(t.Context())
	if err != nil || procs[len(procs)-1].Exit == nil || procs[len(procs)-1].Exit.Signal != "KILL" {
		t.Errorf("after cancel: %+v, %v", procs, err)
	}
}

// Another driver value with the same directory continues commands to the byte.
func TestResumeInAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, fake.New(fake.Options{Dir: dir}), "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	var first bytes.Buffer
	half := writerFunc(func(p []byte) (int, error) {
		if first.Len() > 4000 {
			cancel(errors.New("the driver is gone"))
			return 0, context.Cause(ctx)
		}
		return first.Write(p)
	})
	_, err := s.Run(ctx, &driver.Command{ID: "c", Argv: []string{"count", "200", "100", "2ms"}, Detached: true}, driver.Streams{Stdout: half})
	if err == nil {
		t.Fatal("the run was not cut")
	}
	again, err := fake.New(fake.Options{Dir: dir}).Resume(t.Context(), &driver.ResumeRequest{SandboxID: "a", State: s.State()})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := again.(box).Attach(t.Context(), "c", uint64(first.Len()), driver.Streams{Stdout: &first})
	if err != nil || exit.OutputBytes != 20000 {
		t.Fatalf("%+v, %v", exit, err)
	}
	var want []byte
	for i := range 200 {
		want = append(want, fake.Line(i, 100)...)
	}
	if !bytes.Equal(first.Bytes(), want) {
		t.Error("the output is not what one process would have written")
	}
	// The first driver is not really gone: its process may still write to the folder.
	if _, err := s.Attach(t.Context(), "c", 0, driver.Streams{}); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFiles(t *testing.T) {
	s := open(t, fake.New(fake.Options{}), "a")
	ctx := t.Context()
	w, err := s.Write(ctx, "d/f", driver.WriteOptions{Parents: true, Mode: 0o600}, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	info, rc, err := s.Open(ctx, "/workspace/d/f", driver.ReadOptions{Offset: 1, Length: 3, IfVersion: w.Info.Version})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(rc); err != nil || string(b) != "ell" || info.Size != 5 || info.Mode != 0o600 {
		t.Errorf("%q, %v, %+v", b, err, info)
	}
	for name, c := range map[string]struct {
		err  error
		want errs.Code
	}{
		"escape":     {second(s.Write(ctx, "../x", driver.WriteOptions{}, strings.NewReader(""))), errs.PathEscapes},
		"absolute":   {second(s.Write(ctx, "/etc/x", driver.WriteOptions{Parents: true}, strings.NewReader(""))), errs.PathEscapes},
		"exclusive":  {second(s.Write(ctx, "d/f", driver.WriteOptions{Exclusive: true}, strings.NewReader(""))), errs.FileExists},
		"version":    {second(s.Write(ctx, "d/f", driver.WriteOptions{IfVersion: "x"}, strings.NewReader(""))), errs.VersionMismatch},
		"directory":  {second(s.Write(ctx, "d", driver.WriteOptions{}, strings.NewReader(""))), errs.IsDirectory},
		"not there":  {s.Remove(ctx, "nope", false, ""), errs.FileNotFound},
		"root":       {s.Remove(ctx, ".", true, ""), errs.InvalidArgument},
		"not empty":  {s.Remove(ctx, "d", false, ""), errs.DirectoryNotEmpty},
		"move":       {s.Move(ctx, "d", "d/e", true, ""), errs.InvalidArgument},
		"move there": {s.Move(ctx, "d/f", "/tmp/f", true, ""), errs.PathEscapes},
		"mkdir":      {s.Mkdir(ctx, "d", 0, false, ""), errs.FileExists},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if err := s.Move(ctx, "d/f", "d/g", false, ""); err != nil {
		t.Error(err)
	}
	var names []string
	for f, err := range s.List(ctx, ".", driver.ListOptions{Recursive: true}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Path)
	}
	if d := cmp.Diff([]string{"d", "d/g"}, names); d != "" {
		t.Error(d)
	}
}

func second[T any](_ T, err error) error { return err }

func TestTree(t *testing.T) {
	s := open(t, fake.New(fake.Options{}), "a")
	run(t, s, "sh", "-c", "mkdir -p a/b; echo 1 > a/f; echo 2 > a/b/g")
	var archive bytes.Buffer
	if err := s.Export(t.Context(), driver.ExportOptions{Path: "a", Exclude: []string{"b"}}, &archive); err != nil {
		t.Fatal(err)
	}
	res, err := s.Import(t.Context(), driver.ImportOptions{Path: "copy"}, &archive)
	if err != nil || res.Members != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if out, _, _ := run(t, s, "cat", "copy/f"); out != "1\n" {
		t.Errorf("got %q", out)
	}
	for _, name := range []string{"../x", "/etc/passwd", "a/../../x"} {
		var hostile bytes.Buffer
		tw := tar.NewWriter(&hostile)
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		tw.Close()
		if _, err := s.Import(t.Context(), driver.ImportOptions{Path: "."}, &hostile); !errors.Is(err, errs.ArchiveInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaults(t *testing.T) {
	lost := errs.New(errs.ExecTransport, "the answer was lost")
	d := fake.New(fake.Options{Faults: []fake.Fault{
		{Op: "create", N: 1, Err: lost, After: true},
		{Op: "files.stat", N: 2, Err: errs.New(errs.RateLimited, "slow down")},
		{Op: "inspect", N: 1, Crash: true},
	}})
	if _, err := d.Create(t.Context(), &driver.CreateRequest{SandboxID: "a"}); !errors.Is(err, errs.ExecTransport) {
		t.Fatalf("got %v", err)
	}
	s := open(t, d, "a") // it was made all the same
	for i, want := range []errs.Code{"", errs.RateLimited, ""} {
		if _, err := s.Stat(t.Context(), []string{"."}, driver.StatOptions{}); errs.CodeOf(err) != want {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if _, err := s.(driver.Inspector).Inspect(t.Context()); !errors.Is(err, errs.DriverCrashed) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Processes(t.Context()); !errors.Is(err, errs.DriverCrashed) {
		t.Errorf("a dead driver answers: %v", err)
	}
	if d.Calls("create") != 2 {
		t.Errorf("%d creates", d.Calls("create"))
	}
}

func TestPorts(t *testing.T) {
	s := open(t, fake.New(fake.Options{}), "a")
	if _, err := s.Dial(t.Context(), 80); !errors.Is(err, errs.PortUnavailable) {
		t.Fatalf("got %v", err)
	}
	done := make(chan error, 1)
	ready := make(chan struct{})
	events := make(chan driver.Event, 4)
	go s.(driver.Watcher).Watch(t.Context(), func(e driver.Event) { events <- e }) // ends with the test
	go func() {
		_, err := s.Run(t.Context(), &driver.Command{ID: "srv", Argv: []string{"listen", "80"}}, driver.Streams{OnStart: func(driver.Started) { close(ready) }})
		done <- err
	}()
	<-ready
	var conn io.ReadWriteCloser
	for conn == nil {
		c, err := s.Dial(t.Context(), 80)
		if err == nil {
			conn = c
		} else if !errors.Is(err, errs.PortUnavailable) {
			t.Fatal(err)
		}
	}
	go fmt.Fprint(conn, "ping")
	buf := make([]byte, 4)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "ping" {
		t.Errorf("%q, %v", buf, err)
	}
	if err := s.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStopAndResume(t *testing.T) {
	d := fake.New(fake.Options{})
	s := open(t, d, "a")
	run(t, s, "sh", "-c", "echo kept > f")
	if err := s.Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), &driver.Command{Argv: []string{"true"}}, driver.Streams{}); !errors.Is(err, errs.SandboxUnknown) {
		t.Errorf("a stopped sandbox runs commands: %v", err)
	}
	again, err := d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: "a", State: s.State()})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, _ := run(t, again, "cat", "f"); out != "kept\n" {
		t.Errorf("got %q", out)
	}
	if again.(driver.Reattached).Reattached() {
		t.Error("a stopped sandbox has its processes")
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*fake.Driver{d, fake.New(fake.Options{})} {
		if _, err := d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: "a", State: s.State()}); !errors.Is(err, errs.SandboxGone) {
			t.Errorf("got %v", err)
		}
	}
}
