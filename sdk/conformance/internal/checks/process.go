// SPDX-License-Identifier: Apache-2.0
// Size: the checks of one group, each on its own.

package checks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func process() suite.Group {
	signal, detached, listed := needs(driver.ProcSignal), needs(driver.ProcDetached), needs(driver.ProcList)
	return suite.Group{
		Name: "process", Doc: "commands run, talk, end and are ended, whole trees included",
		Checks: []suite.Check{
			{Name: "exit-codes", Func: exitCodes},
			{Name: "exit-by-signal", Tools: []string{"kill"}, Func: exitBySignal},
			{Name: "not-found", Func: notFound},
			{Name: "not-executable", Func: notExecutable},
			{Name: "no-argv", Func: noArgv},
			{Name: "started-comes-first", Func: startedFirst},
			{Name: "stdout-and-stderr", Func: separation},
			{Name: "order-of-output", Func: order},
			{Name: "no-output", Func: noOutput},
			{Name: "no-newline", Func: noNewline},
			{Name: "binary-output", Func: binaryOutput},
			{Name: "output-of-100-MB", Tools: []string{"head"}, Func: muchOutput},
			{Name: "output-before-exit-is-whole", Func: outputWhole},
			{Name: "slow-reader", Func: slowReader},
			{Name: "output-is-counted", Func: outputCounted},
			{Name: "stdin", Func: stdinEcho},
			{Name: "stdin-of-10-MB", Func: stdinMuch},
			{Name: "stdin-none", Func: stdinNone},
			{Name: "stdin-ends", Func: stdinEnds},
			{Name: "stdin-unread", Func: stdinUnread},
			{Name: "stdin-in-turns", Func: stdinTurns},
			{Name: "arguments", Func: arguments},
			{Name: "arguments-not-UTF-8", Func: argumentsRaw},
			{Name: "argument-of-100-KB", Func: argumentLong},
			{Name: "environment", Needs: needs(driver.EnvPerExec), Func: commandEnv},
			{Name: "environment-odd-values", Needs: needs(driver.EnvPerExec), Func: commandEnvOdd},
			{Name: "environment-secret", Needs: needs(driver.EnvSecret), Func: commandSecret},
			{Name: "environment-secret-is-not-listed", Needs: needs(driver.EnvSecret, driver.ProcList), Proves: needs(driver.EnvSecret), Func: secretNotListed},
			{Name: "environment-of-the-host-stays-out", Func: hostEnv},
			{Name: "directory", Needs: needs(driver.ProcCwd), Func: directory},
			{Name: "directory-missing", Needs: needs(driver.ProcCwd), Func: directoryMissing},
			{Name: "user", Needs: needs(driver.ProcUser), Tools: []string{"id"}, Func: commandUser},
			{Name: "user-unknown", Needs: needs(driver.ProcUser), Func: userUnknown},
			{Name: "timeout", Func: timeout},
			{Name: "timeout-keeps-output", Func: timeoutOutput},
			{Name: "timeout-ends-the-tree", Tools: []string{"jobs", "setsid"}, Func: timeoutTree},
			{Name: "cancel", Func: cancelled},
			{Name: "cancel-ends-the-tree", Tools: []string{"jobs", "setsid"}, Func: cancelTree},
			{Name: "kill-grace-is-given", Tools: []string{"trap", "loops"}, Func: graceGiven},
			{Name: "kill-grace-ends", Func: graceEnds},
			{Name: "end-with-children", Tools: []string{"jobs"}, Func: endWithChildren},
			{Name: "many-at-once", Func: manyAtOnce},
			{Name: "many-in-turn", Func: manyInTurn},
			{Name: "same-id-is-the-same-process", Needs: detached, Func: sameID},
			{Name: "exec", Func: exec},
			{Name: "exec-bounded", Tools: []string{"loops"}, Func: execBounded},
			{Name: "exec-stdin", Func: execStdin},
			{Name: "signal", Needs: signal, Func: signalTree},
			{Name: "signal-reaches-the-tree", Needs: signal, Tools: []string{"trap", "jobs"}, Func: signalTrap},
			{Name: "signal-leader-only", Needs: signal, Tools: []string{"jobs", "trap"}, Func: signalLeader},
			{Name: "signal-by-stream", Needs: signal, Func: signalStream},
			{Name: "signal-unknown-process", Needs: signal, Func: signalUnknownProcess},
			{Name: "signal-unknown-name", Needs: signal, Func: signalUnknownName},
			{Name: "list", Needs: listed, Func: listProcesses},
			{Name: "list-ended", Needs: listed, Func: listEnded},
			{Name: "detached-goes-on", Needs: detached, Tools: []string{"loops"}, Func: detachedGoesOn},
			{Name: "attach-replays-exactly", Needs: detached, Func: attachReplays},
			{Name: "attach-from-an-offset", Needs: detached, Func: attachOffset},
			{Name: "attach-after-the-end", Needs: detached, Func: attachAfterEnd},
			{Name: "attach-twice", Needs: detached, Func: attachTwice},
			{Name: "attach-gap", Needs: detached, Func: attachGap},
			{Name: "attach-unknown", Func: attachUnknown},
			{Name: "attach-in-new-process", Process: true, Needs: needs(driver.ProcAttach, driver.LifeResume), Proves: needs(driver.ProcAttach), Func: attachNewProcess},
			{Name: "nobody-reads", Needs: detached, Func: nobodyReads},
		},
	}
}

