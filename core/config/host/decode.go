// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/config/funcs"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
)

// body says what may stand in a body and who reads it.
type body struct {
	attrs  map[string]func(*hcl.Attribute)
	blocks map[string]block
}

// block says how often a block may stand and who reads it.
type block struct {
	labels []string
	many   bool
	read   func(*hcl.Block)
}

func (b body) schema() *hcl.BodySchema {
	s := &hcl.BodySchema{}
	for name := range b.attrs {
		s.Attributes = append(s.Attributes, hcl.AttributeSchema{Name: name})
	}
	for typ, n := range b.blocks {
		s.Blocks = append(s.Blocks, hcl.BlockHeaderSchema{Type: typ, LabelNames: n.labels})
	}
	return s
}

// read goes through a body in the order of the file.
func (l *loader) read(in hcl.Body, header hcl.Range, b body) {
	schema := b.schema()
	content, found := in.Content(schema)
	for _, d := range (diag.Converter{Files: l.files, Schema: schema, Header: header}).Convert(found) {
		l.add(l.elsewhere(d))
	}
	attrs := make([]*hcl.Attribute, 0, len(content.Attributes))
	for _, a := range content.Attributes {
		attrs = append(attrs, a)
	}
	slices.SortFunc(attrs, func(x, y *hcl.Attribute) int { return x.Range.Start.Byte - y.Range.Start.Byte })
	for _, a := range attrs {
		b.attrs[a.Name](a)
	}
	first := map[string]*hcl.Block{}
	for _, blk := range content.Blocks {
		kind := b.blocks[blk.Type]
		key := strings.Join(append([]string{blk.Type}, blk.Labels...), "\x00")
		if prev := first[key]; prev != nil && !kind.many {
			l.add(diag.Errorf(diag.BlockTooOften, blk.DefRange, "second %s block", blk.Type).
				Labelf("it may stand once").Relate(prev.DefRange, "first declared here"))
			continue
		}
		first[key] = blk
		kind.read(blk)
	}
}

// elsewhere tells a block of projects where it belongs.
func (l *loader) elsewhere(d *diag.Diagnostic) *diag.Diagnostic {
	if d.Code != diag.UnsupportedBlock {
		return d
	}
	name := strings.TrimSuffix(strings.TrimPrefix(d.Summary, `unsupported block type "`), `"`)
	if !slices.Contains(l.opt.Project, name) || slices.Contains(Blocks(), name) {
		return d
	}
	return diag.Errorf(diag.WrongFileKind, d.Subject, "block %q in the host configuration", name).
		Labelf("this belongs into a project").
		Helpf("move it to a file that ends in .berth.hcl, in the project's directory")
}

// Blocks are the block types of the host configuration.
func Blocks() []string {
	return []string{"defaults", "plugins", "policy", "secret", "secret_store", "session_store", "state_store", "telemetry"}
}

// value evaluates an attribute. Secrets stay unknown.
func (l *loader) value(a *hcl.Attribute, want cty.Type, mayHide bool) (cty.Value, bool) {
	if !l.secretsExist(a.Expr) {
		return cty.NilVal, false
	}
	ctx := l.context(nil)
	v, found := mark.Eval(a.Expr, ctx)
	if found.HasErrors() {
		l.diags = append(l.diags, l.converter().Convert(found)...)
		return cty.NilVal, false
	}
	if !mayHide && mark.IsSensitive(v) {
		l.add(diag.Errorf(diag.SecretLeak, a.Expr.Range(), "secret value in %q, which is not a sensitive place", a.Name).
			Labelf("this value would be shown"))
		return cty.NilVal, false
	}
	out, err := convert.Convert(v, want)
	if err != nil || out.IsNull() {
		l.add(diag.Errorf(diag.WrongType, a.Expr.Range(), "wrong type").
			Labelf("%q needs %s", a.Name, diag.FriendlyType(want)))
		return cty.NilVal, false
	}
	return out, true
}

