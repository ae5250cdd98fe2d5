// SPDX-License-Identifier: Apache-2.0

// Package embed carries the built guest program inside the driver that imports it.
package embed

import (
	"embed"

	"github.com/berth-dev/berth/sdk/errs"
)

// bin holds the programs that `make guest` built; a README keeps the directory when there are none.
//
//go:embed bin
var bin embed.FS

// Guest gives the guest program for a platform. Guests exist for linux; the error says how to build a missing one.
func Guest(goos, goarch string) ([]byte, error) {
	name := "berth-guest-" + goos + "-" + goarch
	b, err := bin.ReadFile("bin/" + name)
	if err != nil {
		return nil, errs.New(errs.Unsupported, "this program carries no guest for %s/%s", goos, goarch).
			With("file", name).
			WithHint("run `make guest`, then build the driver again")
	}
	return b, nil
}