func exitCodes(c *C) {
	box := c.Box()
	for _, code := range []int{0, 1, 2, 42, 126, 127, 255} {
		if got := c.Exec(box, "sh", "-c", "exit "+strconv.Itoa(code)).Exit; got.Code != code || got.Signal != "" || got.TimedOut || got.OOM || got.KilledByStop {
			c.Errorf("exit %d arrived as %+v", code, got)
		}
	}
}

func exitBySignal(c *C) {
	box := c.Box()
	for name, n := range map[string]int{"TERM": 15, "KILL": 9, "INT": 2, "HUP": 1} {
		got := c.Exec(box, "sh", "-c", "kill -"+name+" $$; sleep 3600").Exit
		if got.Code != 128+n || got.Signal != name {
			c.Errorf("the end by %s arrived as %+v, want code %d", name, got, 128+n)
		}
	}
}

func notFound(c *C) {
	box := c.Box()
	for _, name := range []string{"no-such-program-anywhere", "/no/such/file", "./nor-this"} {
		_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{name}}, driver.Streams{})
		c.Code(err, "run "+name, errs.ExecNotFound)
	}
}

func notExecutable(c *C) {
	box := c.Box()
	name := c.Word("data")
	put(c, box, name, []byte("just data\n"))
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"./" + name}}, driver.Streams{})
	c.Code(err, "run a file that is not executable", errs.ExecNotFound, errs.PermissionDenied)
}

func noArgv(c *C) {
	_, err := c.Try(c.Ctx(), c.Box(), &driver.Command{}, driver.Streams{})
	c.Code(err, "run nothing", errs.InvalidArgument)
}

// firstly notes whether anything was written before the start was told.
type firstly struct{ started, early bool }

func (f *firstly) Write(p []byte) (int, error) {
	f.early = f.early || !f.started
	return len(p), nil
}

func startedFirst(c *C) {
	var f firstly
	out, err := c.Try(c.Ctx(), c.Box(), &driver.Command{Argv: []string{"echo", "hello"}}, driver.Streams{
		Stdout: &f, OnStart: func(driver.Started) { f.started = true },
	})
	c.OK(err, "run")
	if !f.started || f.early {
		c.Errorf("the start of a command was told: %v; output came before it: %v", f.started, f.early)
	}
	if out.Started.ProcessID == "" {
		c.Errorf("a command that was given no id got none")
	}
}

func separation(c *C) {
	out := c.Exec(c.Box(), "sh", "-c", "echo out; echo err >&2")
	c.Same("standard output", out.Stdout, []byte("out\n"))
	c.Same("standard error", out.Stderr, []byte("err\n"))
}

func order(c *C) {
	var want bytes.Buffer
	script := strings.Builder{}
	for i := range 50 {
		fmt.Fprintf(&script, "echo %d\n", i)
		fmt.Fprintf(&want, "%d\n", i)
	}
	c.Same("fifty lines", c.Exec(c.Box(), "sh", "-c", script.String()).Stdout, want.Bytes())
}

func noOutput(c *C) {
	out := c.Exec(c.Box(), "true")
	if len(out.Stdout)+len(out.Stderr) > 0 || out.Exit.OutputBytes != 0 {
		c.Errorf("true printed %q and %q, %d bytes", out.Stdout, out.Stderr, out.Exit.OutputBytes)
	}
}

func noNewline(c *C) {
	c.Same("output without a newline", c.Exec(c.Box(), "printf", "no newline").Stdout, []byte("no newline"))
}

func binaryOutput(c *C) {
	box := c.Box()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	all = append(all, pattern(5000)...) //nolint:makezero // it is appended to what was made
	name := c.Word("bytes")
	put(c, box, name, all)
	c.Same("every byte that there is", c.Exec(box, "cat", name).Stdout, all)
}

type counter struct{ n uint64 }

func (w *counter) Write(p []byte) (int, error) {
	w.n += uint64(len(p))
	return len(p), nil
}

