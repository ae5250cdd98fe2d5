// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/proc"
	"github.com/berth-dev/berth/sdk/guest/proc/output"
)

// table makes a table that is closed with the test. Nothing else in these tests may start processes: the table reaps all.
// (exec.LookPath starts none.)
func table(t testing.TB, change func(*proc.Config)) *proc.Table {
	t.Helper()
	cfg := proc.Config{Root: t.TempDir(), Env: map[string]string{"PATH": os.Getenv("PATH"), "BASE": "base"}}
	if change != nil {
		change(&cfg)
	}
	tb, err := proc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Second, errors.New("slow close")) //nolint:usetesting // the test's own context has ended in a cleanup
		defer cancel()
		if err := tb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// collect reads everything that a process writes, by stream.
func collect(t testing.TB, p *proc.Process) (stdout, stderr string, exit driver.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 60*time.Second, errors.New("the process did not end"))
	defer cancel()
	r := p.Reader(0)
	defer r.Close()
	var out, er bytes.Buffer
	buf := make([]byte, 64<<10)
	for {
		err := r.Wait(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n, stream, gap := r.Next(buf)
		if gap != (driver.Gap{}) {
			t.Errorf("gap %v", gap)
		}
		if stream == output.Stderr {
			er.Write(buf[:n])
		} else {
			out.Write(buf[:n])
		}
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), er.String(), exit
}

func start(t testing.TB, tb *proc.Table, cmd *driver.Command) *proc.Process {
	t.Helper()
	p, out, err := tb.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	return p
}

func shell(script string) *driver.Command { return &driver.Command{Argv: []string{"sh", "-c", script}} }

func TestRun(t *testing.T) {
	tb := table(t, nil)
	cmd := shell(`echo "$BASE $MINE $SECRET"; echo err >&2; pwd; exit 7`)
	cmd.Env = map[string]string{"MINE": "\xff"}
	cmd.SecretEnv = map[string]string{"SECRET": "s"}
	cmd.Dir = "/"
	out, er, exit := collect(t, start(t, tb, cmd))
	if out != "base \xff s\n/\n" || er != "err\n" || exit.Code != 7 || exit.Signal != "" || exit.OutputBytes != uint64(len(out)+len(er)) {
		t.Errorf("%q %q %+v", out, er, exit)
	}
	_, _, exit = collect(t, start(t, tb, shell(`kill -USR1 $$`)))
	if exit.Code != 128+int(unix.SIGUSR1) || exit.Signal != "USR1" {
		t.Errorf("%+v", exit)
	}
}

func TestCannotStart(t *testing.T) {
	tb := table(t, nil)
	dir := t.TempDir()
	for name, content := range map[string]string{"plain": "x", "noexec": "#!/bin/sh\n", "lost": "#!/no/such/interpreter\n"} {
		mode := os.FileMode(0o755)
		if name == "noexec" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		cmd  driver.Command
		code errs.Code
		says string
	}{
		{driver.Command{}, errs.InvalidArgument, "no command"},
		{driver.Command{Argv: []string{"no-such-program"}}, errs.ExecNotFound, "PATH"},
		{driver.Command{Argv: []string{"/no/such/program"}}, errs.ExecNotFound, "/no/such/program"},
		{driver.Command{Argv: []string{"./plain"}, Dir: dir}, errs.ExecNotFound, "format"},
		{driver.Command{Argv: []string{"./lost"}, Dir: dir}, errs.ExecNotFound, "interpreter"},
		{driver.Command{Argv: []string{"./noexec"}, Dir: dir}, errs.ExecNotFound, "not executable"},
		{driver.Command{Argv: []string{"noexec"}, Env: map[string]string{"PATH": dir}}, errs.ExecNotFound, "not executable"},
		{driver.Command{Argv: []string{"true"}, Dir: "missing"}, errs.FileNotFound, "missing"},
		{driver.Command{Argv: []string{"true"}, Dir: filepath.Join(dir, "plain")}, errs.NotDirectory, "plain"},
		{driver.Command{Argv: []string{"true"}, User: "nobody-here"}, errs.InvalidArgument, "nobody-here"},
	} {
		_, _, err := tb.Start(&tc.cmd)
		if !errors.Is(err, tc.code) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%v: %v", tc.cmd, err)
		}
	}
	if ps := tb.List(); len(ps) != 0 {
		t.Errorf("left: %v", ps)
	}
}

