// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	mounts "github.com/berth-dev/berth/mounts/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// Native gives the mounts that the vendor makes with the sandbox, with their credentials: those are the vendor's to keep.
// The sandbox of the session is not there yet.
func (h *Host) Native(ctx context.Context, s Session) ([]driver.MountSpec, error) {
	var out []driver.MountSpec
	for _, e := range s.Entries {
		how, err := chosen(&s, e)
		if err == nil {
			err = Check(e)
		}
		if err != nil {
			return nil, err
		}
		if how != mounts.Native {
			continue
		}
		m, err := h.native(ctx, e)
		if err != nil {
			return nil, err
		}
		out = append(out, *m)
	}
	return out, nil
}

func (h *Host) native(ctx context.Context, e *spec.Entry) (*driver.MountSpec, error) {
	for _, name := range []string{"access", "cache", "limits"} {
		if e.Mount.Settings[name] != nil {
			return nil, errs.New(errs.Unsupported, "mount %q: the vendor mounts it, and takes no %s block", e.Path, name).WithHint("leave the block out")
		}
	}
	if ambient, _ := e.Mount.Settings["ambient"].(bool); ambient {
		return nil, errs.New(errs.Unsupported, "mount %q: the vendor mounts it, and this machine's identity does not go there", e.Path).
			WithHint("give it credentials of its own, or what the vendor takes in its strategy block")
	}
	m := &driver.MountSpec{ID: e.Path, Kind: e.Mount.Kind, Path: target(e), ReadOnly: e.Mount.ReadOnly, Strategy: mounts.Native}
	var err error
	if m.Source.JSON, err = json.Marshal(e.Mount.Fields); err != nil {
		return nil, err
	}
	if e.Mount.Strategy == mounts.Native && len(e.Mount.Options) > 0 {
		for name, v := range e.Mount.Options {
			if _, ok := v.(value.Secret); ok {
				return nil, errs.New(errs.MountConfigInvalid, "mount %q: %s in its strategy block is a secret", e.Path, name).WithHint("secrets belong in the credentials block")
			}
		}
		b, err := json.Marshal(e.Mount.Options)
		if err != nil {
			return nil, err
		}
		m.StrategyConfig = schema.Value{JSON: b}
	}
	m.Credentials, err = h.reveal(ctx, e.Path, e.Mount.Credentials)
	return m, err
}

// chosen is the strategy of a mount with this driver. An error says what it has instead.
func chosen(s *Session, e *spec.Entry) (string, error) {
	if err := supported(s, e); err != nil {
		return "", err
	}
	allow, _ := e.Mount.Options["allow"].([]string)
	how, _ := mounts.Choose(e.Mount.Strategy, allow, strategies(s, e))
	return how, nil
}

// strategies are those that the driver has for the kind of a mount.
func strategies(s *Session, e *spec.Entry) []string {
	var can []string
	for _, m := range s.Mounts {
		if m.Kind == e.Mount.Kind {
			can = append(can, m.Strategies...)
		}
	}
	slices.Sort(can)
	return slices.Compact(can)
}

// served are the mounts of a session that a process on this machine serves.
func served(s *Session) ([]*spec.Entry, error) {
	var out []*spec.Entry
	for _, e := range s.Entries {
		how, err := chosen(s, e)
		if err == nil {
			err = Check(e)
		}
		if err != nil {
			return nil, err
		}
		if how != mounts.Native {
			out = append(out, e)
		}
	}
	return out, nil
}
