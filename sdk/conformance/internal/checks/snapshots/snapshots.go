// SPDX-License-Identifier: Apache-2.0

// Package snapshots holds the checks of the group snapshot: what a driver saves with its kind's own means.
package snapshots

import (
	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// Group is the group snapshot.
func Group() suite.Group {
	native := kit.Needs(driver.SnapNative)
	return suite.Group{
		Name: "snapshot", Doc: "workspaces are saved with the kind's own means, come back, and are apart",
		Checks: []suite.Check{
			{Name: "take", Needs: native, Func: take},
			{Name: "restore", Needs: native, Func: restore},
			{Name: "restore-in-new-process", Needs: native, Process: true, Func: restoreInNewProcess},
			{Name: "is-of-its-moment", Needs: native, Func: moment},
			{Name: "outlives-its-sandbox", Needs: native, Func: outlives},
			{Name: "restored-are-apart", Needs: native, Func: apart},
			{Name: "list", Needs: native, Func: list},
			{Name: "delete", Needs: native, Func: remove},
			{Name: "unknown-id", Needs: native, Func: unknown},
			{Name: "holds-no-secret", Needs: native, Func: secrets},
			{Name: "memory", Needs: kit.Needs(driver.SnapMemory), Func: memory},
			{Name: "memory-not-claimed", Needs: native, Unless: driver.SnapMemory, Func: memoryNotClaimed},
			{Name: "not-claimed", Unless: driver.SnapNative, Func: notClaimed},
		},
	}
}

// snap takes a snapshot that goes with the check.
func snap(c *kit.C, box *rpc.Sandbox, memory bool, labels map[string]string) driver.NativeSnapshot {
	s, err := box.Snapshot(c.Ctx(), c.Word("snap"), memory, labels)
	c.OK(err, "take a snapshot")
	c.Cleanup(func() {
		if err := c.Driver().DeleteSnapshot(c.Ctx(), s.ID); err != nil {
			c.Errorf("delete snapshot %s after the check: %v", s.ID, err)
		}
	})
	return s
}

// from makes a sandbox of a snapshot.
func from(c *kit.C, p *suite.Process, id string) *rpc.Sandbox {
	box := c.FreshOn(p, func(r *driver.CreateRequest) { r.NativeSnapshot = id })
	if !box.WorkspacePreserved() {
		c.Errorf("a sandbox that was made of a snapshot does not say that it holds its workspace: it would be filled again")
	}
	return box
}

// saved is a sandbox with something to save.
func saved(c *kit.C) *rpc.Sandbox {
	box := c.Fresh()
	kit.Put(c, box, "f", []byte("saved"))
	c.Sh(box, "mkdir d; echo deep > d/f")
	return box
}

func whole(c *kit.C, box *rpc.Sandbox) {
	c.Same("a file of a snapshot", kit.Get(c, box, "f"), []byte("saved"))
	if got := c.Sh(box, "cat d/f"); got != "deep\n" {
		c.Errorf("a command read from a snapshot's file %q", got)
	}
}

func take(c *kit.C) {
	box := saved(c)
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"cat"}}, kit.NoStreams)
	run.Wait(c)
	s := snap(c, box, false, nil)
	if s.ID == "" || s.SandboxID != box.ID() || s.Created.IsZero() || s.Memory {
		c.Errorf("a snapshot of sandbox %s without memory: %+v", box.ID(), s)
	}
	whole(c, box)
	if other := snap(c, box, false, nil); other.ID == s.ID {
		c.Errorf("two snapshots have the same id %q", s.ID)
	}
}

func restore(c *kit.C) {
	box := saved(c)
	s := snap(c, box, false, nil)
	again := from(c, c.Main(), s.ID)
	if again.ID() == box.ID() {
		c.Errorf("a sandbox that was made of a snapshot has the id of the one that was saved")
	}
	whole(c, again)
	if got := c.Sh(again, `echo "$BERTH_PLAIN"`); got != "plain\n" {
		c.Errorf("the environment that a restored sandbox was created with: %q", got)
	}
}

func restoreInNewProcess(c *kit.C) {
	s := snap(c, saved(c), false, nil)
	whole(c, from(c, c.Spawn(), s.ID))
}

func moment(c *kit.C) {
	box := saved(c)
	s := snap(c, box, false, nil)
	kit.Put(c, box, "f", []byte("later"))
	kit.Put(c, box, "new", []byte("later"))
	again := from(c, c.Main(), s.ID)
	whole(c, again)
	kit.Absent(c, again, "new")
}

func outlives(c *kit.C) {
	box := saved(c)
	s := snap(c, box, false, nil)
	c.OK(box.Destroy(c.Ctx()), "destroy the sandbox that was saved")
	whole(c, from(c, c.Main(), s.ID))
}

func apart(c *kit.C) {
	box := saved(c)
	s := snap(c, box, false, nil)
	first, second := from(c, c.Main(), s.ID), from(c, c.Main(), s.ID)
	kit.Put(c, first, "f", []byte("changed"))
	c.Sh(first, "rm -r d; echo new > new")
	for _, other := range []*rpc.Sandbox{box, second, from(c, c.Main(), s.ID)} {
		whole(c, other)
		kit.Absent(c, other, "new")
	}
}

