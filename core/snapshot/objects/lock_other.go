// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package objects

import (
	"errors"
	"os"
)

func flock(*os.File, bool) error { return errors.ErrUnsupported }
