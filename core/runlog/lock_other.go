// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package runlog

import (
	"os"

	"github.com/berth-dev/berth/sdk/errs"
)

func lock(*os.File) error { return errs.New(errs.Unsupported, "run logs need file locks") }
