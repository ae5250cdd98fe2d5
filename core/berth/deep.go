// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
)

// Finding is what a driver says about one configuration body.
type Finding struct {
	Driver string
	Config spec.DriverConfig // nil = the files have none
	Pos    spec.Pos          // of the block that the body belongs to
	Found  []driver.Diagnostic
	Err    error // the driver could not be asked
}

// CheckDrivers starts the drivers of a project and has each check its configurations. Secrets in them are fetched, and
// a driver may ask its vendor.
func (h *Harness) CheckDrivers(ctx context.Context, p *spec.Project) []Finding {
	var out []Finding
	checked := map[string]*plugin.Handle{} // by label of the driver; nil = it did not start
	defer func() {
		for _, handle := range checked {
			if handle != nil {
				handle.Release()
			}
		}
	}()
	start := func(label string, at spec.Pos) *plugin.Handle {
		if handle, done := checked[label]; done {
			return handle
		}
		f := Finding{Driver: label, Pos: at}
		if d := p.Drivers[label]; d != nil {
			f.Config, f.Pos = d.Config, d.Pos
		}
		handle, err := h.cfg.Plugins.Acquire(ctx, h.request(p, label))
		var bad *plugin.ConfigError
		switch {
		case errors.As(err, &bad):
			f.Found = bad.Diagnostics
		case err != nil:
			f.Err = err
		default:
			f.Found = handle.Configured()
		}
		checked[label] = handle
		out = append(out, f)
		return handle
	}
	for _, label := range slices.Sorted(maps.Keys(p.Drivers)) {
		start(label, spec.Pos{})
	}
	for _, label := range slices.Sorted(maps.Keys(p.Sandboxes)) {
		s := p.Sandboxes[label]
		handle := start(h.DriverOf(s), s.Pos)
		if handle == nil {
			continue
		}
		f := Finding{Driver: h.DriverOf(s), Config: s.Config, Pos: s.Pos}
		f.Found, f.Err = check(ctx, handle, s.Config)
		out = append(out, f)
	}
	if len(p.Sandboxes)+len(p.Drivers) == 0 {
		start(h.cfg.DefaultDriver, spec.Pos{})
	}
	return out
}

func check(ctx context.Context, handle *plugin.Handle, config spec.DriverConfig) ([]driver.Diagnostic, error) {
	var value schema.Value
	if config != nil {
		v, err := config.Encode()
		if err != nil {
			return nil, err
		}
		value = schema.Value{MsgPack: v.MsgPack, JSON: v.JSON}
	}
	return handle.Validate(ctx, value, true)
}
