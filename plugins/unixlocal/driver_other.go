// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"runtime"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// New makes a driver that says where it works.
func New(hclog.Logger) driver.Driver { return elsewhere{} }

type elsewhere struct{}

// Describe says where the driver works.
func (elsewhere) Describe() driver.Description {
	return driver.Description{
		Name: "unixlocal", Version: "0.1.0", ProcessConfig: processSchema(), SandboxConfig: sandboxSchema(), StateVersion: 1,
		Platforms: []driver.Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}},
	}
}

// Create refuses.
func (elsewhere) Create(context.Context, *driver.CreateRequest) (driver.Sandbox, error) {
	return nil, refusal()
}

// Resume refuses.
func (elsewhere) Resume(context.Context, *driver.ResumeRequest) (driver.Sandbox, error) {
	return nil, refusal()
}

func refusal() error {
	return errs.New(errs.Unsupported, "local sandboxes are not offered on %s", runtime.GOOS).WithHint("use the driver docker")
}
