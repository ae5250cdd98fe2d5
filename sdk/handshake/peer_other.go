// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package handshake

import (
	"net"
	"runtime"

	"github.com/berth-dev/berth/sdk/errs"
)

// peerUID is not known here, so that no connection over a unix socket is accepted.
func peerUID(*net.UnixConn) (int, error) {
	return 0, errs.New(errs.Unsupported, "the peer of a unix socket cannot be identified on %s", runtime.GOOS)
}