func TestIdempotentStart(t *testing.T) {
	tb := table(t, nil)
	cmd := shell(`cat`)
	cmd.ID = "one"
	p := start(t, tb, cmd)
	again, out, err := tb.Start(cmd)
	if err != nil || out != nil || again != p {
		t.Fatal(again, out, err)
	}
	p.CloseStdin()
	collect(t, p)
	if again, out, _ = tb.Start(cmd); again != p || out != nil {
		t.Error("a process that has ended was started again")
	}
}

// However late whoever started a process begins to read, the beginning is there: the process waits.
func TestStarterMissesNothing(t *testing.T) {
	tb := table(t, nil)
	cmd := shell(`head -c 1000000 /dev/zero`)
	cmd.ReplayBytes = 1
	p, out, err := tb.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for tb.List()[0].OutputBytes < 400_000 { // far more than is kept for nobody
		<-tick.C
	}
	buf, got := make([]byte, 64<<10), 0
	for {
		err := out.Wait(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n, _, gap := out.Next(buf)
		if gap != (driver.Gap{}) {
			t.Fatalf("gap %v", gap)
		}
		got += n
	}
	if exit, err := p.Wait(t.Context()); err != nil || got != 1_000_000 || exit.OutputBytes != 1_000_000 {
		t.Errorf("%d bytes of %+v, %v", got, exit, err)
	}
}

func TestStdin(t *testing.T) {
	tb := table(t, nil)
	p := start(t, tb, shell(`sha256sum; echo end`))
	data := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	go func() {
		for b := data; len(b) > 0; {
			n := min(len(b), 100_001)
			if err := p.WriteStdin(b[:n]); err != nil {
				t.Error(err)
			}
			b = b[n:]
		}
		p.CloseStdin()
	}()
	out, _, _ := collect(t, p)
	if want := fmt.Sprintf("%x  -\nend\n", sha256.Sum256(data)); out != want {
		t.Errorf("%q, want %q", out, want)
	}
	// A process that does not read its input holds nobody up once it has ended.
	p = start(t, tb, shell(`exit 3`))
	if err := p.WriteStdin(data); err != nil {
		t.Error(err)
	}
	if _, _, exit := collect(t, p); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
}

func TestTerminal(t *testing.T) {
	tb := table(t, nil)
	cmd := shell(`stty size; stty -echo; read x; echo "got $x"; stty size; trap 'echo int; exit 5' INT; while :; do read y || echo eof; done`)
	cmd.TTY = true
	p := start(t, tb, cmd)
	screen := follow(t, p)
	screen.until(t, "24 80")
	if err := p.Resize(driver.Size{Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	p.WriteStdin([]byte("grüße\n"))
	screen.until(t, "got grüße")
	screen.until(t, "50 132")
	p.CloseStdin() // ^D
	screen.until(t, "eof")
	p.WriteStdin([]byte{3}) // ^C
	screen.until(t, "int")
	exit, err := p.Wait(t.Context())
	if err != nil || exit.Code != 5 {
		t.Errorf("%+v %v", exit, err)
	}
}

// screen is what a process has written so far.
type screen struct {
	r    *output.Reader
	text string
}

func follow(t testing.TB, p *proc.Process) *screen {
	t.Helper()
	s := &screen{r: p.Reader(0)}
	t.Cleanup(func() { s.r.Close() })
	return s
}

// until reads until the text is there, and takes everything up to it.
func (s *screen) until(t testing.TB, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("it did not come"))
	defer cancel()
	buf := make([]byte, 4096)
	for {
		if _, after, ok := strings.Cut(s.text, text); ok {
			s.text = after
			return
		}
		if err := s.r.Wait(ctx); err != nil {
			t.Fatalf("waiting for %q, have %q: %v", text, s.text, err)
		}
		n, _, _ := s.r.Next(buf)
		s.text += string(buf[:n])
	}
}

// Run returns when the main process has ended, with all that it wrote; what it left in the background goes on.
func TestBackground(t *testing.T) {
	tb := table(t, nil)
	began := time.Now()
	p := start(t, tb, shell(`sleep 30 & echo $!; head -c 300000 /dev/zero`))
	out, _, exit := collect(t, p)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	line, rest, _ := strings.Cut(out, "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || len(rest) != 300000 || exit.Code != 0 {
		t.Fatalf("%q, %d bytes, %+v", line, len(rest), exit)
	}
	if !alive(pid) {
		t.Error("the background process did not go on")
	}
	if err := p.Signal(driver.Signal{Name: "KILL"}); err != nil {
		t.Error(err)
	}
	if alive(pid) {
		t.Error("a signal to the tree did not reach the background process")
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// daemons is a script that leaves children in every way: in the group, in a session of its own, forked twice, with an
// emptied environment, ignoring SIGTERM. It writes their numbers to a file.
const daemons = `
sleep 100 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 100' &
(setsid sh -c 'setsid sh -c "echo \$\$ >> pids; exec sleep 100" & exit' &) 
env -i /bin/sh -c '(trap "" TERM HUP; setsid /bin/sh -c "echo \$\$ >> pids; trap \"\" TERM; while :; do /bin/sleep 100; done" &)'
while [ $(wc -l < pids) -lt 4 ]; do sleep 0.01; done
echo ready
sleep 100`

func readPIDs(t *testing.T, dir string) []int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 4 {
		t.Fatalf("%d daemons", len(pids))
	}
	return pids
}

func TestWholeTree(t *testing.T) {
	for name, kill := range killConfigs(t) {
		t.Run(name, func(t *testing.T) {
			tb := table(t, kill)
			t.Log(tb.KillMeans())
			bystander := start(t, tb, shell(`setsid sleep 100 & echo $!; wait`))
			by := follow(t, bystander)
			by.until(t, "\n")

			for how, end := range map[string]func(*proc.Process){
				"terminate": func(p *proc.Process) { p.Terminate() },
				"kill": func(p *proc.Process) {
					if err := p.Signal(driver.Signal{Name: "SIGKILL"}); err != nil {
						t.Error(err)
					}
				},
				"timeout": nil,
			} {
				if end == nil && name != "sweep" {
					continue // ends as terminate does; it takes its time
				}
				cmd := shell(daemons)
				cmd.Dir, cmd.KillGrace = t.TempDir(), 50*time.Millisecond
				if end == nil {
					cmd.Timeout = 1500 * time.Millisecond
				}
				p := start(t, tb, cmd)
				s := follow(t, p)
				s.until(t, "ready")
				s.r.Close()
				pids := readPIDs(t, cmd.Dir)
				for _, pid := range pids {
					if !alive(pid) {
						t.Errorf("%s: %d did not live", how, pid)
					}
				}
				if end != nil {
					end(p)
				}
				exit, err := p.Wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, pid := range pids {
					if alive(pid) {
						t.Errorf("%s: %d is left", how, pid)
					}
				}
				if exit.TimedOut != (end == nil) || exit.Signal == "" {
					t.Errorf("%s: %+v", how, exit)
				}
			}
			select {
			case <-bystander.Done():
				t.Error("another command was ended too")
			default:
			}
		})
	}
}

// killConfigs are the means that this machine has.
func killConfigs(t *testing.T) map[string]func(*proc.Config) {
	t.Helper()
	cs := map[string]func(*proc.Config){"sweep": func(*proc.Config) {}}
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(root, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		if dir := group(t, root); dir != "" {
			cs["cgroup"] = func(c *proc.Config) { c.Kill.Cgroup = dir }
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup/freezer/cgroup.procs"); err == nil {
		if dir := group(t, "/sys/fs/cgroup/freezer"); dir != "" {
			cs["freezer"] = func(c *proc.Config) {
				c.Kill.Freezer = dir
				c.SpawnThread = func() error { return os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0) }
			}
		}
	}
	return cs
}

// group makes a cgroup for the test, if it may.
func group(t *testing.T, root string) string {
	t.Helper()
	dir, err := os.MkdirTemp(root, "berth-test-") //nolint:usetesting // it is a cgroup
	if err != nil {
		t.Logf("no cgroup of our own: %v", err)
		return ""
	}
	t.Cleanup(func() {
		for range 100 { // a thread that has just ended is still in it for a moment
			if os.Remove(dir) == nil {
				return
			}
			<-time.After(5 * time.Millisecond)
		}
		t.Errorf("%s is not empty", dir)
	})
	return dir
}

// A chain of forks, each step in a session of its own and its parent gone, is ended exactly where there is a means for it.
func TestChain(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 for a chain of forks")
	}
	// Never more than one process at a time, and after 30,000 steps they end by themselves.
	const chain = `import os
for i in range(30000):
    if os.fork(): os._exit(0)
    os.setsid()
    f = os.open("steps", os.O_WRONLY|os.O_CREAT); os.pwrite(f, b"%6d" % i, 0); os.close(f)
open("finished", "w")`
	for name, kill := range killConfigs(t) {
		if name == "sweep" {
			continue // can be outrun, as the package says
		}
		t.Run(name, func(t *testing.T) {
			tb := table(t, kill)
			dir := t.TempDir()
			p := start(t, tb, &driver.Command{Argv: []string{"python3", "-c", chain}, Dir: dir})
			steps := func() string {
				b, err := os.ReadFile(filepath.Join(dir, "steps"))
				if err != nil {
					return ""
				}
				return string(b)
			}
			late := time.After(20 * time.Second)
			for steps() < "    50" {
				select {
				case <-time.After(time.Millisecond):
				case <-late:
					t.Fatal("the chain does not run")
				}
			}
			if err := p.Signal(driver.Signal{Name: "KILL"}); err != nil {
				t.Error(err)
			}
			before := steps()
			<-time.After(100 * time.Millisecond)
			if after := steps(); after != before {
				t.Errorf("the chain went on from %s to %s", before, after)
			}
			if _, err := os.Stat(filepath.Join(dir, "finished")); err == nil {
				t.Error("the chain had ended by itself: this proved nothing")
			}
		})
	}
}

// Everything is ended by Close, also what belongs to no command any more.
func TestClose(t *testing.T) {
	for name, kill := range killConfigs(t) {
		t.Run(name, func(t *testing.T) {
			cfg := proc.Config{Root: t.TempDir()}
			kill(&cfg)
			tb, err := proc.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cmd := shell(daemons)
			cmd.Dir = t.TempDir()
			p := start(t, tb, cmd)
			follow(t, p).until(t, "ready")
			if err := tb.Close(t.Context()); err != nil {
				t.Error(err)
			}
			for _, pid := range readPIDs(t, cmd.Dir) {
				if alive(pid) {
					t.Errorf("%d is left", pid)
				}
			}
			if exit, err := p.Wait(t.Context()); err != nil || !exit.KilledByStop {
				t.Errorf("%+v %v", exit, err)
			}
			if _, _, err := tb.Start(shell("true")); !errors.Is(err, errs.SandboxGone) {
				t.Error(err)
			}
		})
	}
}

func TestUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	etc := t.TempDir()
	os.WriteFile(filepath.Join(etc, "passwd"), []byte("root:x:0:0::/root:/bin/sh\nworker:x:4321:4322::/home/worker:/bin/sh\n"), 0o644)
	os.WriteFile(filepath.Join(etc, "group"), []byte("root:x:0:\nextra:x:77:other,worker\nteam:x:88:\n"), 0o644)
	tb := table(t, func(c *proc.Config) { c.Etc, c.Root = etc, "/" })
	for who, want := range map[string]string{
		"worker":      "4321 4322 4322 77 worker /home/worker",
		"4321":        "4321 4322 4322 77 worker /home/worker",
		"worker:team": "4321 88 88 77 worker /home/worker",
		"999:998":     "999 998 998 ",
	} {
		cmd := shell(`echo $(id -u) $(id -g) $(id -G) $USER $HOME`)
		cmd.User = who
		out, er, _ := collect(t, start(t, tb, cmd))
		if strings.TrimSpace(out) != strings.TrimSpace(want) {
			t.Errorf("%s: %q, want %q (%s)", who, out, want, er)
		}
	}
	// The tree of another user is found and ended as well.
	cmd := shell(daemons)
	cmd.User, cmd.Dir, cmd.KillGrace = "worker", t.TempDir(), 50*time.Millisecond
	for dir := cmd.Dir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o777)
	}
	p := start(t, tb, cmd)
	follow(t, p).until(t, "ready")
	p.Terminate()
	for _, pid := range readPIDs(t, cmd.Dir) {
		if alive(pid) {
			t.Errorf("%d is left", pid)
		}
	}
}