func muchOutput(c *C) {
	const want = 100 << 20
	var n counter
	exit, err := c.Box().Run(c.Ctx(), &driver.Command{Argv: []string{"head", "-c", strconv.Itoa(want), "/dev/zero"}}, driver.Streams{Stdout: &n})
	c.OK(err, "run")
	if n.n != want || exit.OutputBytes != want {
		c.Errorf("of 100 MB %d bytes came; the exit counts %d", n.n, exit.OutputBytes)
	}
}

func outputWhole(c *C) {
	box := c.Box()
	name := c.Word("much")
	data := pattern(1 << 20)
	put(c, box, name, data)
	for range 5 {
		if got := c.Exec(box, "cat", name).Stdout; sha256.Sum256(got) != sha256.Sum256(data) {
			c.Same("what a command printed just before its end", got, data)
		}
	}
}

// slow takes what is written only after it was waited for.
type slow struct {
	after <-chan struct{}
	got   []byte
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.after
	s.got = append(s.got, p...)
	return len(p), nil
}

func slowReader(c *C) {
	box := c.Box()
	name := c.Word("much")
	data := pattern(4 << 20)
	put(c, box, name, data)
	gate := make(chan struct{})
	s := &slow{after: gate}
	done := make(chan error, 1)
	go func() {
		_, err := box.Run(c.Ctx(), &driver.Command{Argv: []string{"cat", name}}, driver.Streams{Stdout: s})
		done <- err
	}()
	// Other commands go on while this one waits for its reader.
	for range 3 {
		c.Sh(box, "true")
	}
	close(gate)
	c.OK(<-done, "run")
	c.Same("4 MiB that nobody read at first", s.got, data)
}

func outputCounted(c *C) {
	out := c.Exec(c.Box(), "sh", "-c", "printf 12345; printf 678 >&2")
	if out.Exit.OutputBytes != 8 {
		c.Errorf("after 8 bytes of output the exit counts %d", out.Exit.OutputBytes)
	}
}

func stdinEcho(c *C) {
	data := pattern(5000)
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"cat"}}, bytes.NewReader(data))
	c.Same("what went through cat", out.Stdout, data)
}

func stdinMuch(c *C) {
	data := pattern(10 << 20)
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"cat"}}, bytes.NewReader(data))
	c.Same("10 MB that went through cat", out.Stdout, data)
}

func stdinNone(c *C) {
	out := c.Exec(c.Box(), "cat")
	if out.Exit.Code != 0 || len(out.Stdout) > 0 {
		c.Errorf("cat without an input: %+v, %q", out.Exit, out.Stdout)
	}
}

func stdinEnds(c *C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "cat; echo end"}}, strings.NewReader("input "))
	c.Same("an input that ends", out.Stdout, []byte("input end\n"))
}

func stdinUnread(c *C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "exit 3"}}, bytes.NewReader(make([]byte, 10<<20)))
	if out.Exit.Code != 3 {
		c.Errorf("a command that does not read its input ended with %+v, want 3", out.Exit)
	}
}

func stdinTurns(c *C) {
	r, w := io.Pipe()
	first, second := seen("one"), seen("two")
	run := begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"cat"}}, driver.Streams{Stdin: r, Stdout: io.MultiWriter(first, second)})
	for _, turn := range []struct {
		say  string
		wait *signalled
	}{{"one\n", first}, {"two\n", second}} {
		_, err := io.WriteString(w, turn.say)
		c.OK(err, "write to the command")
		turn.wait.wait(c, run)
	}
	c.OK(w.Close(), "close the input")
	run.wait(c)
	c.OK(run.err, "run")
	c.Same("a conversation", run.out.Stdout, []byte("one\ntwo\n"))
}

func arguments(c *C) {
	box := c.Box()
	for _, arg := range []string{
		"", " ", "two words", "  spaces  ", `"double"`, `'single'`, "`ls`", "$HOME", "${HOME}", "$(ls)", "*", "a\nb", "\ttab", `back\slash`,
		"-n", "--", "~", "#no comment", "a;b", "a&b", "a|b", ">x", "ä€😀", "!x", "%s", "\x01", `'"'"'`,
	} {
		// $1 is the argument of the script itself, whatever it holds.
		out := c.Exec(box, "printf", "%s|", arg)
		c.Same(fmt.Sprintf("the argument %q", arg), out.Stdout, []byte(arg+"|"))
	}
}

func argumentsRaw(c *C) {
	arg := "not\xff\xfeUTF-8\x80"
	c.Same("an argument that is not UTF-8", c.Exec(c.Box(), "printf", "%s", arg).Stdout, []byte(arg))
}

func argumentLong(c *C) {
	arg := strings.Repeat("long ", 20_000)
	c.Same("an argument of 100 KB", c.Exec(c.Box(), "printf", "%s", arg).Stdout, []byte(arg))
}

