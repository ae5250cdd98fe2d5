// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/config"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
)

// dump writes a project by what it does: expressions by their values, secrets by their texts, driver bodies by their
// encoding, blocks inside others by their labels. Places are left out.
func dump(p *spec.Project, vars spec.RunVars) string {
	var b strings.Builder
	d := dumper{b: &b, vars: vars}
	d.value(reflect.ValueOf(p).Elem(), "", 0)
	return b.String()
}

type dumper struct {
	b    *strings.Builder
	vars spec.RunVars
}

func (d dumper) line(at string, v any, err error) {
	if err != nil {
		v = "error"
	}
	fmt.Fprintf(d.b, "%s = %#v\n", at, v)
}

func (d dumper) value(v reflect.Value, at string, depth int) {
	if v.IsZero() {
		return
	}
	switch x := v.Interface().(type) {
	case spec.Pos:
		return
	case value.Secret:
		text, found, err := x.Lookup(context.Background())
		d.line(at, fmt.Sprint(text, found), err)
		return
	case spec.Expr:
		got, err := x.Eval(d.vars)
		d.line(at, got, err)
		return
	case spec.DriverConfig:
		got, err := x.Encode()
		d.line(at, string(got.MsgPack), err)
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if l := reflect.Indirect(v.Elem()); depth > 2 && v.Kind() == reflect.Pointer && l.Kind() == reflect.Struct && l.FieldByName("Label").IsValid() {
			d.line(at, fmt.Sprint(l.Type().Name(), " ", l.FieldByName("Label")), nil)
			return
		}
		d.value(v.Elem(), at, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			d.value(v.Field(i), at+"."+v.Type().Field(i).Name, depth+1)
		}
	case reflect.Map:
		keys := v.MapKeys()
		sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
		for _, k := range keys {
			d.value(v.MapIndex(k), at+"["+k.String()+"]", depth+1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			d.line(at, string(v.Bytes()), nil)
			return
		}
		for i := range v.Len() {
			d.value(v.Index(i), fmt.Sprintf("%s[%d]", at, i), depth+1)
		}
	default:
		d.line(at, v.Interface(), nil)
	}
}

func copyTree(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fixedEnv(name string) (string, bool) {
	v, ok := map[string]string{"OPENAI_API_KEY": "sk-openai-canary", "TOKEN": "token-canary-1", "BERTH_VAR_token": "var-canary-22"}[name]
	return v, ok
}

// TestShowReadsBack writes each project as HCL and as JSON, with and without origins, and reads it again.
func TestShowReadsBack(t *testing.T) {
	t.Setenv("PATH", "/nonexistent") // commands of secrets fail, and fail the same way
	for _, name := range []string{"coding", "research", "twin", "features"} {
		for _, opt := range []config.ShowOptions{{}, {Origin: true}, {JSON: true}, {JSON: true, Origin: true}} {
			t.Run(fmt.Sprintf("%s json=%v origin=%v", name, opt.JSON, opt.Origin), func(t *testing.T) {
				dir := copyTree(t, filepath.Join("testdata", name))
				o := config.Options{Path: dir, Env: fixedEnv, Schemas: schemas, Version: "0.1.0"}
				first, err := config.Load(t.Context(), o)
				if err != nil {
					t.Fatal(render(first))
				}
				text, err := first.Show(opt)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(text, "canary") {
					t.Errorf("a secret is shown:\n%s", text)
				}
				ext := ".berth.hcl"
				if opt.JSON {
					ext = ".berth.json"
				}
				o.Path = filepath.Join(dir, "shown"+ext)
				if err := os.WriteFile(o.Path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				again, err := config.Load(t.Context(), o)
				if err != nil {
					t.Fatalf("%s\n%s", render(again), text)
				}
				vars := spec.RunVars{RunID: "r1", Input: "in", Agent: "coder", Vars: map[string]any{"user": "ada"}, Params: map[string]any{"csv": "a.csv", "png": "b.png", "n": 3.0}}
				if d := cmp.Diff(dump(first.Project, vars), dump(again.Project, vars)); d != "" {
					t.Errorf("not the same project (-first +again):\n%s\n%s", d, text)
				}
			})
		}
	}
}
