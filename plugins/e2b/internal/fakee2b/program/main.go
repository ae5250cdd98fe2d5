// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command program is the fake of E2B as a program, see package fakeprogram.
package main

import (
	"errors"
	"os"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/plugins/internal/fakeprogram"
)

func main() {
	fakee2b.Main()
	fakeprogram.Main(func() (fakeprogram.Settings, func() error, error) {
		if os.Geteuid() != 0 {
			return fakeprogram.Settings{}, nil, errors.New("the fake of E2B needs root: its sandboxes are namespaces")
		}
		dir, err := os.MkdirTemp("", "fake-e2b-")
		if err != nil {
			return fakeprogram.Settings{}, nil, err
		}
		f := fakee2b.New(dir)
		return fakeprogram.Settings{
				Process: map[string]any{"api_key": fakee2b.Key, "api_url": f.URL(), "sandbox_url": f.URL()}, Sandbox: map[string]any{},
			}, func() error {
				f.Close()
				return os.RemoveAll(dir)
			}, nil
	})
}