func commandEnv(c *C) {
	out := c.Command(c.Box(), &driver.Command{
		Argv: []string{"sh", "-c", `echo "$OWN $BERTH_PLAIN"`}, Env: map[string]string{"OWN": "own", "BERTH_PLAIN": "another"},
	}, nil)
	c.Same("a command's environment over the sandbox's", out.Stdout, []byte("own another\n"))
	if got := c.Sh(c.Box(), `echo "[$OWN]"`); got != "[]\n" {
		c.Errorf("the environment of one command is in the next: %q", got)
	}
}

func commandEnvOdd(c *C) {
	for _, value := range []string{"", "two words", "a=b", `"quoted"`, "'single'", "line\nline", "$HOME", "ä€😀", "\\"} {
		out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", `printf '%s|' "$ODD"`}, Env: map[string]string{"ODD": value}}, nil)
		c.Same(fmt.Sprintf("the variable's value %q", value), out.Stdout, []byte(value+"|"))
	}
}

func commandSecret(c *C) {
	out := c.Command(c.Box(), &driver.Command{
		Argv: []string{"sh", "-c", `[ "$OWN" = "$` + suite.CanaryName + `" ] && echo same`}, SecretEnv: map[string]string{"OWN": c.Canary},
	}, nil)
	c.Same("a secret variable of the command, beside that of the sandbox", out.Stdout, []byte("same\n"))
}

func secretNotListed(c *C) {
	box := c.Box()
	run := begin(c.Ctx(), c, box, &driver.Command{
		Argv: []string{"cat"}, Detached: true, SecretEnv: map[string]string{"OWN": c.Canary},
	}, driver.Streams{Stdin: io.LimitReader(zeroes{}, 1)})
	ps, err := box.Processes(c.Ctx())
	c.OK(err, "list processes")
	c.NoSecret("the list of processes", fmt.Sprint(ps))
	run.wait(c)
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func hostEnv(c *C) {
	if env := c.Sh(c.Box(), "env"); strings.Contains(env, "BERTH_DRIVER_") || strings.Contains(env, "PLUGIN_UNIX_SOCKET_DIR") {
		c.Errorf("the environment of the driver process is in the sandbox")
	}
}

func directory(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	for _, as := range []string{dir, "./" + dir, c.Options().Workspace + "/" + dir} {
		out := c.Command(box, &driver.Command{Argv: []string{"pwd"}, Dir: as}, nil)
		c.Same("the directory of a command in "+as, out.Stdout, []byte(c.Options().Workspace+"/"+dir+"\n"))
	}
	out := c.Command(box, &driver.Command{Argv: []string{"pwd"}, Dir: "/tmp"}, nil)
	c.Same("the directory of a command outside the workspace", out.Stdout, []byte("/tmp\n"))
}

func directoryMissing(c *C) {
	_, err := c.Try(c.Ctx(), c.Box(), &driver.Command{Argv: []string{"pwd"}, Dir: "no/such/directory"}, driver.Streams{})
	c.Code(err, "run in a directory that is not there", errs.FileNotFound)
}

func commandUser(c *C) {
	box := c.Box()
	own := strings.TrimSpace(c.Sh(box, "id -un"))
	out := c.Command(box, &driver.Command{Argv: []string{"id", "-un"}, User: own}, nil)
	if got := strings.TrimSpace(string(out.Stdout)); got != own {
		c.Errorf("a command for user %q ran as %q", own, got)
	}
}

func userUnknown(c *C) {
	_, err := c.Try(c.Ctx(), c.Box(), &driver.Command{Argv: []string{"true"}, User: "no-such-user-here"}, driver.Streams{})
	c.Code(err, "run as a user that does not exist", errs.InvalidArgument, errs.Unsupported, errs.PermissionDenied, errs.FileNotFound)
}

func timeout(c *C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sleep", "3600"}, Timeout: 200 * time.Millisecond, KillGrace: 100 * time.Millisecond}, nil)
	if !out.Exit.TimedOut {
		c.Errorf("a command that was ended by its timeout does not say so: %+v", out.Exit)
	}
}

func timeoutOutput(c *C) {
	// The timeout is long enough for the first line on any machine, and ends the rest.
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "echo early; sleep 3600"}, Timeout: 3 * time.Second}, nil)
	c.Same("output before the timeout", out.Stdout, []byte("early\n"))
}

