// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func exitCodes(c *kit.C) {
	box := c.Box()
	for _, code := range []int{0, 1, 2, 42, 126, 127, 255} {
		if got := c.Exec(box, "sh", "-c", "exit "+strconv.Itoa(code)).Exit; got.Code != code || got.Signal != "" || got.TimedOut || got.OOM || got.KilledByStop {
			c.Errorf("exit %d arrived as %+v", code, got)
		}
	}
}

func exitBySignal(c *kit.C) {
	box := c.Box()
	for name, n := range map[string]int{"TERM": 15, "KILL": 9, "INT": 2, "HUP": 1} {
		got := c.Exec(box, "sh", "-c", "kill -"+name+" $$; sleep 3600").Exit
		if got.Code != 128+n || got.Signal != name {
			c.Errorf("the end by %s arrived as %+v, want code %d", name, got, 128+n)
		}
	}
}

func notFound(c *kit.C) {
	box := c.Box()
	for _, name := range []string{"no-such-program-anywhere", "/no/such/file", "./nor-this"} {
		_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{name}}, driver.Streams{})
		c.Code(err, "run "+name, errs.ExecNotFound)
	}
}

func notExecutable(c *kit.C) {
	box := c.Box()
	name := c.Word("data")
	kit.Put(c, box, name, []byte("just data\n"))
	_, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"./" + name}}, driver.Streams{})
	c.Code(err, "run a file that is not executable", errs.ExecNotFound, errs.PermissionDenied)
}

func noArgv(c *kit.C) {
	_, err := c.Try(c.Ctx(), c.Box(), &driver.Command{}, driver.Streams{})
	c.Code(err, "run nothing", errs.InvalidArgument)
}

func timeout(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sleep", "3600"}, Timeout: 200 * time.Millisecond, KillGrace: 100 * time.Millisecond}, nil)
	if !out.Exit.TimedOut {
		c.Errorf("a command that was ended by its timeout does not say so: %+v", out.Exit)
	}
}

func timeoutOutput(c *kit.C) {
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
func treeEnded(c *kit.C, box *rpc.Sandbox, dir, what string) {
	// Whoever lives makes a line every 50 ms; a file that was taken away comes back.
	for _, name := range members {
		c.OK(box.Remove(c.Ctx(), dir+"/"+name, true, ""), "remove")
	}
	c.Sh(box, "sleep 0.5")
	left := kit.List(c, box, dir, driver.ListOptions{})
	for _, name := range members {
		if _, alive := left[name]; alive {
			c.Errorf("%s: the %s of the command lives on", what, name)
		}
	}
	kit.Put(c, box, dir+"/stop", nil)
}

func timeoutTree(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	out, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"sh", "-c", family(dir)}, Timeout: 3 * time.Second, KillGrace: 100 * time.Millisecond}, driver.Streams{})
	c.OK(err, "run")
	if !bytes.Contains(out.Stdout, []byte("up")) {
		c.Skipf("the sandbox was too slow for the tree to grow within the timeout")
	}
	treeEnded(c, box, dir, "after a timeout")
}

func cancelled(c *kit.C) {
	ctx, cancel := context.WithCancelCause(c.Ctx())
	run := kit.Begin(ctx, c, c.Box(), &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
	cancel(kit.ErrEnough)
	run.Wait(c)
	c.Code(run.Err, "run, cancelled", errs.Canceled)
}

func cancelTree(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	ctx, cancel := context.WithCancelCause(c.Ctx())
	up := kit.Seen("up")
	run := kit.Begin(ctx, c, box, &driver.Command{Argv: []string{"sh", "-c", family(dir)}, KillGrace: 100 * time.Millisecond}, driver.Streams{Stdout: up})
	up.Wait(c, run)
	cancel(kit.ErrEnough)
	run.Wait(c)
	c.Code(run.Err, "run, cancelled", errs.Canceled)
	treeEnded(c, box, dir, "after a cancel")
}

func graceGiven(c *kit.C) {
	box := c.Box()
	name := c.Word("grace")
	ctx, cancel := context.WithCancelCause(c.Ctx())
	up := kit.Seen("up")
	run := kit.Begin(ctx, c, box, &driver.Command{
		Argv: []string{"sh", "-c", "trap 'echo bye > " + name + "; exit 0' TERM; echo up; while :; do sleep 0.05; done"}, KillGrace: time.Minute,
	}, driver.Streams{Stdout: up})
	up.Wait(c, run)
	cancel(kit.ErrEnough)
	run.Wait(c)
	c.Eventually("what a command does when it gets TERM", func() bool {
		_, err := kit.StatErr(c, box, name, false)
		return err == nil
	})
}

func graceEnds(c *kit.C) {
	box := c.Box()
	up := kit.Seen("up")
	ctx, cancel := context.WithCancelCause(c.Ctx())
	run := kit.Begin(ctx, c, box, &driver.Command{
		Argv: []string{"sh", "-c", "trap '' TERM; echo up; sleep 3600"}, KillGrace: 100 * time.Millisecond,
	}, driver.Streams{Stdout: up})
	up.Wait(c, run)
	cancel(kit.ErrEnough)
	run.Wait(c)
	c.Code(run.Err, "run of a command that ignores TERM, cancelled", errs.Canceled)
}

func endWithChildren(c *kit.C) {
	out := c.Exec(c.Box(), "sh", "-c", "sleep 3600 & echo ended")
	c.Same("the output of a command that left a child behind which holds its pipes", out.Stdout, []byte("ended\n"))
}
