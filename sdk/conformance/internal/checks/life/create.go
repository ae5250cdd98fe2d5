// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func create(c *kit.C) {
	box := c.Fresh()
	if st := box.State(); len(st.Data) == 0 {
		c.Errorf("the state is empty: nothing could find the sandbox again")
	} else if st.Version != c.Main().Desc.StateVersion {
		c.Errorf("the state has version %d, the description says %d", st.Version, c.Main().Desc.StateVersion)
	}
	info := box.Info()
	if info.SandboxID != box.ID() || info.Status != driver.StatusRunning || info.Root != c.Options().Workspace {
		c.Errorf("info of a new sandbox: id %q, status %q, root %q", info.SandboxID, info.Status, info.Root)
	}
	if len(kit.List(c, box, ".", driver.ListOptions{})) > 0 {
		c.Errorf("the workspace of a fresh sandbox is not empty")
	}
}

func createSameID(c *kit.C) {
	req := c.Request()
	box, err := c.Main().Create(c.Ctx(), req)
	c.OK(err, "create")
	c.Destroyed(box)
	kit.Put(c, box, "kept", []byte("kept"))
	for range c.Options().Repeat {
		again, err := c.Main().Create(c.Ctx(), req)
		c.OK(err, "create with the same id")
		c.Same("a file of the first create, seen by a later one", kit.Get(c, again, "kept"), []byte("kept"))
	}
}

func createAtOnce(c *kit.C) {
	req := c.Request()
	boxes := make([]*rpc.Sandbox, 4)
	var all sync.WaitGroup
	for i := range boxes {
		all.Go(func() {
			r := *req
			var err error
			if boxes[i], err = c.Main().Create(c.Ctx(), &r); err != nil {
				c.Errorf("create %d of 4 with the same id at once: %v", i, err)
			}
		})
	}
	all.Wait()
	for i, box := range boxes {
		if box == nil {
			return
		}
		if i == 0 {
			c.Destroyed(box)
			kit.Put(c, box, "kept", []byte("kept"))
			continue
		}
		c.Same("a file of the first create, seen by the one at the same time", kit.Get(c, box, "kept"), []byte("kept"))
	}
}

func createInNewProcess(c *kit.C) {
	req := c.Request()
	box, err := c.Main().Create(c.Ctx(), req)
	c.OK(err, "create")
	c.Destroyed(box)
	kit.Put(c, box, "kept", []byte("kept"))
	again, err := c.Spawn().Create(c.Ctx(), req)
	c.OK(err, "create with the same id in another driver process")
	c.Same("a file of the first create", kit.Get(c, again, "kept"), []byte("kept"))
}

func createMany(c *kit.C) {
	var all sync.WaitGroup
	boxes := make([]*rpc.Sandbox, 6)
	for i := range boxes {
		all.Go(func() {
			var err error
			if boxes[i], err = c.Main().Create(c.Ctx(), c.Request()); err != nil {
				c.Errorf("create %d of %d at once: %v", i, len(boxes), err)
			}
		})
	}
	all.Wait()
	for i, box := range boxes {
		if box != nil {
			c.Destroyed(box)
			if got := c.Sh(box, fmt.Sprintf("echo %d", i)); got != fmt.Sprintf("%d\n", i) {
				c.Errorf("sandbox %d said %q", i, got)
			}
		}
	}
}

func createCancelled(c *kit.C) {
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		req := c.Request()
		req.Labels["abandoned"] = c.Word("a")
		ctx, cancel := context.WithTimeoutCause(c.Ctx(), after, kit.ErrEnough)
		box, err := c.Main().Create(ctx, req)
		cancel()
		if err != nil {
			c.Code(err, "a create that was cancelled", errs.Canceled)
			kit.Abandoned(c, req)
			continue
		}
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
}

func createCancelledAtOnce(c *kit.C) {
	req := c.Request()
	req.Labels["abandoned"] = c.Word("a")
	ctx, cancel := context.WithCancelCause(c.Ctx())
	cancel(kit.ErrEnough)
	_, err := c.Main().Create(ctx, req)
	c.Code(err, "a create that was cancelled before", errs.Canceled)
	kit.Abandoned(c, req)
}

func apart(c *kit.C) {
	a, b := c.Fresh(), c.Fresh()
	kit.Put(c, a, "mine", []byte("a"))
	kit.Absent(c, b, "mine")
	word := c.Word("apart")
	c.Sh(a, "echo x > /tmp/"+word)
	if out := c.Exec(b, "sh", "-c", "cat /tmp/"+word); out.Exit.Code == 0 {
		c.Errorf("a file in /tmp of one sandbox is in another")
	}
}

func workspace(c *kit.C) {
	box, root := c.Box(), c.Options().Workspace
	if got := strings.TrimSpace(c.Sh(box, "pwd")); got != root {
		c.Errorf("commands start in %q, not in the workspace %q", got, root)
	}
	name := c.Word("root")
	kit.Put(c, box, root+"/"+name, []byte("x"))
	c.Same("a file by its relative path", kit.Get(c, box, name), []byte("x"))
	if info := kit.Stat(c, box, root); info.Type != driver.TypeDirectory {
		c.Errorf("the workspace root is no directory but %v", info.Type)
	}
}

func workspaceMode(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Workspace.Mode = 0o750 })
	if got := kit.Stat(c, box, ".").Mode & 0o777; got != 0o750 {
		c.Errorf("the workspace has mode %04o, not 0750", got)
	}
}

func environment(c *kit.C) {
	box := c.Box()
	if got := c.Sh(box, `echo "$BERTH_PLAIN/$`+suite.CanaryName+`"`); got != "plain/"+c.Canary+"\n" {
		c.Errorf("environment and secret environment of the sandbox, in a command: %q", strings.ReplaceAll(got, c.Canary, "(the canary)"))
	}
}

func environmentOfToday(c *kit.C) {
	box := c.Fresh()
	r := c.Resumption(box)
	r.Env = map[string]string{"BERTH_NEW": "new", "BERTH_PLAIN": "changed"}
	r.SecretEnv = map[string]string{"BERTH_SECRET": "hidden"}
	again, err := c.Main().Resume(c.Ctx(), r)
	c.OK(err, "resume")
	if got := c.Sh(again, `echo "$BERTH_NEW/$BERTH_SECRET/$BERTH_PLAIN"`); got != "new/hidden/changed\n" {
		c.Errorf("after a resume with another environment a command has %q, want that of the resume", got)
	}
}