// family is a script whose processes leave it in every way there is, and stay. Each writes into its file for as long as
// it lives.
func family(dir string) string {
	member := func(name string) string {
		return fmt.Sprintf(`sh -c 'trap "" HUP; echo > %s/%s.up; while [ ! -e %s/stop ]; do sleep 0.05; echo >> %s/%s; done'`, dir, name, dir, dir, name)
	}
	return member("child") + " & (" + member("orphan") + " &) ; setsid " + member("session") + " & " +
		"setsid sh -c '(" + strings.ReplaceAll(member("daemon"), "'", `'\''`) + " &) &' & " +
		fmt.Sprintf("for f in child orphan session daemon; do while [ ! -e %s/$f.up ]; do sleep 0.01; done; done; echo up; sleep 3600", dir)
}

var members = []string{"child", "orphan", "session", "daemon"}

// treeEnded wants that no member of the family in dir writes any more.
func treeEnded(c *C, box *rpc.Sandbox, dir, what string) {
	// Whoever lives makes a line every 50 ms; a file that was taken away comes back.
	for _, name := range members {
		c.OK(box.Remove(c.Ctx(), dir+"/"+name, true, ""), "remove")
	}
	c.Sh(box, "sleep 0.5")
	left := list(c, box, dir, driver.ListOptions{})
	for _, name := range members {
		if _, alive := left[name]; alive {
			c.Errorf("%s: the %s of the command lives on", what, name)
		}
	}
	put(c, box, dir+"/stop", nil)
}

func timeoutTree(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	out, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"sh", "-c", family(dir)}, Timeout: 3 * time.Second, KillGrace: 100 * time.Millisecond}, driver.Streams{})
	c.OK(err, "run")
	if !bytes.Contains(out.Stdout, []byte("up")) {
		c.Skipf("the sandbox was too slow for the tree to grow within the timeout")
	}
	treeEnded(c, box, dir, "after a timeout")
}

func cancelled(c *C) {
	ctx, cancel := context.WithCancelCause(c.Ctx())
	run := begin(ctx, c, c.Box(), &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
	cancel(errEnough)
	run.wait(c)
	c.Code(run.err, "run, cancelled", errs.Canceled)
}

func cancelTree(c *C) {
	box := c.Box()
	dir := c.Dir(box)
	ctx, cancel := context.WithCancelCause(c.Ctx())
	up := seen("up")
	run := begin(ctx, c, box, &driver.Command{Argv: []string{"sh", "-c", family(dir)}, KillGrace: 100 * time.Millisecond}, driver.Streams{Stdout: up})
	up.wait(c, run)
	cancel(errEnough)
	run.wait(c)
	c.Code(run.err, "run, cancelled", errs.Canceled)
	treeEnded(c, box, dir, "after a cancel")
}

func graceGiven(c *C) {
	box := c.Box()
	name := c.Word("grace")
	ctx, cancel := context.WithCancelCause(c.Ctx())
	up := seen("up")
	run := begin(ctx, c, box, &driver.Command{
		Argv: []string{"sh", "-c", "trap 'echo bye > " + name + "; exit 0' TERM; echo up; while :; do sleep 0.05; done"}, KillGrace: time.Minute,
	}, driver.Streams{Stdout: up})
	up.wait(c, run)
	cancel(errEnough)
	run.wait(c)
	c.Eventually("what a command does when it gets TERM", func() bool {
		_, err := statErr(c, box, name, false)
		return err == nil
	})
}

func graceEnds(c *C) {
	box := c.Box()
	up := seen("up")
	ctx, cancel := context.WithCancelCause(c.Ctx())
	run := begin(ctx, c, box, &driver.Command{
		Argv: []string{"sh", "-c", "trap '' TERM; echo up; sleep 3600"}, KillGrace: 100 * time.Millisecond,
	}, driver.Streams{Stdout: up})
	up.wait(c, run)
	cancel(errEnough)
	run.wait(c)
	c.Code(run.err, "run of a command that ignores TERM, cancelled", errs.Canceled)
}

func endWithChildren(c *C) {
	out := c.Exec(c.Box(), "sh", "-c", "sleep 3600 & echo ended")
	c.Same("the output of a command that left a child behind which holds its pipes", out.Stdout, []byte("ended\n"))
}

func manyAtOnce(c *C) {
	box := c.Box()
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			out, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"echo", strconv.Itoa(i)}}, driver.Streams{})
			if err != nil || string(out.Stdout) != strconv.Itoa(i)+"\n" {
				c.Errorf("command %d of 200 at once: %v, %q", i, err, out.Stdout)
			}
		})
	}
	all.Wait()
}

func manyInTurn(c *C) {
	box := c.Box()
	for i := range 50 {
		if got := c.Sh(box, "echo "+strconv.Itoa(i)); got != strconv.Itoa(i)+"\n" {
			c.Fatalf("command %d in turn said %q", i, got)
		}
	}
}

