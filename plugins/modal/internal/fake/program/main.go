// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command program is the fake of Modal as a program, see package fakeprogram.
package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/plugins/internal/fakeprogram"
	"github.com/berth-dev/berth/plugins/modal/internal/fake"
	"github.com/berth-dev/berth/plugins/modal/internal/fake/fstools"
)

// The token that is taken, and the one image that there is.
const (
	tokenID, tokenSecret = "ak-of-the-fake", "as-of-the-fake"
	image                = "busybox:latest"
)

func main() {
	if filepath.Base(os.Args[0]) == fstools.Name {
		os.Exit(fstools.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	fakeprogram.Main(start)
}

func start() (settings fakeprogram.Settings, stop func() error, err error) {
	if os.Geteuid() != 0 {
		return settings, nil, errors.New("the fake of Modal needs root: its sandboxes are namespaces")
	}
	self, err := os.Executable()
	if err != nil {
		return settings, nil, err
	}
	dir, err := os.MkdirTemp("", "fake-modal-")
	if err != nil {
		return settings, nil, err
	}
	if err := fake.Busybox(dir); err != nil {
		return settings, nil, errors.Join(err, os.RemoveAll(dir))
	}
	f, err := fake.Start(fake.Options{TokenID: tokenID, TokenSecret: tokenSecret, Images: map[string]string{image: dir}, FSTools: self})
	if err != nil {
		return settings, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return fakeprogram.Settings{
		Process: map[string]any{"token_id": tokenID, "token_secret": tokenSecret, "server_url": f.URL()}, Sandbox: map[string]any{"image": image},
	}, func() error { return errors.Join(f.Close(), os.RemoveAll(dir)) }, nil
}
