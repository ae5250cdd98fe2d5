// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"net"
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/rpc"
)

// Found gives the ids of this driver's sandboxes with the labels.
func Found(c *C, d *rpc.Driver, labels map[string]string) []string {
	var out []string
	for info, err := range d.List(c.Ctx(), labels) {
		c.OK(err, "list sandboxes")
		out = append(out, info.SandboxID)
	}
	return out
}

// Connect connects to a unix socket.
func Connect(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// Abandoned wants that a create which was given up left nothing, or something that can be found.
func Abandoned(c *C, req *driver.CreateRequest) {
	if !c.Claims(driver.LifeList) {
		return
	}
	// What is left may still be going.
	c.Eventually("what a cancelled create left is gone, or can be destroyed", func() bool {
		ids := Found(c, c.Driver(), map[string]string{"abandoned": req.Labels["abandoned"]})
		return len(ids) == 0 || slices.Equal(ids, []string{req.SandboxID})
	})
	box, err := c.Main().Create(c.Ctx(), req)
	c.OK(err, "create after a create with the same id was cancelled")
	c.Sh(box, "true")
	c.OK(box.Destroy(c.Ctx()), "destroy")
	if ids := Found(c, c.Driver(), map[string]string{"abandoned": req.Labels["abandoned"]}); len(ids) > 0 {
		c.Errorf("after a cancelled create, a second one and a destroy, %v are left", ids)
	}
}

// Ended waits for the end of a program.
func Ended(c *C, p *suite.Program, why string) {
	if err := p.Wait(c.Ctx()); err != nil {
		c.Fatalf("the program does not end: %s (%v)", why, err)
	}
}
