// SPDX-License-Identifier: Apache-2.0

// Package outschema checks answers against a JSON Schema, and makes of a schema the strict form that models follow
// exactly. It fetches nothing: a reference that leads out of the schema is an error.
package outschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// deepest and most bound what is looked at of a schema.
const (
	deepest = 100
	most    = 100_000
)

// types are those that JSON has.
var types = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func compile(schema json.RawMessage) (*jsonschema.Resolved, error) {
	var doc any
	if err := json.Unmarshal(schema, &doc); err != nil {
		return nil, err
	}
	if err := knownTypes(doc, ""); err != nil {
		return nil, err
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(schema, s); err != nil {
		return nil, err
	}
	return s.Resolve(&jsonschema.ResolveOptions{Loader: func(at *url.URL) (*jsonschema.Schema, error) {
		return nil, fmt.Errorf("%s is outside the schema, and nothing is fetched", at)
	}})
}

// knownTypes finds words that are no types, which nothing ever fits: the library lets them pass.
func knownTypes(v any, at string) error {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch name, ok := v[k].(string); {
			case k == "type" && ok && !slices.Contains(types, name):
				return fmt.Errorf("%s/type: JSON has no type %q; it has %s", at, name, strings.Join(types, ", "))
			case k == "enum" || k == "const" || k == "default" || k == "examples": // values, no schemas
				continue
			}
			if err := knownTypes(v[k], at+"/"+k); err != nil {
				return err
			}
		}
	case []any:
		for i, e := range v {
			if err := knownTypes(e, fmt.Sprintf("%s/%d", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Check says what is wrong with an answer. The error is for the model: it names the place and what is wanted there.
func Check(schema json.RawMessage, answer string) error {
	s, err := compile(schema)
	if err != nil {
		return fmt.Errorf("the schema itself is wrong: %w", err)
	}
	var v any
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	return s.Validate(v)
}

// Valid reports what is wrong with a schema.
func Valid(schema json.RawMessage) error {
	_, err := compile(schema)
	return err
}

// Strict makes the strict form of a schema: every object has all of its properties required, and no others. A property
// that was optional may be null. What has no strict form is an error that says where.
func Strict(schema json.RawMessage) (json.RawMessage, error) {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, err
	}
	obj, ok := root.(map[string]any)
	if !ok || obj["type"] != "object" {
		return nil, errors.New(`the root has to be of type "object"; put anything else into a property of one, or set strict = false`)
	}
	w := walker{}
	if err := w.strict(obj, "", 0); err != nil {
		return nil, err
	}
	return json.Marshal(obj)
}

type walker struct{ seen int }

func (w *walker) strict(s map[string]any, at string, depth int) error {
	if w.seen++; w.seen > most || depth > deepest {
		return fmt.Errorf("the schema is too large: more than %d parts, or deeper than %d", most, deepest)
	}
	where := at
	if where == "" {
		where = "the root"
	}
	if ref, has := s["$ref"]; has {
		for k := range s {
			if k != "$ref" && k != "description" && k != "title" && k != "$defs" && k != "definitions" {
				return fmt.Errorf("%s: %q beside the reference %v has no strict form", where, k, ref)
			}
		}
	}
	if one, has := s["oneOf"]; has {
		if _, both := s["anyOf"]; both {
			return fmt.Errorf("%s: oneOf and anyOf together have no strict form", where)
		}
		s["anyOf"] = one
		delete(s, "oneOf")
	}
	if all, ok := s["allOf"].([]any); ok {
		if len(all) != 1 {
			return fmt.Errorf("%s: allOf of %d schemas has no strict form", where, len(all))
		}
		if only, ok := all[0].(map[string]any); ok {
			delete(s, "allOf")
			maps.Copy(s, only)
		}
	}
	props, _ := s["properties"].(map[string]any)
	if isObject(s["type"]) || props != nil {
		if open, has := s["additionalProperties"]; has && open != false {
			return fmt.Errorf("%s: an object with open keys has no strict form: list its properties, or set strict = false", where)
		}
		if _, has := s["patternProperties"]; has {
			return fmt.Errorf("%s: patternProperties has no strict form: list the properties, or set strict = false", where)
		}
		required := map[string]bool{}
		if list, ok := s["required"].([]any); ok {
			for _, v := range list {
				if k, ok := v.(string); ok {
					required[k] = true
				}
			}
		}
		all := make([]any, 0, len(props))
		for _, k := range slices.Sorted(maps.Keys(props)) {
			all = append(all, k)
			if sub, ok := props[k].(map[string]any); ok && !required[k] {
				props[k] = orNull(sub)
			}
		}
		s["additionalProperties"], s["required"] = false, all
	}
	for _, key := range []string{"properties", "$defs", "definitions"} {
		subs, _ := s[key].(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(subs)) {
			if err := w.sub(subs[k], at+"/"+key+"/"+k, depth); err != nil {
				return err
			}
		}
	}
	if err := w.sub(s["items"], at+"/items", depth); err != nil {
		return err
	}
	for _, key := range []string{"anyOf", "prefixItems"} {
		list, _ := s[key].([]any)
		for i, v := range list {
			if err := w.sub(v, fmt.Sprintf("%s/%s/%d", at, key, i), depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func isObject(t any) bool {
	list, _ := t.([]any)
	return t == "object" || slices.Contains(list, any("object"))
}

func (w *walker) sub(v any, at string, depth int) error {
	if s, ok := v.(map[string]any); ok {
		return w.strict(s, at, depth+1)
	}
	return nil
}

// orNull lets a property be null that may be left out otherwise.
func orNull(s map[string]any) map[string]any {
	switch t := s["type"].(type) {
	case string:
		if _, closed := s["enum"]; !closed && t != "null" {
			s["type"] = []any{t, "null"}
			return s
		}
	case []any:
		if slices.Contains(t, any("null")) {
			return s
		}
	}
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
}

// Relaxed checks an answer that was given in the strict form: a null stands for a property that was left out.
func Relaxed(schema json.RawMessage, answer string) error {
	strict, err := Strict(schema)
	if err != nil {
		return err
	}
	return Check(strict, answer)
}
