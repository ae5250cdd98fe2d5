// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

// schemas describes two drivers as their binaries would.
func schemas(name string) (*driver.Description, error) {
	switch name {
	case "docker":
		return &driver.Description{Name: "docker", Features: []driver.Feature{driver.PortHTTP}, SandboxConfig: &schema.Schema{Block: schema.Block{
			Attributes: []schema.Attribute{
				{Name: "image", Type: schema.String, Required: true, Doc: "Image."},
				{Name: "network_mode", Type: schema.String, OneOf: []string{"none", "bridge"}, Doc: "Network."},
				{Name: "labels", Type: schema.MapOf(schema.String), Doc: "Labels."},
				{Name: "memory", Type: schema.Number, Unit: "bytes", Doc: "Memory."},
				{Name: "token", Type: schema.String, Sensitive: true, Doc: "Token."},
			},
			Blocks: []schema.NestedBlock{{Type: "volume", Nesting: schema.List, Labels: []string{"name"}, Block: schema.Block{
				Attributes: []schema.Attribute{{Name: "path", Type: schema.String, Required: true, Doc: "Path."}},
			}}},
		}}}, nil
	case "unixlocal":
		return &driver.Description{Name: "unixlocal", Features: []driver.Feature{driver.PortHTTP, driver.PathGrants}}, nil
	case "e2b":
		return &driver.Description{
			Name: "e2b", Features: []driver.Feature{driver.PortHTTP, driver.PathGrants},
			ProcessConfig: &schema.Schema{Block: schema.Block{Attributes: []schema.Attribute{
				{Name: "api_key", Type: schema.String, Required: true, Sensitive: true, Env: "E2B_API_KEY", Doc: "Key."},
			}}},
			SandboxConfig: &schema.Schema{Block: schema.Block{Attributes: []schema.Attribute{
				{Name: "template", Type: schema.String, Default: "base", Doc: "Template."},
				{Name: "timeout", Type: schema.Number, Unit: "duration", Doc: "Life."},
				{Name: "metadata", Type: schema.MapOf(schema.String), Doc: "Labels."},
			}}},
		}, nil
	}
	return nil, errs.New(errs.DriverUnknown, "no driver %q", name)
}

func noEnv(string) (string, bool) { return "", false }

func render(l *config.Loaded) string {
	var b bytes.Buffer
	for _, d := range l.Diags {
		fmt.Fprintln(&b, d.Error())
	}
	return b.String()
}

func load(t *testing.T, path string) *config.Loaded {
	t.Helper()
	l, err := config.Load(t.Context(), config.Options{Path: path, Env: noEnv, Schemas: schemas, Version: "0.1.0"})
	if err != nil || len(l.Diags) > 0 {
		t.Fatalf("load %s: %v\n%s", path, err, render(l))
	}
	return l
}

func TestExamplesLoad(t *testing.T) {
	for _, dir := range []string{"testdata/coding", "testdata/research"} {
		t.Run(dir, func(t *testing.T) { load(t, dir) })
	}
}
