// SPDX-License-Identifier: Apache-2.0

package schema_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

func dockerSchema() *schema.Schema {
	return &schema.Schema{Version: 1, Block: schema.Block{
		Attributes: []schema.Attribute{
			{Name: "image", Type: schema.String, Required: true, Pattern: `^[a-z0-9./:_-]+$`},
			{Name: "memory", Type: schema.Number, Unit: schema.UnitBytes, Default: "512MiB"},
			{Name: "wait", Type: schema.Number, Unit: schema.UnitDuration, Default: 30 * time.Second},
			{Name: "cpus", Type: schema.Number, Min: new(0.1), Max: new(64.0)},
			{Name: "pull", Type: schema.String, OneOf: []string{"always", "missing"}, Default: "missing"},
			{Name: "token", Type: schema.String, Sensitive: true, OneOf: []string{"a", "b"}, ConflictsWith: []string{"token_file"}},
			{Name: "token_file", Type: schema.String, Requires: []string{"cpus"}},
			{Name: "env", Type: schema.MapOf(schema.String)},
			{Name: "dns", Type: schema.ListOf(schema.String), Default: []string{"1.1.1.1"}},
			{Name: "extra", Type: schema.Any},
			{Name: "tty", Type: schema.Bool, Default: true},
		},
		Blocks: []schema.NestedBlock{
			{Type: "network", Nesting: schema.Single, Block: schema.Block{Attributes: []schema.Attribute{{Name: "mode", Type: schema.String, Default: "bridge"}}}},
			{Type: "volume", Nesting: schema.List, Max: 2, Labels: []string{"name"}, Block: schema.Block{Attributes: []schema.Attribute{
				{Name: "size", Type: schema.Number, Unit: schema.UnitBytes}, {Name: "ro", Type: schema.Bool, Default: false},
			}}},
			{Type: "port", Nesting: schema.Map, Labels: []string{"name"}, Block: schema.Block{Attributes: []schema.Attribute{{Name: "number", Type: schema.Number, Required: true}}}},
		},
	}}
}

type dockerConfig struct {
	Image     string            `berth:"image"`
	Memory    uint64            `berth:"memory"`
	Wait      time.Duration     `berth:"wait"`
	CPUs      *float64          `berth:"cpus"`
	Pull      string            `berth:"pull"`
	Token     string            `berth:"token"`
	TokenFile *string           `berth:"token_file"`
	Env       map[string]string `berth:"env"`
	DNS       []string          `berth:"dns"`
	Extra     any               `berth:"extra"`
	TTY       bool              `berth:"tty"`
	Network   *struct {
		Mode string `berth:"mode"`
	} `berth:"network"`
	Volumes []volume        `berth:"volume"`
	Ports   map[string]port `berth:"port"`
	cached  int             //nolint:unused // a field without a tag is left alone
}

type volume struct {
	Name string `berth:"name"`
	Size *int64 `berth:"size"`
	RO   bool   `berth:"ro"`
}

type port struct {
	Number uint16 `berth:"number"`
}

func decode(t *testing.T, json string) (dockerConfig, error) {
	t.Helper()
	var c dockerConfig
	s := dockerSchema()
	v := schema.Value{JSON: []byte(json)}
	err := v.Decode(s, &c)
	if err == nil {
		// The other encoding must say the same.
		body, cerr := v.Cty(s)
		if cerr != nil {
			t.Fatal(cerr)
		}
		packed, cerr := schema.Encode(s, body)
		if cerr != nil {
			t.Fatal(cerr)
		}
		var again dockerConfig
		if cerr := packed.Decode(s, &again); cerr != nil {
			t.Fatal(cerr)
		}
		if d := cmp.Diff(c, again, cmp.AllowUnexported(dockerConfig{})); d != "" {
			t.Fatalf("JSON and MessagePack differ:\n%s", d)
		}
	}
	return c, err
}