func sameID(c *C) {
	box := c.Box()
	name := c.Word("once")
	cmd := &driver.Command{ID: c.Word("p"), Argv: []string{"sh", "-c", "echo ran >> " + name + "; echo out"}, Detached: true}
	for i := range 3 {
		out, err := c.Try(c.Ctx(), box, cmd, driver.Streams{})
		c.OK(err, "run %d with the same id", i+1)
		c.Same("output", out.Stdout, []byte("out\n"))
	}
	c.Same("what a command that was started three times with one id did", get(c, box, name), []byte("ran\n"))
}

func exec(c *C) {
	r, err := c.Box().Exec(c.Ctx(), &driver.Command{Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 5"}}, nil, 1<<20, 1<<20)
	c.OK(err, "exec")
	if r.Exit.Code != 5 || string(r.Stdout.Head)+string(r.Stdout.Tail) != "out\n" || string(r.Stderr.Head)+string(r.Stderr.Tail) != "err\n" {
		c.Errorf("exec: %+v", r)
	}
}

func execBounded(c *C) {
	r, err := c.Box().Exec(c.Ctx(), &driver.Command{
		Argv: []string{"sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done"},
	}, nil, 100, 50)
	c.OK(err, "exec")
	var want bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	b := want.Bytes()
	c.Same("the beginning", r.Stdout.Head, b[:100])
	c.Same("the end", r.Stdout.Tail, b[len(b)-50:])
	if r.Stdout.Dropped != uint64(len(b)-150) {
		c.Errorf("of %d bytes with 150 kept, %d were said to be dropped", len(b), r.Stdout.Dropped)
	}
}

func execStdin(c *C) {
	r, err := c.Box().Exec(c.Ctx(), &driver.Command{Argv: []string{"cat"}}, []byte("input"), 100, 100)
	c.OK(err, "exec")
	c.Same("what went through cat", append(r.Stdout.Head, r.Stdout.Tail...), []byte("input"))
}

func signalTree(c *C) {
	box := c.Box()
	for _, name := range []string{"TERM", "KILL", "INT"} {
		run := begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
		c.OK(box.Signal(c.Ctx(), run.id, driver.Signal{Name: name}), "signal %s", name)
		run.wait(c)
		c.OK(run.err, "run")
		if run.out.Exit.Signal != name {
			c.Errorf("a command that got %s ended with %+v", name, run.out.Exit)
		}
	}
}

func signalTrap(c *C) {
	box := c.Box()
	up, got := seen("up"), seen("child got it")
	run := begin(c.Ctx(), c, box, &driver.Command{Argv: []string{
		"sh", "-c",
		`trap 'echo leader got it' USR1; sh -c "trap 'echo child got it; exit 0' USR1; echo up; while :; do sleep 0.05; done" & while :; do sleep 0.05; done`,
	}},
		driver.Streams{Stdout: io.MultiWriter(up, got)})
	up.wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.id, driver.Signal{Name: "USR1"}), "signal USR1")
	got.wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.id, driver.Signal{Name: "KILL"}), "signal KILL")
	run.wait(c)
}

func signalLeader(c *C) {
	box := c.Box()
	up, got := seen("up"), seen("leader got it")
	run := begin(c.Ctx(), c, box, &driver.Command{Argv: []string{
		"sh", "-c",
		`trap 'echo leader got it' USR1; sh -c "trap 'echo child got it' USR1; echo up; while :; do sleep 0.05; done" & while :; do sleep 0.05; done`,
	}},
		driver.Streams{Stdout: io.MultiWriter(up, got)})
	up.wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.id, driver.Signal{Name: "USR1", LeaderOnly: true}), "signal USR1 to the leader")
	got.wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.id, driver.Signal{Name: "KILL"}), "signal KILL")
	run.wait(c)
	if bytes.Contains(run.out.Stdout, []byte("child")) {
		c.Errorf("a signal for the leader alone reached a child")
	}
}

func signalStream(c *C) {
	signals := make(chan driver.Signal, 1)
	run := begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{Signals: signals})
	signals <- driver.Signal{Name: "TERM"}
	run.wait(c)
	c.OK(run.err, "run")
	if run.out.Exit.Signal != "TERM" {
		c.Errorf("a command that got TERM by its stream ended with %+v", run.out.Exit)
	}
}

func signalUnknownProcess(c *C) {
	c.Code(c.Box().Signal(c.Ctx(), c.Word("none"), driver.Signal{Name: "TERM"}), "signal to a process that is not there", errs.ProcessUnknown)
}

func signalUnknownName(c *C) {
	box := c.Box()
	run := begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
	c.Code(box.Signal(c.Ctx(), run.id, driver.Signal{Name: "NONSENSE"}), "a signal that does not exist", errs.InvalidArgument)
	c.OK(box.Signal(c.Ctx(), run.id, driver.Signal{Name: "KILL"}), "signal KILL")
	run.wait(c)
}