// Where memory ends, a command goes before the guest, also a user's own.
func TestVictims(t *testing.T) {
	score := func(text []byte) int {
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	own := func() int {
		text, err := os.ReadFile("/proc/self/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		return score(text)
	}
	before := own()
	if before > 500 {
		t.Skipf("the score of this process is %d already", before)
	}
	cmd := shell("cat /proc/self/oom_score_adj")
	if os.Getuid() == 0 {
		cmd.User = "nobody"
		cmd.Dir = "/"
	}
	out, _, exit := collect(t, start(t, table(t, nil), cmd))
	if exit.Code != 0 || score([]byte(out)) != before+500 {
		t.Errorf("%+v, a command's score is %q, the guest's %d", exit, out, before)
	}
	if after := own(); after != before {
		t.Errorf("the guest's score was %d and is %d", before, after)
	}
}

func TestMany(t *testing.T) {
	tb := table(t, nil)
	var ps []*proc.Process
	for i := range 200 {
		ps = append(ps, start(t, tb, shell("echo "+strconv.Itoa(i)+"; cat >/dev/null")))
	}
	if n := len(tb.List()); n != 200 {
		t.Errorf("%d listed", n)
	}
	for i, p := range ps {
		p.CloseStdin()
		if out, _, exit := collect(t, p); out != strconv.Itoa(i)+"\n" || exit.Code != 0 {
			t.Errorf("%d: %q %+v", i, out, exit)
		}
	}
}

func TestLimits(t *testing.T) {
	tb := table(t, func(c *proc.Config) { c.MaxProcesses = 1 })
	p := start(t, tb, shell("cat"))
	if _, _, err := tb.Start(shell("true")); !errors.Is(err, errs.QuotaExceeded) {
		t.Error(err)
	}
	p.CloseStdin()
	collect(t, p)
	collect(t, start(t, tb, shell("true")))
	if _, err := tb.Get("unknown"); !errors.Is(err, errs.ProcessUnknown) {
		t.Error(err)
	}
}

func BenchmarkTrue(b *testing.B) {
	tb := table(b, nil)
	for b.Loop() {
		p := start(b, tb, &driver.Command{Argv: []string{"/bin/true"}})
		<-p.Done()
	}
}