// secretsExist checks the names of secrets before the library does, which knows no name nearby.
func (l *loader) secretsExist(expr hcl.Expression) bool {
	ok := true
	for _, t := range expr.Variables() {
		if t.RootName() != "secret" || len(t) < 2 {
			continue
		}
		step, named := t[1].(hcl.TraverseAttr)
		if !named || l.secrets[step.Name] != nil {
			continue
		}
		ok = false
		d := diag.Errorf(diag.UnknownName, hcl.RangeBetween(t[0].SourceRange(), step.SourceRange()), "no secret named %q", step.Name)
		names := slices.Collect(maps.Keys(l.secrets))
		if near := diag.Suggest(step.Name, names); near != "" {
			d.Labelf("did you mean secret.%s?", near).Relate(l.secrets[near].Header, "secret declared here")
		}
		l.add(d)
	}
	return ok
}

func (l *loader) converter() diag.Converter {
	return diag.Converter{Files: l.files, Functions: funcs.Names(), Names: []string{"secret"}}
}

// context gives the names of expressions, with the secrets that are known.
func (l *loader) context(known map[string]cty.Value) *hcl.EvalContext {
	secrets := map[string]cty.Value{}
	for name, s := range l.secrets {
		secrets[name] = s.Unknown()
	}
	maps.Copy(secrets, known)
	return &hcl.EvalContext{
		Variables: map[string]cty.Value{"secret": cty.ObjectVal(secrets)},
		Functions: funcs.Table(funcs.Options{}),
	}
}

func (l *loader) text(key string, dst *string, allowed ...string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		v, ok := l.value(a, cty.String, false)
		if !ok {
			return
		}
		s := v.AsString()
		if len(allowed) > 0 && !slices.Contains(allowed, s) {
			l.notOneOf(a, s, allowed)
			return
		}
		*dst = s
		l.origin(key, a)
	}
}

func (l *loader) notOneOf(a *hcl.Attribute, given string, allowed []string) {
	d := diag.Errorf(diag.NotOneOf, a.Expr.Range(), "%s cannot be %q", a.Name, diag.Printable(given)).
		Helpf("it is one of: %s", strings.Join(allowed, ", "))
	if near := diag.Suggest(given, allowed); near != "" {
		d.Labelf("did you mean %q?", near)
	}
	l.add(d)
}

// path is a text with ~ for the home directory; relative ones start at the file's directory.
func (l *loader) path(key string, dst *string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		v, ok := l.value(a, cty.String, false)
		if !ok {
			return
		}
		if p, ok := l.expand(a, v.AsString()); ok {
			*dst = p
			l.origin(key, a)
		}
	}
}

func (l *loader) expand(a *hcl.Attribute, p string) (string, bool) {
	return l.absolute(p, filepath.Dir(a.Range.Filename), a.Expr.Range())
}

func (l *loader) absolute(p, dir string, at hcl.Range) (string, bool) {
	if p == "" {
		l.add(diag.Errorf(diag.PatternMismatch, at, "empty path").Labelf("a path is needed here"))
		return "", false
	}
	if p == "~" || strings.HasPrefix(p, "~/") {
		if l.opt.Home == "" {
			l.add(diag.Errorf(diag.PatternMismatch, at, "the home directory is not known").Labelf("write the path in full"))
			return "", false
		}
		p = l.opt.Home + p[1:]
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(dir, p)
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		l.add(diag.Errorf(diag.PatternMismatch, at, "not a usable path").Labelf("%v", err))
		return "", false
	}
	return abs, true
}

func (l *loader) texts(a *hcl.Attribute) ([]string, bool) {
	v, ok := l.value(a, cty.List(cty.String), false)
	if !ok {
		return nil, false
	}
	out := []string{}
	for _, e := range v.AsValueSlice() {
		if e.IsNull() {
			l.add(diag.Errorf(diag.NullNotAllowed, a.Expr.Range(), "null in %q", a.Name).Labelf("each element must be a text"))
			return nil, false
		}
		out = append(out, e.AsString())
	}
	return out, true
}

func (l *loader) list(key string, dst *[]string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if v, ok := l.texts(a); ok {
			*dst = v
			l.origin(key, a)
		}
	}
}

