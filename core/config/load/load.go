// SPDX-License-Identifier: Apache-2.0

// Package load reads a project into a checked tree: files, variables, locals, modules, references, `extends`, driver
// bodies. Each phase reports all that is wrong before the next one may be skipped.
package load

import (
	"context"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/config/check"
	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/funcs"
	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/config/source"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/config/vars"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/semver"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/driver"
)

// Options say what to load and how.
type Options struct {
	Path            string // a directory or one file
	Vars            []vars.Arg
	AllowUndeclared bool
	Env             func(string) (string, bool)
	Environ         func() []string
	Version         string // of berth; empty = any requirement is met
	Untrusted       bool
	// AllowFiles are host paths that an untrusted project may copy from.
	AllowFiles []string
	// ReadDirs are directories beside the project that functions may read from.
	ReadDirs []string
	// Schemas describes a driver by name; nil = bodies of drivers stay unchecked.
	Schemas func(name string) (*driver.Description, error)
	// Drivers are the names of the drivers that are known to be there, for suggestions.
	Drivers []string
	// SecretStore asks a secret store of the host; nil = there is none.
	SecretStore func(ctx context.Context, name string) (string, error)
	Redact      *redact.Set
	Sources     *source.Sources
}

// Module is one loaded module, or the project itself.
type Module struct {
	Name     string // "" or "module.NAME..."
	Scope    *eval.Scope
	Berth    *tree.Node
	Nodes    []*tree.Node // what references can name, in the order of the files
	Outputs  []*tree.Node
	Vars     map[string]*vars.Variable
	Values   map[string]*vars.Value
	Secrets  []*secret.Secret
	Children []*Module
	// Blocks are the top-level blocks as the files have them.
	Blocks hcl.Blocks
	// Modules are the module blocks.
	Modules []*tree.Node
	// SecretNodes are the secret blocks by name.
	SecretNodes map[string]*tree.Node
}

// Result is what loading gives.
type Result struct {
	World    *eval.World
	Root     *Module
	Registry *check.Registry
	Layout   source.Layout
	Files    *funcs.Files
	Drivers  map[string]*driver.Description // by driver name; nil values are unknown
	Diags    diag.Diagnostics
	// Broken says that the project is too broken to be decoded.
	Broken bool
}

// Each visits what references can name, of the project and of its modules.
func (r *Result) Each(visit func(*Module, *tree.Node)) {
	if r.Root != nil {
		r.Root.each(visit)
	}
}

func (m *Module) each(visit func(*Module, *tree.Node)) {
	for _, n := range m.Nodes {
		visit(m, n)
	}
	for _, c := range m.Children {
		c.each(visit)
	}
}

// DriverOf is the driver behind the name in a sandbox: that of a driver block, or the name itself.
func (r *Result) DriverOf(sandbox *tree.Node, name string) string {
	if c := sandbox.Block("config"); c != nil && c.Owner != "" {
		return c.Owner
	}
	if d := r.Registry.Find(sandbox.Env.Scope.Module, "driver."+name); d != nil {
		if uses := read.New(d).String("uses"); uses != "" {
			return uses
		}
	}
	return name
}

// maxModuleDepth bounds modules in modules.
const maxModuleDepth = 4

type loader struct {
	opt     Options
	res     *Result
	build   *tree.Builder
	checker *check.Checker
	files   *funcs.Files
	tables  map[string]map[string]function.Function
	later   []func() // what waits until locals are known
}

// Load loads a project. The result is never nil.
func Load(opt Options) *Result {
	if opt.Sources == nil {
		opt.Sources = source.New()
	}
	if opt.Redact == nil {
		opt.Redact = &redact.Set{}
	}
	if opt.Env == nil {
		opt.Env = vars.OSEnv
	}
	w := &eval.World{
		Sources: opt.Sources, Version: opt.Version, Untrusted: opt.Untrusted, AllowFiles: opt.AllowFiles, Redact: opt.Redact,
		Origins: map[string]hcl.Range{}, Secrets: map[string]*secret.Secret{}, HostFunctions: hostFunctions(),
	}
	w.Resolver = secret.NewResolver(secret.Config{Getenv: opt.Env, Store: opt.SecretStore, Learn: func(s string) { opt.Redact.Add(s) }})
	l := &loader{opt: opt, tables: map[string]map[string]function.Function{}}
	l.res = &Result{World: w, Registry: check.NewRegistry(), Drivers: map[string]*driver.Description{}}
	l.build = &tree.Builder{Files: opt.Sources.Files}
	l.checker = &check.Checker{World: w, Registry: l.res.Registry}
	l.run()
	l.res.Diags = append(l.res.Diags, l.build.Diags...)
	l.res.Diags = append(l.res.Diags, l.checker.Diags...)
	return l.res
}