// ids are those of the snapshots with a label.
func ids(c *kit.C, labels map[string]string) map[string]driver.NativeSnapshot {
	out := map[string]driver.NativeSnapshot{}
	for s, err := range c.Driver().Snapshots(c.Ctx(), labels) {
		c.OK(err, "list snapshots")
		out[s.ID] = s
	}
	return out
}

func list(c *kit.C) {
	box := saved(c)
	word := c.Word("label")
	s := snap(c, box, false, map[string]string{"one": word, "odd": "ä /:=,\" b"})
	snap(c, box, false, map[string]string{"one": word + "x"})
	got := ids(c, map[string]string{"one": word})
	if at, there := got[s.ID]; len(got) != 1 || !there || at.SandboxID != box.ID() || at.Created.IsZero() || at.Labels["odd"] != "ä /:=,\" b" {
		c.Errorf("the list of snapshots by a label: %+v, want %s", got, s.ID)
	}
	if got := ids(c, map[string]string{"one": word, "two": "x"}); len(got) > 0 {
		c.Errorf("the list by two labels gives %+v, which have only one of them", got)
	}
}

func remove(c *kit.C) {
	word := c.Word("label")
	s := snap(c, saved(c), false, map[string]string{"one": word})
	for i := range c.Options().Repeat {
		c.OK(c.Driver().DeleteSnapshot(c.Ctx(), s.ID), "delete, time %d", i+1)
	}
	if got := ids(c, map[string]string{"one": word}); len(got) > 0 {
		c.Errorf("after the delete the list gives %+v", got)
	}
	refused(c, s.ID, "of a snapshot that was deleted", errs.SnapshotUnusable)
}

// refused wants that no sandbox is made of a snapshot.
func refused(c *kit.C, id, what string, codes ...errs.Code) {
	req := c.Request()
	req.NativeSnapshot, req.Labels["abandoned"] = id, c.Word("a")
	box, err := c.Main().Create(c.Ctx(), req)
	if err == nil {
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
	c.Code(err, "create "+what, codes...)
	if c.Claims(driver.LifeList) {
		if left := kit.Found(c, c.Driver(), map[string]string{"abandoned": req.Labels["abandoned"]}); len(left) > 0 {
			c.Errorf("a create %s left %v", what, left)
		}
	}
}

func unknown(c *kit.C) {
	refused(c, c.Word("no-such-snapshot"), "of a snapshot that was never taken", errs.SnapshotUnusable)
	refused(c, "no/such: snapshot\n", "of a snapshot whose id is nonsense", errs.SnapshotUnusable, errs.InvalidArgument)
}

// secrets wants that what the driver says of a snapshot does not hold the secret environment of its sandbox.
func secrets(c *kit.C) {
	word := c.Word("label")
	s := snap(c, saved(c), false, map[string]string{"one": word})
	for k, v := range ids(c, map[string]string{"one": word})[s.ID].Labels {
		c.NoSecret("the label "+k+" of a snapshot", v)
	}
	again := c.Fresh(func(r *driver.CreateRequest) { r.NativeSnapshot, r.SecretEnv = s.ID, nil })
	c.NoSecret("the environment of a sandbox that was made of a snapshot, and was given no secret", c.Sh(again, "env"))
}

func memory(c *kit.C) {
	box := saved(c)
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{
		Argv: []string{"sh", "-c", "until test -e go; do sleep 0.02; done; echo woke > woke; sleep 3600"}, Detached: true,
	}, kit.NoStreams)
	s := snap(c, box, true, nil)
	if !s.Memory {
		c.Errorf("a snapshot with memory: %+v", s)
	}
	again := from(c, c.Main(), s.ID)
	kit.Put(c, again, "go", nil)
	c.Eventually("a process of the snapshot goes on in the sandbox that was made of it", func() bool {
		_, err := kit.StatErr(c, again, "woke", false)
		return err == nil
	})
	kit.Absent(c, box, "woke")
	c.OK(box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "KILL"}), "signal KILL")
	run.Wait(c)
}

func memoryNotClaimed(c *kit.C) {
	s, err := c.Fresh().Snapshot(c.Ctx(), c.Word("snap"), true, nil)
	if err == nil {
		c.OK(c.Driver().DeleteSnapshot(c.Ctx(), s.ID), "delete")
	}
	c.Code(err, "a snapshot with memory by a driver that does not claim it", errs.Unsupported)
}

func notClaimed(c *kit.C) {
	_, err := c.Box().Snapshot(c.Ctx(), c.Word("snap"), false, nil)
	c.Code(err, "a snapshot by a driver that does not claim it", errs.Unsupported)
	refused(c, c.Word("no-such-snapshot"), "of a snapshot by a driver that takes none", errs.Unsupported, errs.SnapshotUnusable)
}
