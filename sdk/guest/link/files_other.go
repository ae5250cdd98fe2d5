// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package link

import (
	"errors"
	"io"
	"os"
)

// taker would keep the files that come along a socket: see files_linux.go.
type taker struct{ io.Reader }

func newTaker(io.ReadWriteCloser) *taker { return nil }

func (*taker) take() *os.File { return nil }

func (*taker) close() {}

func passFile(io.ReadWriteCloser, []byte, *os.File) error { return errors.ErrUnsupported }