func hostFunctions() map[string]bool {
	out := map[string]bool{}
	for _, n := range []string{"file", "filebase64", "fileexists", "fileset", "filesha256", "templatefile", "abspath", "pathexpand"} {
		out[n] = true
	}
	return out
}

func (l *loader) add(d ...*diag.Diagnostic) { l.res.Diags = append(l.res.Diags, d...) }

func (l *loader) run() {
	layout, ds := source.Find(l.opt.Path)
	l.add(ds...)
	l.res.Layout = layout
	l.res.World.Root = layout.Dir
	if ds.HasErrors() {
		l.res.Broken = true
		return
	}
	files, err := funcs.NewFiles(layout.Dir, l.opt.ReadDirs...)
	if err != nil {
		l.add(diag.Errorf(diag.UnreadableSource, hcl.Range{}, "cannot read %q: %v", l.opt.Path, err))
		l.res.Broken = true
		return
	}
	l.files, l.res.Files = files, files
	l.res.Root = l.module(layout, "", nil, 0)
	for _, f := range l.later {
		f()
	}
	if l.res.Root == nil {
		l.res.Broken = true
		return
	}
	l.link()
}

// table gives the functions for a directory.
func (l *loader) table(dir string) map[string]function.Function {
	if t := l.tables[dir]; t != nil {
		return t
	}
	t := funcs.Table(funcs.Options{Dir: dir, Files: l.files, Untrusted: l.opt.Untrusted})
	l.tables[dir] = t
	return t
}

// read reads the files of a layout; nil when a file cannot be parsed or needs another berth.
func (l *loader) read(layout source.Layout) []*source.File {
	var files []*source.File
	var ds diag.Diagnostics
	unmet := false
	for _, n := range layout.Configs {
		f, found := l.opt.Sources.Read(filepath.Join(layout.Dir, n), layout.Show(n))
		if f != nil {
			// The version comes first: a newer file gives "needs version" and not syntax errors.
			if d := l.version(f); d != nil {
				l.add(d)
				unmet = true
				continue
			}
			files = append(files, f)
		}
		ds = append(ds, found...)
	}
	if unmet {
		return nil
	}
	l.add(ds...)
	if ds.HasErrors() {
		l.headers(files)
		return nil
	}
	return files
}

// headers looks at the top-level blocks of files when another one is broken, so that their faults are told too.
func (l *loader) headers(files []*source.File) {
	broken := map[string]bool{}
	for _, d := range l.res.Diags {
		if d.Severity == diag.Error {
			broken[d.Subject.Filename] = true
		}
	}
	for _, f := range files {
		if !broken[f.Name] {
			l.build.Top(f.Body, f.JSON)
		}
	}
}

// version holds required_version and language against this berth, leniently.
func (l *loader) version(f *source.File) *diag.Diagnostic {
	for _, a := range berthAttributes(f) {
		switch a.name {
		case "required_version":
			text, ok := check.Literal(a.expr)
			if !ok || l.opt.Version == "" {
				continue
			}
			have, err := semver.Parse(l.opt.Version)
			if err != nil {
				continue
			}
			want, err := semver.ParseConstraint(text)
			if err != nil {
				return diag.Errorf(diag.WrongType, a.expr.Range(), "required_version is no constraint").Labelf("%v", err)
			}
			if !want.Allows(have) && !want.Allows(have.Core()) {
				return diag.Errorf(diag.VersionNotMet, a.expr.Range(), "this project needs berth %s", text).
					Labelf("this is berth %s", l.opt.Version).Helpf("install a version of berth that fits")
			}
		case "language":
			v, ds := a.expr.Value(nil)
			if ds.HasErrors() || v.IsNull() || v.Type().FriendlyName() != "number" {
				continue
			}
			if n, _ := v.AsBigFloat().Float64(); n > 1 {
				return diag.Errorf(diag.VersionNotMet, a.expr.Range(), "this project needs version %g of the language", n).
					Labelf("this berth reads version 1").Helpf("install a newer berth")
			}
		}
	}
	return nil
}

type berthAttribute struct {
	name string
	expr hcl.Expression
}

func berthAttributes(f *source.File) []berthAttribute {
	var out []berthAttribute
	content, _, _ := f.Body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "berth"}}})
	if content == nil {
		return nil
	}
	for _, b := range content.Blocks {
		inner, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "required_version"}, {Name: "language"}}})
		if inner == nil {
			continue
		}
		for _, n := range []string{"required_version", "language"} {
			if a := inner.Attributes[n]; a != nil {
				out = append(out, berthAttribute{n, a.Expr})
			}
		}
	}
	return out
}

// attrs gives the attributes of a body that has nothing else.
func (l *loader) attrs(body hcl.Body) hcl.Attributes {
	attrs, found := body.JustAttributes()
	l.add(diag.Converter{Files: l.opt.Sources.Files}.Convert(found)...)
	return attrs
}