func TestDecode(t *testing.T) {
	if err := dockerSchema().Validate(); err != nil {
		t.Fatal(err)
	}
	got, err := decode(t, `{"image": "debian:12", "memory": 1024, "cpus": 0.5, "wait": 1.5,
		"env": {"A": "1"}, "extra": {"type": ["object", {"x": "number"}], "value": {"x": 2}},
		"network": {}, "volume": [{"name": "v", "size": 7}, {"name": "w", "ro": true}],
		"port": {"web": {"number": 8080}}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := dockerConfig{
		Image: "debian:12", Memory: 1024, Wait: 1500 * time.Millisecond, CPUs: new(0.5), Pull: "missing",
		Env: map[string]string{"A": "1"}, DNS: []string{"1.1.1.1"}, Extra: map[string]any{"x": 2.0}, TTY: true,
		Volumes: []volume{{Name: "v", Size: new(int64(7))}, {Name: "w", RO: true}},
		Ports:   map[string]port{"web": {8080}},
	}
	want.Network = &struct {
		Mode string `berth:"mode"`
	}{"bridge"}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(dockerConfig{})); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

func TestDefaultsOfAnEmptyBody(t *testing.T) {
	s := dockerSchema()
	s.Block.Attributes[0].Required = false
	var c dockerConfig
	if err := (schema.Value{}).Decode(s, &c); err != nil {
		t.Fatal(err)
	}
	want := dockerConfig{Memory: 512 << 20, Wait: 30 * time.Second, Pull: "missing", DNS: []string{"1.1.1.1"}, TTY: true}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(dockerConfig{})); d != "" {
		t.Fatalf("(-want +got)\n%s", d)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct{ json, want string }{
		"unknown":       {`{"image":"a","imagee":"b"}`, `unsupported attribute "imagee"`},
		"missing":       {`{}`, `image: The argument "image" is required.`},
		"type":          {`{"image":"a","cpus":"x"}`, "number is required"},
		"range":         {`{"image":"a","cpus":65}`, "cpus: 65 is more than 64."},
		"one of":        {`{"image":"a","pull":"never"}`, `pull: "never" is not one of "always", "missing".`},
		"pattern":       {`{"image":"A"}`, `image: "A" does not match`},
		"conflict":      {`{"image":"a","token":"a","token_file":"f","cpus":1}`, `Only one of "token" and "token_file" may be set.`},
		"requires":      {`{"image":"a","token_file":"f"}`, `"token_file" needs "cpus" to be set too.`},
		"too many":      {`{"image":"a","volume":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, `At most 2 "volume" block(s) are allowed, not 3.`},
		"nested":        {`{"image":"a","port":{"web":{}}}`, `port["web"].number: The argument "number" is required.`},
		"overflow":      {`{"image":"a","port":{"web":{"number":65536}}}`, `port["web"].number: 65536 does not fit a Go uint16`},
		"fraction":      {`{"image":"a","memory":1.5}`, "memory: 1.5 does not fit a Go uint64"},
		"not an object": {`[1]`, "missing expected {"},
		"garbage":       {`{`, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(t, c.json)
			if !errors.Is(err, errs.ConfigInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSensitiveValueIsNotShown(t *testing.T) {
	_, err := decode(t, `{"image":"a","token":"canary"}`)
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Fatalf("got %v", err)
	}
}

func TestAllProblemsAreReported(t *testing.T) {
	_, err := decode(t, `{"cpus":65,"pull":"never"}`)
	var e *errs.Error
	if !errors.As(err, &e) || strings.Count(err.Error(), "\n") != 2 || len(e.Path) != 1 || e.Path[0].Attribute != "image" {
		t.Fatalf("got %v", err)
	}
}

// A struct that does not fit its schema is a mistake of the driver's author, found by the first decode.
func TestStructMustFitSchema(t *testing.T) {
	s := &schema.Schema{Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.String}}}}
	var missing struct{ A string }
	if err := (schema.Value{}).Decode(s, &missing); !errors.Is(err, errs.Internal) {
		t.Errorf("no field: %v", err)
	}
	var more struct {
		A string `berth:"a"`
		B string `berth:"b"`
	}
	if err := (schema.Value{}).Decode(s, &more); !errors.Is(err, errs.Internal) {
		t.Errorf("field without attribute: %v", err)
	}
	if err := (schema.Value{}).Decode(s, more); !errors.Is(err, errs.Internal) {
		t.Errorf("not a pointer: %v", err)
	}
	var wrong struct {
		A int `berth:"a"`
	}
	if err := (schema.Value{JSON: []byte(`{"a":"x"}`)}).Decode(s, &wrong); !errors.Is(err, errs.ConfigInvalid) {
		t.Errorf("wrong type: %v", err)
	}
}

