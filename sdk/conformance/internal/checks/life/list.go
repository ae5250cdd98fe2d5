// SPDX-License-Identifier: Apache-2.0

package life

import (
	"slices"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
)

func labels(c *kit.C) {
	word := c.Word("label")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"], r.Labels["odd"] = word, "ä /:=,\" b" })
	c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word + "x" })
	if ids := kit.Found(c, c.Driver(), map[string]string{"one": word}); !slices.Equal(ids, []string{box.ID()}) {
		c.Errorf("list by a label gives %v, want %s", ids, box.ID())
	}
	if ids := kit.Found(c, c.Driver(), map[string]string{"one": word, "odd": "ä /:=,\" b"}); !slices.Equal(ids, []string{box.ID()}) {
		c.Errorf("list by a label with odd characters gives %v, want %s", ids, box.ID())
	}
}

func listAllLabels(c *kit.C) {
	word := c.Word("label")
	c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word })
	if ids := kit.Found(c, c.Driver(), map[string]string{"one": word, "two": "x"}); len(ids) > 0 {
		c.Errorf("list by two labels gives %v, which have only one of them", ids)
	}
}

func listNothing(c *kit.C) {
	if ids := kit.Found(c, c.Driver(), map[string]string{"nobody-has": c.Word("it")}); len(ids) > 0 {
		c.Errorf("list by a label that no sandbox has gives %v", ids)
	}
}

func listDestroyed(c *kit.C) {
	word := c.Word("label")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word })
	if ids := kit.Found(c, c.Driver(), map[string]string{"one": word}); len(ids) != 1 {
		c.Errorf("list gives %v, want %s", ids, box.ID())
	}
	c.OK(box.Destroy(c.Ctx()), "destroy")
	for info, err := range c.Driver().List(c.Ctx(), map[string]string{"one": word}) {
		c.OK(err, "list")
		if info.Status != driver.StatusGone {
			c.Errorf("list gives a destroyed sandbox with status %q", info.Status)
		}
	}
}

func listInNewProcess(c *kit.C) {
	word := c.Word("label")
	box := c.Fresh(func(r *driver.CreateRequest) { r.Labels["one"] = word })
	if ids := kit.Found(c, c.Spawn().Driver, map[string]string{"one": word}); !slices.Equal(ids, []string{box.ID()}) {
		c.Errorf("list in another driver process gives %v, want %s: what a core lost could not be found", ids, box.ID())
	}
}
