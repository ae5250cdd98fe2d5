// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command program is the fake of Daytona as a program, see package fakeprogram.
package main

import (
	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/plugins/daytona/internal/fake/machine"
	"github.com/berth-dev/berth/plugins/internal/fakeprogram"
)

func main() {
	machine.Enter()
	fakeprogram.Main(func() (fakeprogram.Settings, func() error, error) {
		if err := machine.Supported(); err != nil {
			return fakeprogram.Settings{}, nil, err
		}
		f, err := fake.New(fake.Options{})
		if err != nil {
			return fakeprogram.Settings{}, nil, err
		}
		return fakeprogram.Settings{
			Process: map[string]any{"api_key": f.Key(), "api_url": f.URL + "/api"}, Sandbox: map[string]any{"user": "root"},
		}, f.Close, nil
	})
}