func TestEnvironmentComesBeforeDefault(t *testing.T) {
	s := &schema.Schema{Block: schema.Block{Attributes: []schema.Attribute{
		{Name: "size", Type: schema.Number, Unit: schema.UnitBytes, Env: "SIZE", Default: "1KiB"},
		{Name: "on", Type: schema.Bool, Env: "ON"},
	}}}
	env := map[string]string{"SIZE": "2KiB", "ON": "true"}
	body, err := (schema.Value{}).Cty(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Block.WithDefaults(body, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	want := cty.ObjectVal(map[string]cty.Value{"size": cty.NumberIntVal(2048), "on": cty.True})
	if !got.RawEquals(want) {
		t.Fatalf("got %#v", got)
	}
	env["SIZE"] = "many"
	if _, err := s.Block.WithDefaults(body, func(k string) (string, bool) { v, ok := env[k]; return v, ok }); err == nil || !strings.Contains(err.Error(), "SIZE") {
		t.Fatalf("got %v", err)
	}
}

func TestParseUnit(t *testing.T) {
	for _, c := range []struct {
		unit, text string
		want       float64
	}{
		{"bytes", "0", 0},
		{"bytes", "10", 10},
		{"bytes", "64KiB", 65536},
		{"bytes", "1.5 MiB", 3 << 19},
		{"bytes", "2GB", 2e9},
		{"bytes", "1t", 1 << 40},
		{"duration", "30s", 30},
		{"duration", "1h30m", 5400},
		{"duration", "2", 2},
		{"duration", "250ms", 0.25},
	} {
		if got, err := schema.ParseUnit(c.unit, c.text); err != nil || got != c.want {
			t.Errorf("%s %q: %v, %v", c.unit, c.text, got, err)
		}
	}
	for _, c := range [][2]string{{"bytes", ""}, {"bytes", "-1"}, {"bytes", "1.5"}, {"bytes", "1XB"}, {"bytes", "999999999TiB"}, {"duration", "soon"}, {"duration", "Inf"}, {"", "1"}} {
		if got, err := schema.ParseUnit(c[0], c[1]); err == nil {
			t.Errorf("%s %q gave %v", c[0], c[1], got)
		}
	}
}

func TestDynamicBlocks(t *testing.T) {
	s := &schema.Schema{Block: schema.Block{Blocks: []schema.NestedBlock{{
		Type: "rule", Nesting: schema.List,
		Block: schema.Block{Attributes: []schema.Attribute{{Name: "match", Type: schema.Any}, {Name: "n", Type: schema.Number, Default: 3}}},
	}}}}
	body := cty.ObjectVal(map[string]cty.Value{"rule": cty.TupleVal([]cty.Value{
		cty.ObjectVal(map[string]cty.Value{"match": cty.StringVal("x"), "n": cty.NullVal(cty.Number)}),
		cty.ObjectVal(map[string]cty.Value{"match": cty.True, "n": cty.NumberIntVal(1)}),
	})})
	v, err := schema.Encode(s, body)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rules []struct {
			Match any `berth:"match"`
			N     int `berth:"n"`
		} `berth:"rule"`
	}
	if err := v.Decode(s, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rules) != 2 || got.Rules[0].Match != "x" || got.Rules[0].N != 3 || got.Rules[1].Match != true || got.Rules[1].N != 1 {
		t.Fatalf("got %+v", got)
	}
}

func TestValidate(t *testing.T) {
	for name, s := range map[string]*schema.Schema{
		"name":      {Block: schema.Block{Attributes: []schema.Attribute{{Name: "A", Type: schema.String}}}},
		"type":      {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a"}}}},
		"twice":     {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.String}, {Name: "a", Type: schema.String}}}},
		"default":   {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.Number, Default: "x"}}}},
		"bound":     {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.Number, Default: 1, Min: new(2.0)}}}},
		"pattern":   {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.String, Pattern: "("}}}},
		"reference": {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.String, Requires: []string{"b"}}}}},
		"unit":      {Block: schema.Block{Attributes: []schema.Attribute{{Name: "a", Type: schema.String, Unit: "bytes"}}}},
		"nesting":   {Block: schema.Block{Blocks: []schema.NestedBlock{{Type: "a"}}}},
		"key":       {Block: schema.Block{Blocks: []schema.NestedBlock{{Type: "a", Nesting: schema.Map}}}},
	} {
		if err := s.Validate(); err == nil {
			t.Errorf("%s: taken as valid", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"image":"a"}`), true)
	f.Add([]byte{0x80}, false)
	f.Add([]byte{0x81, 0xa5, 'i', 'm', 'a', 'g', 'e', 0xa1, 'a'}, false)
	s := dockerSchema()
	f.Fuzz(func(t *testing.T, b []byte, json bool) {
		v := schema.Value{MsgPack: b}
		if json {
			v = schema.Value{JSON: b}
		}
		var c dockerConfig
		if err := v.Decode(s, &c); err == nil && len(b) > 0 && (c.Image == "" || c.Memory > math.MaxInt64) {
			t.Fatalf("decoded to %+v", c)
		}
	})
}

func TestTypeText(t *testing.T) {
	for want, typ := range map[string]schema.Type{
		"string":                schema.String,
		"any":                   schema.Any,
		"list(set(number))":     schema.ListOf(schema.SetOf(schema.Number)),
		"map(any)":              schema.MapOf(schema.Any),
		"tuple([bool, string])": schema.TypeOf(cty.Tuple([]cty.Type{cty.Bool, cty.String})),
		"object({ name = string, size = optional(number) })": schema.Object(map[string]schema.Type{"name": schema.String, "size": schema.Number}, "size"),
	} {
		if got := typ.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
