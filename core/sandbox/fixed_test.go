// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/schema"
)

var fixedSchema = &schema.Schema{Block: schema.Block{
	Attributes: []schema.Attribute{
		{Name: "image", Type: schema.String, Immutable: true},
		{Name: "size", Type: schema.Number},
		{Name: "token", Type: schema.String, Immutable: true, Sensitive: true},
	},
	Blocks: []schema.NestedBlock{{Type: "disk", Nesting: schema.List, Block: schema.Block{Attributes: []schema.Attribute{
		{Name: "name", Type: schema.String, Immutable: true},
		{Name: "comment", Type: schema.String},
	}}}},
}}

func madeWith(t *testing.T, salt []byte, image, token string, size int64, disks ...[2]string) *Fixed {
	t.Helper()
	var all []cty.Value
	for _, d := range disks {
		all = append(all, cty.ObjectVal(map[string]cty.Value{"name": cty.StringVal(d[0]), "comment": cty.StringVal(d[1])}))
	}
	v, err := schema.Encode(fixedSchema, cty.ObjectVal(map[string]cty.Value{
		"image": cty.StringVal(image), "size": cty.NumberIntVal(size), "token": cty.StringVal(token), "disk": cty.TupleVal(all),
	}))
	if err != nil {
		t.Fatal(err)
	}
	f, err := fixed("acme", fixedSchema, &driver.CreateRequest{Config: v, Workspace: driver.Workspace{Root: "/workspace"}}, salt)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFixed(t *testing.T) {
	kept, err := json.Marshal(madeWith(t, nil, "debian", "s3cr3t-canary", 1, [2]string{"a", "x"}))
	if err != nil || strings.Contains(string(kept), "canary") {
		t.Fatalf("%s, %v", kept, err)
	}
	var made Fixed
	if err := json.Unmarshal(kept, &made); err != nil {
		t.Fatal(err)
	}
	a := [2]string{"a", "x"}
	for name, c := range map[string]struct {
		now  *Fixed
		want string // "" = no error
	}{
		"same":      {madeWith(t, made.Salt, "debian", "s3cr3t-canary", 1, a), ""},
		"mutable":   {madeWith(t, made.Salt, "debian", "s3cr3t-canary", 2, [2]string{"a", "y"}), ""},
		"attribute": {madeWith(t, made.Salt, "alpine", "s3cr3t-canary", 1, a), `the image of config cannot change while sandbox X lives: it was made with "debian", and the files say "alpine" now`},
		"secret":    {madeWith(t, made.Salt, "debian", "other-canary", 1, a), `the token of config cannot change while sandbox X lives: it was made with "(sensitive value)", and the files say "(sensitive value)" now`},
		"block":     {madeWith(t, made.Salt, "debian", "s3cr3t-canary", 1, a, [2]string{"b", "x"}), "the disk of config"},
	} {
		err := made.drift(c.now).hold("", "X", &spec.Sandbox{Pos: spec.Pos{File: "main.berth.hcl", Line: 7}})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "":
		case !errors.Is(err, errs.ConfigInvalid) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "main.berth.hcl:7: "):
			t.Errorf("%s: %v", name, err)
		case strings.Contains(err.Error(), "canary"):
			t.Errorf("%s: the secret is in the error: %v", name, err)
		}
	}
}
