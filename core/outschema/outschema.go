// SPDX-License-Identifier: Apache-2.0

// Package outschema checks answers against a JSON Schema, and makes of a schema the strict form that models follow
// exactly. It fetches nothing: a reference that leads out of the schema is an error.
package outschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// name is what the schema is called inside the library.
	name = "schema.json"
	// deepest and most bound what is looked at of a schema.
	deepest = 100
	most    = 100_000
	// faults is how many faults of an answer are told.
	faults = 8
)

// nowhere loads nothing.
type nowhere struct{}

func (nowhere) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside the schema, and nothing is fetched", url)
}

func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

// Check says what is wrong with an answer. The error is for the model: it names the place and what is wanted there.
func Check(schema json.RawMessage, answer string) error {
	s, err := compile(schema)
	if err != nil {
		return fmt.Errorf("the schema itself is wrong: %w", err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	err = s.Validate(v)
	bad, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var lines []string
	var walk func(u *jsonschema.OutputUnit)
	walk = func(u *jsonschema.OutputUnit) {
		if u.Error != nil && len(u.Errors) == 0 {
			at := u.InstanceLocation
			if at == "" {
				at = "the answer"
			}
			lines = append(lines, at+": "+u.Error.String())
		}
		for i := range u.Errors {
			walk(&u.Errors[i])
		}
	}
	walk(bad.DetailedOutput())
	lines = slices.Compact(lines)
	if n := len(lines); n > faults {
		lines = append(lines[:faults], fmt.Sprintf("and %d more", n-faults))
	}
	return errors.New(strings.Join(lines, "; "))
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
