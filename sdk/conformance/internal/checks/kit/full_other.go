// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kit

import "errors"

func mountSmall(string) (func() error, error) { return nil, errors.ErrUnsupported }