func listed(c *C, box *rpc.Sandbox, id string) *driver.Process {
	ps, err := box.Processes(c.Ctx())
	c.OK(err, "list processes")
	if i := slices.IndexFunc(ps, func(p driver.Process) bool { return p.ID == id }); i >= 0 {
		return &ps[i]
	}
	return nil
}

func listProcesses(c *C) {
	box := c.Box()
	id := c.Word("p")
	run := begin(c.Ctx(), c, box, &driver.Command{ID: id, Argv: []string{"sleep", "3600"}}, driver.Streams{})
	p := listed(c, box, id)
	switch {
	case p == nil:
		c.Errorf("a running process is not in the list")
	case !slices.Equal(p.Argv, []string{"sleep", "3600"}) || p.Exit != nil || p.TTY || p.Started.IsZero() || p.PID == 0:
		c.Errorf("a running process is listed as %+v", *p)
	}
	c.OK(box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}), "signal KILL")
	run.wait(c)
}

func listEnded(c *C) {
	box := c.Box()
	id := c.Word("p")
	c.Command(box, &driver.Command{ID: id, Argv: []string{"sh", "-c", "echo out; exit 9"}, Detached: true}, nil)
	p := listed(c, box, id)
	if p == nil {
		c.Fatalf("a process that has ended and was detached is forgotten at once")
	}
	if p.Exit == nil || p.Exit.Code != 9 || p.OutputBytes != 4 {
		c.Errorf("an ended process is listed as %+v", *p)
	}
}

func detachedGoesOn(c *C) {
	box := c.Box()
	ctx, cancel := context.WithCancelCause(c.Ctx())
	name := c.Word("go")
	run := begin(ctx, c, box, &driver.Command{Argv: []string{"sh", "-c", "until test -e " + name + "; do sleep 0.02; done; echo went on"}, Detached: true}, driver.Streams{})
	cancel(errEnough)
	run.wait(c)
	c.Code(run.err, "run, cancelled", errs.Canceled)
	put(c, box, name, nil)
	var out bytes.Buffer
	exit, err := box.Attach(c.Ctx(), run.id, 0, driver.Streams{Stdout: &out})
	c.OK(err, "attach to a detached command")
	if exit.Code != 0 || out.String() != "went on\n" {
		c.Errorf("a detached command whose caller had gone: %+v, %q", exit, out.String())
	}
}

// spoken is a detached command that has printed text and whose caller has gone. It prints more and ends when done.
func spoken(c *C, box *rpc.Sandbox, text []byte, cmd *driver.Command) string {
	name := c.Word("said")
	put(c, box, name, text)
	cmd.Argv, cmd.Detached = []string{"sh", "-c", "cat " + name + "; sleep 3600"}, true
	ctx, cancel := context.WithCancelCause(c.Ctx())
	var n counter
	all := make(chan struct{})
	run := begin(ctx, c, box, cmd, driver.Streams{Stdout: writer(func(p []byte) (int, error) {
		n.n += uint64(len(p))
		if n.n == uint64(len(text)) {
			close(all)
		}
		return len(p), nil
	})})
	select {
	case <-all:
	case <-c.Ctx().Done():
		c.Fatalf("of %d bytes %d came: %v", len(text), n.n, context.Cause(c.Ctx()))
	}
	cancel(errEnough)
	run.wait(c)
	return run.id
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// follow attaches from an offset, ends the process when n bytes have come, and gives them.
func follow(c *C, box *rpc.Sandbox, id string, offset uint64, n int) ([]byte, []driver.Gap) {
	var out bytes.Buffer
	var gaps []driver.Gap
	if n == 0 {
		c.OK(box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}), "signal KILL")
	}
	_, err := box.Attach(c.Ctx(), id, offset, driver.Streams{
		Stdout: writer(func(p []byte) (int, error) {
			out.Write(p)
			if out.Len() == n {
				if err := box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}); err != nil {
					c.Errorf("signal KILL: %v", err)
				}
			}
			return len(p), nil
		}),
		OnGap: func(g driver.Gap) { gaps = append(gaps, g) },
	})
	c.OK(err, "attach from offset %d", offset)
	return out.Bytes(), gaps
}

func attachReplays(c *C) {
	box := c.Box()
	text := pattern(300_000)
	id := spoken(c, box, text, &driver.Command{})
	got, gaps := follow(c, box, id, 0, len(text))
	c.Same("the replay", got, text)
	if len(gaps) > 0 {
		c.Errorf("gaps in a replay of 300 KB: %v", gaps)
	}
}

func attachOffset(c *C) {
	box := c.Box()
	text := pattern(100_000)
	id := spoken(c, box, text, &driver.Command{})
	got, _ := follow(c, box, id, 77_777, len(text)-77_777)
	c.Same("the replay from offset 77777", got, text[77_777:])
}

