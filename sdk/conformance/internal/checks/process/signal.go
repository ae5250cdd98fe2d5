// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"io"
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func signalTree(c *kit.C) {
	box := c.Box()
	for _, name := range []string{"TERM", "KILL", "INT"} {
		run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
		c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: name}), "signal %s", name)
		run.Wait(c)
		c.OK(run.Err, "run")
		if run.Out.Exit.Signal != name {
			c.Errorf("a command that got %s ended with %+v", name, run.Out.Exit)
		}
	}
}

func signalTrap(c *kit.C) {
	box := c.Box()
	up, got := kit.Seen("up"), kit.Seen("child got it")
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{
		"sh", "-c",
		`trap 'echo leader got it' USR1; sh -c "trap 'echo child got it; exit 0' USR1; echo up; while :; do sleep 0.05; done" & while :; do sleep 0.05; done`,
	}},
		driver.Streams{Stdout: io.MultiWriter(up, got)})
	up.Wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "USR1"}), "signal USR1")
	got.Wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "KILL"}), "signal KILL")
	run.Wait(c)
}

func signalLeader(c *kit.C) {
	box := c.Box()
	up, got := kit.Seen("up"), kit.Seen("leader got it")
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{
		"sh", "-c",
		`trap 'echo leader got it' USR1; sh -c "trap 'echo child got it' USR1; echo up; while :; do sleep 0.05; done" & while :; do sleep 0.05; done`,
	}},
		driver.Streams{Stdout: io.MultiWriter(up, got)})
	up.Wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "USR1", LeaderOnly: true}), "signal USR1 to the leader")
	got.Wait(c, run)
	c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "KILL"}), "signal KILL")
	run.Wait(c)
	if bytes.Contains(run.Out.Stdout, []byte("child")) {
		c.Errorf("a signal for the leader alone reached a child")
	}
}

func signalStream(c *kit.C) {
	signals := make(chan driver.Signal, 1)
	run := kit.Begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{Signals: signals})
	signals <- driver.Signal{Name: "TERM"}
	run.Wait(c)
	c.OK(run.Err, "run")
	if run.Out.Exit.Signal != "TERM" {
		c.Errorf("a command that got TERM by its stream ended with %+v", run.Out.Exit)
	}
}

func signalUnknownProcess(c *kit.C) {
	c.Code(c.Box().Signal(c.Ctx(), c.Word("none"), driver.Signal{Name: "TERM"}), "signal to a process that is not there", errs.ProcessUnknown)
}

func signalUnknownName(c *kit.C) {
	box := c.Box()
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sleep", "3600"}}, driver.Streams{})
	c.Code(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "NONSENSE"}), "a signal that does not exist", errs.InvalidArgument)
	c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "KILL"}), "signal KILL")
	run.Wait(c)
}

func listed(c *kit.C, box *rpc.Sandbox, id string) *driver.Process {
	ps, err := box.Processes(c.Ctx())
	c.OK(err, "list processes")
	if i := slices.IndexFunc(ps, func(p driver.Process) bool { return p.ID == id }); i >= 0 {
		return &ps[i]
	}
	return nil
}

func listProcesses(c *kit.C) {
	box := c.Box()
	id := c.Word("p")
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{ID: id, Argv: []string{"sleep", "3600"}}, driver.Streams{})
	p := listed(c, box, id)
	switch {
	case p == nil:
		c.Errorf("a running process is not in the list")
	case !slices.Equal(p.Argv, []string{"sleep", "3600"}) || p.Exit != nil || p.TTY || p.Started.IsZero() || p.PID == 0:
		c.Errorf("a running process is listed as %+v", *p)
	}
	c.OK(box.Signal(c.Ctx(), id, driver.Signal{Name: "KILL"}), "signal KILL")
	run.Wait(c)
}

func listEnded(c *kit.C) {
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
