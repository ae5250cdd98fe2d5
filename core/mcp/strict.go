// SPDX-License-Identifier: Apache-2.0

package mcp

import "encoding/json"

// optional are the members of an object that may be left out, and below each member the same.
type optional map[string]*member

type member struct {
	optional bool
	inner    optional
	items    bool // inner is of the elements
}

// prune takes away what was given as null because a strict schema wants every member.
func (o optional) prune(args map[string]any) {
	for name, m := range o {
		v, there := args[name]
		if there && v == nil && m.optional {
			delete(args, name)
			continue
		}
		switch v := v.(type) {
		case map[string]any:
			if !m.items {
				m.inner.prune(v)
			}
		case []any:
			for _, e := range v {
				if object, ok := e.(map[string]any); ok && m.items {
					m.inner.prune(object)
				}
			}
		}
	}
}

// strict makes a schema that providers follow exactly: closed objects that require all their members, of which those
// that could be left out may be null. What has no such form is left as it is.
func strict(schema json.RawMessage) (json.RawMessage, optional, bool) {
	var s map[string]any
	if json.Unmarshal(schema, &s) != nil {
		return nil, nil, false
	}
	opt, ok := tighten(s)
	if !ok {
		return nil, nil, false
	}
	raw, err := json.Marshal(s)
	return raw, opt, err == nil
}

// simple are the keywords that a strict schema may have.
var simple = map[string]bool{
	"type": true, "properties": true, "required": true, "additionalProperties": true, "description": true, "title": true,
	"enum": true, "items": true, "default": true, "$schema": true, "minimum": true, "maximum": true, "minItems": true, "maxItems": true,
	"minLength": true, "maxLength": true, "pattern": true, "format": true, "const": true, "exclusiveMinimum": true, "exclusiveMaximum": true,
}

func tighten(s map[string]any) (optional, bool) {
	if s["type"] != "object" || !plain(s) {
		return nil, false
	}
	if open := s["additionalProperties"]; open != nil && open != false {
		if m, ok := open.(map[string]any); !ok || len(m) > 0 {
			return nil, false
		}
	}
	delete(s, "$schema")
	props, _ := s["properties"].(map[string]any)
	needed := map[string]bool{}
	list, _ := s["required"].([]any)
	for _, n := range list {
		if name, ok := n.(string); ok {
			needed[name] = true
		}
	}
	opt := optional{}
	all := []any{}
	for name, p := range props {
		ps, ok := p.(map[string]any)
		if !ok || !plain(ps) {
			return nil, false
		}
		m := &member{optional: !needed[name]}
		opt[name] = m
		all = append(all, name)
		if m.inner, m.items, ok = below(ps); !ok {
			return nil, false
		}
		if !m.optional {
			continue
		}
		delete(ps, "default")
		t, ok := ps["type"].(string)
		if !ok {
			return nil, false
		}
		ps["type"] = []any{t, "null"}
		if values, ok := ps["enum"].([]any); ok {
			ps["enum"] = append(values, nil)
		}
	}
	s["required"], s["additionalProperties"] = all, false
	return opt, true
}

// below tightens what is inside a member.
func below(s map[string]any) (inner optional, items, ok bool) {
	switch s["type"] {
	case "object":
		inner, ok = tighten(s)
		return inner, false, ok
	case "array":
		e, isObject := s["items"].(map[string]any)
		if !isObject || !plain(e) {
			return nil, false, false
		}
		inner, _, ok = below(e)
		return inner, true, ok
	case "string", "number", "integer", "boolean":
		return nil, false, true
	}
	return nil, false, false
}

func plain(s map[string]any) bool {
	for keyword := range s {
		if !simple[keyword] {
			return false
		}
	}
	return true
}
