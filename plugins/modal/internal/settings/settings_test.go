// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugins/modal/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

func TestSchemas(t *testing.T) {
	for _, s := range []*schema.Schema{settings.ProcessSchema(), settings.SandboxSchema()} {
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func decode(t *testing.T, config map[string]any, w settings.Wish) (*settings.Config, error) {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return settings.Decode(schema.Value{JSON: b}, w)
}

func TestDecode(t *testing.T) {
	c, err := decode(t, nil, settings.Wish{})
	if err != nil || c.Image == "" || c.Timeout != time.Hour || c.OutboundCIDRs != nil || c.SnapshotTTL != 720*time.Hour {
		t.Fatalf("%+v, %v", c, err)
	}
	c, err = decode(t, map[string]any{"volumes": map[string]string{"/v": "data/sub/dir:ro"}, "outbound_cidrs": []string{}}, settings.Wish{
		Lifetime: 1500 * time.Millisecond, Limits: driver.ResourceLimits{MemoryBytes: 1 << 30, CPUs: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	if name, sub, ro := c.Volume("/v"); name != "data" || sub != "sub/dir" || !ro {
		t.Errorf("%q %q %v", name, sub, ro)
	}
	if c.Timeout != 2*time.Second || c.MemoryLimit != 1<<30 || c.CPULimit != 2 || c.CPU > c.CPULimit || c.Memory > c.MemoryLimit {
		t.Errorf("%+v", c)
	}
	if c.OutboundCIDRs == nil || len(*c.OutboundCIDRs) != 0 {
		t.Errorf("an empty list, which forbids everything, became %v", c.OutboundCIDRs)
	}
	c, err = decode(t, nil, settings.Wish{Network: driver.NetworkPolicy{Mode: "allow_list", Allow: []string{"192.0.2.7", "10.0.0.0/8", "*.example.com"}}})
	if err != nil || !slices.Equal(*c.OutboundCIDRs, []string{"192.0.2.7/32", "10.0.0.0/8"}) || !slices.Equal(*c.OutboundDomains, []string{"*.example.com"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = decode(t, map[string]any{"outbound_cidrs": []string{"10.0.0.0/8"}}, settings.Wish{Network: driver.NetworkPolicy{Mode: "none"}}); err != nil || !c.BlockNetwork || c.OutboundCIDRs != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRefused(t *testing.T) {
	for name, x := range map[string]struct {
		config map[string]any
		wish   settings.Wish
		code   errs.Code
	}{
		"no image":        {config: map[string]any{"image": ""}, code: errs.ConfigInvalid},
		"no CIDR":         {config: map[string]any{"outbound_cidrs": []string{"10.0.0.1"}}, code: errs.ConfigInvalid},
		"cpu":             {config: map[string]any{"cpu": 2, "cpu_limit": 1}, code: errs.ConfigInvalid},
		"memory":          {config: map[string]any{"memory": 2 << 30, "memory_limit": 1 << 30}, code: errs.ConfigInvalid},
		"relative volume": {config: map[string]any{"volumes": map[string]string{"v": "data"}}, code: errs.ConfigInvalid},
		"nameless volume": {config: map[string]any{"volumes": map[string]string{"/v": ":ro"}}, code: errs.ConfigInvalid},
		"i6pn":            {config: map[string]any{"block_network": true, "i6pn": true}, code: errs.ConfigInvalid},
		"policy":          {wish: settings.Wish{Network: driver.NetworkPolicy{Mode: "maze"}}, code: errs.Unsupported},
		"allow a port":    {wish: settings.Wish{Network: driver.NetworkPolicy{Mode: "allow_list", Allow: []string{"example.com:443"}}}, code: errs.ConfigInvalid},
		"processes":       {wish: settings.Wish{Limits: driver.ResourceLimits{Processes: 5}}, code: errs.Unsupported},
	} {
		if c, err := decode(t, x.config, x.wish); !errors.Is(err, x.code) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}
