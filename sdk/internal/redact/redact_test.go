// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/berth-dev/berth/sdk/schema"
)

func TestEveryFormIsReplaced(t *testing.T) {
	const secret = "p@ss \"w<o>rd\"&/ü"
	var s Set
	remove := s.Add(secret, "short")
	j, err := json.Marshal(map[string]string{"k": secret})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plain": secret, "json": string(j), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64url": base64.RawURLEncoding.EncodeToString([]byte(secret)),
	} {
		got := s.String("before " + text + " after")
		if strings.Contains(got, text) || !strings.Contains(got, Mark) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := s.String("a short text"); got != "a short text" {
		t.Errorf("got %q", got)
	}
	remove()
	remove()
	if got := s.String(secret); got != secret {
		t.Errorf("after its removal: %q", got)
	}
}

func TestSecretsAreCounted(t *testing.T) {
	var s Set
	first := s.Add("the secret")
	second := s.AddValues(map[string]string{"A": "the secret"})
	first()
	if got := s.String("the secret"); got != Mark {
		t.Errorf("got %q", got)
	}
	second()
	if got := s.String("the secret"); got != "the secret" {
		t.Errorf("got %q", got)
	}
	var none *Set
	none.Add("whatever")()
	if got := none.String("whatever"); got != "whatever" {
		t.Errorf("got %q", got)
	}
}

func TestManyGoroutines(t *testing.T) {
	var s Set
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			secret := strings.Repeat(string(rune('a'+i)), 10)
			for range 50 {
				remove := s.Add(secret)
				if got := s.String(secret); got != Mark {
					t.Errorf("got %q", got)
				}
				remove()
			}
		})
	}
	all.Wait()
}

func TestSensitive(t *testing.T) {
	inner := schema.Block{Attributes: []schema.Attribute{{Name: "key", Sensitive: true}, {Name: "name"}}}
	sch := &schema.Schema{Block: schema.Block{
		Attributes: []schema.Attribute{{Name: "token", Sensitive: true}, {Name: "all", Sensitive: true}, {Name: "open"}},
		Blocks: []schema.NestedBlock{
			{Type: "one", Nesting: schema.Single, Block: inner},
			{Type: "many", Nesting: schema.List, Block: inner},
			{Type: "named", Nesting: schema.Map, Block: inner},
		},
	}}
	pair := func(s string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(s), "name": cty.StringVal("visible")})
	}
	v := cty.ObjectVal(map[string]cty.Value{
		"token": cty.StringVal("t"), "open": cty.StringVal("visible"), "unknown": cty.True,
		"all": cty.MapVal(map[string]cty.Value{"x": cty.StringVal("m1"), "y": cty.StringVal("m2")}),
		"one": pair("o"), "many": cty.ListVal([]cty.Value{pair("l1"), pair("l2")}),
		"named": cty.MapVal(map[string]cty.Value{"n": pair("n1")}),
	})
	b, err := msgpack.Marshal(v, v.Type())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Sensitive(sch, schema.Value{MsgPack: b})
	slices.Sort(got)
	if d := cmp.Diff([]string{"l1", "l2", "m1", "m2", "n1", "o", "t"}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	got, err = Sensitive(sch, schema.Value{JSON: []byte(`{"token": "t", "one": null, "many": [{"key": "k"}]}`)})
	slices.Sort(got)
	if d := cmp.Diff([]string{"k", "t"}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	if _, err := Sensitive(sch, schema.Value{JSON: []byte(`{`)}); err == nil {
		t.Error("half a value was accepted")
	}
}
