// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func fileUser(c *kit.C) {
	box := c.Box()
	own := strings.TrimSpace(c.Sh(box, "id -un"))
	name := c.Word("f")
	_, err := box.Write(c.Ctx(), name, driver.WriteOptions{User: own}, strings.NewReader("x"))
	c.OK(err, "write as user %s", own)
	if got := kit.Stat(c, box, name).User; got != own {
		c.Errorf("a file that user %s wrote belongs to %s", own, got)
	}
	_, err = box.Write(c.Ctx(), name, driver.WriteOptions{User: "no-such-user-here"}, strings.NewReader("x"))
	c.Code(err, "write as a user that does not exist", errs.InvalidArgument, errs.Unsupported, errs.PermissionDenied, errs.FileNotFound)
}

// watching follows the changes in a directory until the check ends.
func watching(c *kit.C, dir string, recursive bool) (events chan driver.FileEvent, ended chan error, cancel func()) {
	ctx, stop := context.WithCancelCause(c.Ctx())
	events, ended = make(chan driver.FileEvent, 1000), make(chan error, 1)
	box := c.Box()
	go func() {
		ended <- box.WatchFiles(ctx, dir, recursive, "", func(e driver.FileEvent) { events <- e })
	}()
	// The watch is under way once it sees something.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		kit.Put(c, box, fmt.Sprintf("%s/probe-%d", dir, i), nil)
		select {
		case <-events:
			return events, ended, func() { stop(kit.ErrEnough) }
		case err := <-ended:
			c.Fatalf("the watch ended: %v", err)
		case <-tick.C:
		case <-c.Ctx().Done():
			c.Fatalf("a watch saw nothing")
		}
	}
}

// event waits for an event about a path.
func event(c *kit.C, events <-chan driver.FileEvent, name string, kinds ...driver.FileEventKind) {
	for {
		select {
		case e := <-events:
			if e.Path == name && slices.Contains(kinds, e.Kind) || e.Kind == driver.FileOverflow {
				return
			}
		case <-c.Ctx().Done():
			c.Fatalf("no event of kind %v about %s", kinds, name)
		}
	}
}

func watchFiles(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	events, _, cancel := watching(c, dir, false)
	defer cancel()
	kit.Put(c, box, dir+"/f", []byte("1"))
	event(c, events, "f", driver.FileCreated, driver.FileChanged)
	c.Sh(box, "echo more >> "+dir+"/f")
	event(c, events, "f", driver.FileChanged)
	c.OK(box.Remove(c.Ctx(), dir+"/f", false, ""), "remove")
	event(c, events, "f", driver.FileRemoved)
}

func watchRecursive(c *kit.C) {
	box := c.Box()
	dir := c.Dir(box)
	c.OK(box.Mkdir(c.Ctx(), dir+"/a/b", 0, true, ""), "mkdir")
	events, _, cancel := watching(c, dir, true)
	defer cancel()
	kit.Put(c, box, dir+"/a/b/f", []byte("1"))
	event(c, events, "a/b/f", driver.FileCreated, driver.FileChanged)
}

func watchFilesEnds(c *kit.C) {
	_, ended, cancel := watching(c, c.Dir(c.Box()), false)
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			c.Code(err, "a watch whose caller has gone", errs.Canceled)
		}
	case <-c.Ctx().Done():
		c.Fatalf("a watch goes on after its caller has gone")
	}
}
