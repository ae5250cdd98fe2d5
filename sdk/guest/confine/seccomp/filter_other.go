// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package seccomp

import "errors"

var errMissing = errors.New("system call filters are written for linux on amd64 and arm64 only")

// Install refuses.
func Install(Options) error { return errMissing }

// Available refuses.
func Available() error { return errMissing }
