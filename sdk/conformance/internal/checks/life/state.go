// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
)

func stateSize(c *kit.C) {
	const most = 64 << 10
	box := c.Fresh(func(r *driver.CreateRequest) {
		for i := range 64 {
			r.Labels[fmt.Sprintf("label-%d", i)] = strings.Repeat("l", 60)
			r.Env[fmt.Sprintf("VARIABLE_%d", i)] = strings.Repeat("v", 1000)
		}
	})
	if n := len(box.State().Data); n > most {
		c.Errorf("the state has %d bytes, more than %d", n, most)
	}
}

func stateSecrets(c *kit.C) {
	box := c.Fresh()
	c.Command(box, &driver.Command{Argv: []string{"true"}, SecretEnv: map[string]string{"ANOTHER": c.Canary}}, nil)
	st := box.State()
	c.NoSecret("the state", string(st.Data))
	for k, v := range st.Display {
		c.NoSecret("the state's fact "+k, v)
	}
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	c.NoSecret("what inspect gives", fmt.Sprint(info))
}

func inspect(c *kit.C) {
	box := c.Fresh()
	info, err := box.Inspect(c.Ctx())
	c.OK(err, "inspect")
	if info.SandboxID != box.ID() || info.Status != driver.StatusRunning || info.Root != c.Options().Workspace || info.Created.IsZero() {
		c.Errorf("inspect: id %q, status %q, root %q, created %v", info.SandboxID, info.Status, info.Root, info.Created)
	}
	for k, v := range c.Labels() {
		if info.Labels[k] != v {
			c.Errorf("inspect: label %s is %q, not %q", k, info.Labels[k], v)
		}
	}
}
