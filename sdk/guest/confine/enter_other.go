// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package confine

import (
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
)

// Stage is the confined guest.
type Stage struct{}

// Enter refuses: this kernel offers nothing that is known here.
func Enter(*guest.Config) (*Stage, error) {
	return nil, errs.New(errs.Unsupported, "confinement is written for linux only")
}

// SpawnThread does nothing.
func (*Stage) SpawnThread() error { return nil }
