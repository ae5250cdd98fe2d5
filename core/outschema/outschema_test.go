// SPDX-License-Identifier: Apache-2.0

package outschema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/outschema"
)

const report = `{"type":"object","properties":{"score":{"type":"number","minimum":0},"note":{"type":"string"},
"parts":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}}},"required":["score","parts"]}`

func TestCheck(t *testing.T) {
	for answer, want := range map[string]string{
		`{"score":1,"parts":[{"id":1}]}`:    "",
		`{"score":-1,"parts":[{"id":"x"}]}`: "/properties/",
		`{"parts":[]}`:                      "score",
		`{"score":1`:                        "not JSON",
		`{"score":1,"parts":[]} and more`:   "not JSON",
		`[]`:                                `want "object"`,
	} {
		err := outschema.Check(json.RawMessage(report), answer)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", answer, err, want)
		}
	}
	if err := outschema.Valid(json.RawMessage(`{"$ref":"https://example.com/x.json"}`)); err == nil {
		t.Error("a schema elsewhere was fetched")
	}
	for schema, valid := range map[string]bool{
		`{"type":"objekt"}`: false,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"text"}]}}}`:                                 false,
		`{"type":"object","properties":{"type":{"type":"string","default":{"type":"x"},"enum":["type"]}}}`: true,
	} {
		if err := outschema.Valid(json.RawMessage(schema)); (err == nil) != valid {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestStrict(t *testing.T) {
	got, err := outschema.Strict(json.RawMessage(report))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"additionalProperties":false,"properties":{"note":{"type":["string","null"]},"parts":{"items":{"additionalProperties":false,"properties":{"id":{"type":"integer"}},"required":["id"],"type":"object"},"type":"array"},"score":{"minimum":0,"type":"number"}},"required":["note","parts","score"],"type":"object"}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	if again, err := outschema.Strict(got); err != nil || string(again) != want {
		t.Errorf("the strict form of the strict form is %s, %v", again, err)
	}
	if err := outschema.Relaxed(json.RawMessage(report), `{"score":1,"parts":[],"note":null}`); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		`[]`, `{"type":"array","items":{"type":"string"}}`,
		`{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"type":"string"}}}}`,
		`{"type":"object","properties":{"a":{"allOf":[{},{}]}}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/b","minimum":1}},"$defs":{"b":{"type":"number"}}}`,
	} {
		if got, err := outschema.Strict(json.RawMessage(bad)); err == nil {
			t.Errorf("%s has the strict form %s", bad, got)
		}
	}
}

func FuzzStrict(f *testing.F) {
	f.Add([]byte(report))
	f.Fuzz(func(t *testing.T, b []byte) {
		strict, err := outschema.Strict(b)
		if err != nil {
			return
		}
		if again, err := outschema.Strict(strict); err != nil {
			t.Errorf("%s: the strict form %s has none: %v (%s)", b, strict, err, again)
		}
	})
}
