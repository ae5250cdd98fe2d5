// SPDX-License-Identifier: Apache-2.0

package life

import (
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func networkNone(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Network.Mode = "none" })
	var devices []string
	for line := range strings.Lines(c.Sh(box, "cat /proc/net/dev")) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && name != "lo" {
			devices = append(devices, name)
		}
	}
	// Without a network of its own a sandbox may see the host's devices; then its sockets have to be refused.
	if len(devices) > 0 {
		out := c.Exec(box, "sh", "-c", `command -v bash >/dev/null || exit 77; bash -c 'exec 3<>/dev/tcp/127.0.0.1/9' 2>&1`)
		if out.Exit.Code == 77 {
			c.Skipf("the sandbox has the devices %v and no bash to try a socket with", devices)
		}
		if text := string(out.Stdout); out.Exit.Code == 0 || strings.Contains(text, "refused") {
			c.Errorf("with network none there are %v and sockets work: %s", devices, text)
		}
	}
}

func networkNonsense(c *kit.C) {
	req := c.Request()
	req.Network.Mode = "no-such-mode"
	box, err := c.Main().Create(c.Ctx(), req)
	if err == nil {
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
	c.Code(err, "create with a network mode that nobody knows", errs.Unsupported, errs.InvalidArgument, errs.ConfigInvalid)
}
