// SPDX-License-Identifier: Apache-2.0

// Package kit is what checks share: calls that must not fail, commands in the background, and things to write and read.
// It holds no check.
package kit

import (
	"errors"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
)

// C is a check while it runs.
type C = suite.C

// SavedState is a state that was kept.
type SavedState = suite.SavedState

// ErrEnough is why a caller goes away.
var ErrEnough = errors.New("the caller has gone")

// Long is longer than any check.
const Long = time.Hour

// Forever is a command that ends only when it is ended.
var Forever = driver.Command{Argv: []string{"sleep", "3600"}}

// NoStreams are those of a command that says nothing to anybody.
var NoStreams driver.Streams

// Needs lists features.
func Needs(f ...driver.Feature) []driver.Feature { return f }
