// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package attach

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/berth-dev/berth/sdk/errs"
)

// errUnsupported is why a machine cannot attach anything.
var errUnsupported = errors.New("file systems are attached on Linux only")

func unsupported() error { return errs.Wrap(errs.Unsupported, "attach a file system", errUnsupported) }

// Attach works on Linux only.
func Attach(context.Context, *Target, string) error { return unsupported() }

// Detach works on Linux only.
func Detach(context.Context, *Target) error { return unsupported() }

// Probe works on Linux only.
func Probe(context.Context, *Target) error { return unsupported() }

// UserOf works on Linux only.
func UserOf(int, string) (uid, gid int, err error) { return 0, 0, unsupported() }

func receive(*net.UnixConn) ([]byte, *os.File, error) { return nil, nil, errUnsupported }

func send(*net.UnixConn, []byte, *os.File) error { return errUnsupported }