func attachAfterEnd(c *C) {
	box := c.Box()
	id := c.Word("p")
	c.Command(box, &driver.Command{ID: id, Argv: []string{"sh", "-c", "echo out; exit 4"}, Detached: true}, nil)
	for range 2 {
		var out bytes.Buffer
		exit, err := box.Attach(c.Ctx(), id, 0, driver.Streams{Stdout: &out})
		c.OK(err, "attach to a process that has ended")
		if exit.Code != 4 || out.String() != "out\n" {
			c.Errorf("a process that has ended, attached to: %+v, %q", exit, out.String())
		}
	}
}

func attachTwice(c *C) {
	box := c.Box()
	text := pattern(50_000)
	id := spoken(c, box, text, &driver.Command{})
	outs := make([]bytes.Buffer, 2)
	both := make(chan struct{}, 2)
	var all sync.WaitGroup
	for i := range outs {
		all.Go(func() {
			_, err := box.Attach(c.Ctx(), id, 0, driver.Streams{Stdout: writer(func(p []byte) (int, error) {
				outs[i].Write(p)
				if outs[i].Len() == len(text) {
					both <- struct{}{}
				}
				return len(p), nil
			})})
			if err != nil {
				c.Errorf("attach %d of 2: %v", i+1, err)
			}
		})
	}
	for range outs {
		select {
		case <-both:
		case <-c.Ctx().Done():
			c.Fatalf("two callers attached, and not both got everything: %d and %d bytes of %d", outs[0].Len(), outs[1].Len(), len(text))
		}
	}
	c.OK(box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}), "signal KILL")
	all.Wait()
	for i := range outs {
		c.Same("the output for one of two callers", outs[i].Bytes(), text)
	}
}

func attachGap(c *C) {
	box := c.Box()
	text := pattern(2 << 20)
	id := spoken(c, box, text, &driver.Command{ReplayBytes: 64 << 10})
	var from, to uint64
	var out bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := box.Attach(c.Ctx(), id, 0, driver.Streams{
			OnGap: func(g driver.Gap) { from, to = g.From, g.To },
			Stdout: writer(func(p []byte) (int, error) {
				out.Write(p)
				if to+uint64(out.Len()) == uint64(len(text)) {
					if err := box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}); err != nil {
						c.Errorf("signal KILL: %v", err)
					}
				}
				return len(p), nil
			}),
		})
		if err != nil {
			c.Errorf("attach: %v", err)
		}
	}()
	select {
	case <-done:
	case <-c.Ctx().Done():
		c.Fatalf("the end of the output did not come: gap %d…%d, then %d bytes", from, to, out.Len())
	}
	if from != 0 || to == 0 {
		c.Errorf("of 2 MiB with 64 KiB kept, the gap is %d…%d", from, to)
	}
	if to <= uint64(len(text)) {
		c.Same("what came after the gap", out.Bytes(), text[to:])
	}
}

func attachUnknown(c *C) {
	_, err := c.Box().Attach(c.Ctx(), c.Word("none"), 0, driver.Streams{})
	c.Code(err, "attach to a process that is not there", errs.ProcessUnknown)
}

func attachNewProcess(c *C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	text := pattern(200_000)
	id := spoken(c, box, text, &driver.Command{})
	r := c.Resumption(box)
	c.OK(p.End(), "end the driver process")
	again, err := c.Spawn().Resume(c.Ctx(), r)
	c.OK(err, "resume in another driver process")
	if !again.Reattached() {
		c.Errorf("resume does not say that it found the sandbox with its processes")
	}
	if listed := listed(c, again, id); listed == nil || listed.Exit != nil {
		c.Errorf("the process is not listed as running by the next driver process: %+v", listed)
	}
	got, gaps := follow(c, again, id, 1000, len(text)-1000)
	c.Same("the replay by another driver process, from offset 1000", got, text[1000:])
	if len(gaps) > 0 {
		c.Errorf("gaps in it: %v", gaps)
	}
}

func nobodyReads(c *C) {
	box := c.Box()
	name, mark := c.Word("much"), c.Word("mark")
	put(c, box, name, pattern(4<<20))
	ctx, cancel := context.WithCancelCause(c.Ctx())
	run := begin(ctx, c, box, &driver.Command{
		Argv: []string{"sh", "-c", "cat " + name + "; cat " + name + "; echo > " + mark}, Detached: true, ReplayBytes: 64 << 10,
	}, driver.Streams{})
	cancel(errEnough)
	run.wait(c)
	c.Eventually("a command that prints 8 MiB which nobody reads goes on", func() bool {
		_, err := statErr(c, box, mark, false)
		return err == nil
	})
}