func (l *loader) paths(key string, dst *[]string) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		v, ok := l.texts(a)
		for i := range v {
			p, good := l.expand(a, v[i])
			v[i] = p
			ok = ok && good
		}
		if ok {
			*dst = v
			l.origin(key, a)
		}
	}
}

func (l *loader) truth(key string, dst *bool) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		if v, ok := l.value(a, cty.Bool, false); ok {
			*dst = v.True()
			l.origin(key, a)
		}
	}
}

func (l *loader) number(key string, set func(float64)) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		v, ok := l.value(a, cty.Number, false)
		if !ok {
			return
		}
		f, _ := v.AsBigFloat().Float64()
		if f < 0 {
			l.add(diag.Errorf(diag.OutOfRange, a.Expr.Range(), "%s is negative", a.Name).Labelf("it must be 0 or more"))
			return
		}
		set(f)
		l.origin(key, a)
	}
}

func (l *loader) duration(key string, dst *time.Duration) func(*hcl.Attribute) {
	return func(a *hcl.Attribute) {
		v, ok := l.value(a, cty.String, false)
		if !ok {
			return
		}
		d, err := parseDuration(v.AsString())
		if err != nil {
			l.add(diag.Errorf(diag.BadDuration, a.Expr.Range(), "%s is not a duration", a.Name).Labelf("%v", err))
			return
		}
		*dst = d
		l.origin(key, a)
	}
}

// parseDuration takes a text such as "30s", or a number of seconds.
func parseDuration(s string) (time.Duration, error) {
	if d, err := funcs.ParseDuration(s + "s"); err == nil && strings.Trim(s, "0123456789.") == "" {
		return d, nil
	}
	return funcs.ParseDuration(s)
}

func (l *loader) origin(key string, a *hcl.Attribute) {
	if key == "" {
		return
	}
	l.cfg.Origins[key] = fmt.Sprintf("%s:%d", a.Range.Filename, a.Range.Start.Line)
	l.places[key] = a.Expr.Range()
}

func pos(r hcl.Range) spec.Pos {
	return spec.Pos{File: r.Filename, Line: r.Start.Line, Column: r.Start.Column}
}

// hidden is a text that is evaluated, with the secrets it needs, when it is revealed.
func (l *loader) hidden(name string, expr hcl.Expression, pick func(cty.Value) (string, error)) value.Secret {
	secrets := l.secrets
	return value.NewSecret(name, func(ctx context.Context) (string, error) {
		known := map[string]cty.Value{}
		for _, t := range expr.Variables() {
			if t.RootName() != "secret" || len(t) < 2 {
				continue
			}
			step, ok := t[1].(hcl.TraverseAttr)
			if !ok || secrets[step.Name] == nil {
				continue
			}
			v, err := l.resolver.Value(ctx, secrets[step.Name])
			if err != nil {
				return "", err
			}
			known[step.Name] = v
		}
		v, found := expr.Value(l.context(known))
		if found.HasErrors() {
			return "", l.converter().Convert(found).Err()
		}
		v, _ = v.UnmarkDeep()
		return pick(v)
	})
}

func asText(v cty.Value) (string, error) {
	v, err := convert.Convert(v, cty.String)
	switch {
	case err != nil:
		return "", fmt.Errorf("the value is not a text")
	case v.IsNull():
		return "", nil
	case !v.IsKnown():
		return "", fmt.Errorf("the value is not known")
	}
	return v.AsString(), nil
}

// parse reads a file.
func (l *loader) parse(path string, raw []byte) {
	src, bad := diag.Source(path, raw)
	if bad != nil {
		l.files[path] = &hcl.File{Bytes: raw}
		l.add(bad)
		return
	}
	file, found := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	if file == nil {
		file = &hcl.File{Bytes: src}
	}
	l.files[path] = file
	if ds := (diag.Converter{Files: l.files}).Convert(found); ds.HasErrors() {
		l.diags = append(l.diags, ds...)
		return
	}
	l.secrets = map[string]*secret.Secret{}
	l.declareSecrets(file.Body)
	l.read(file.Body, hcl.Range{Filename: path}, l.top())
}

// exists is for what must be there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
