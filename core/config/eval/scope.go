// SPDX-License-Identifier: Apache-2.0

// Package eval evaluates the expressions of a project.
//
// A [Scope] is one module: its variables, locals, secrets and functions. An [Env] is a place in it: the scope with the
// iterators of the dynamic blocks around. Every name and function of an expression is checked before the expression is
// evaluated, so that one expression can give several precise errors.
//
// Secrets are unknown, and marked, until somebody reveals them. [Env.Reveal] then evaluates the expression again with
// the secrets that its value was marked with.
package eval

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/config/source"
	"github.com/berth-dev/berth/core/value/redact"
)

// World is what all modules of one load share.
type World struct {
	Sources   *source.Sources
	Root      string // absolute directory of the project
	Version   string // of berth
	Untrusted bool
	// AllowFiles are the host paths that an untrusted project may copy from.
	AllowFiles []string
	Resolver   *secret.Resolver
	Redact     *redact.Set
	// Origins are the places of the declarations that marks name.
	Origins map[string]hcl.Range
	// Secrets are all secrets by key.
	Secrets map[string]*secret.Secret
	// Open counts the uses of nonsensitive.
	Open []hcl.Range
	// HostCommands are what makes the host run programs of the project's choice.
	HostCommands []HostCommand
	// HostFunctions are the functions that reach host files.
	HostFunctions map[string]bool
}

// HostCommand is a place in the files that makes the host run a program.
type HostCommand struct {
	What  string // as the file says it
	Range hcl.Range
}

// Decl is a named declaration.
type Decl struct {
	Name  string
	Value cty.Value
	Range hcl.Range // of its header
	// Expr and Env give the value again when secrets are known; nil when it has none inside.
	Expr hcl.Expression
	Env  *Env
	// Type is what the value is converted to; NilType = not at all.
	Type cty.Type
	// Outputs are those of a module, whose value is their object.
	Outputs map[string]*Decl
}

// Scope is one module.
type Scope struct {
	World  *World
	Module string // "" or "module.NAME..."
	Dir    string // absolute
	// Vars, Locals, Secrets and Modules (objects of outputs) are set while the module is loaded.
	Vars, Locals, Secrets, Modules map[string]*Decl
	localOrder                     []string
	Functions                      map[string]function.Function

	mu   sync.Mutex
	base *hcl.EvalContext // guarded by mu; nil = to be made again
}

// NewScope makes an empty scope.
func NewScope(w *World, module, dir string, functions map[string]function.Function) *Scope {
	return &Scope{
		World: w, Module: module, Dir: dir, Functions: functions,
		Vars: map[string]*Decl{}, Locals: map[string]*Decl{}, Secrets: map[string]*Decl{}, Modules: map[string]*Decl{},
	}
}

// Key is the name of a thing of the scope that is unique in the project.
func (s *Scope) Key(name string) string {
	if s.Module == "" {
		return name
	}
	return s.Module + "." + name
}

// Changed says that a declaration was added.
func (s *Scope) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = nil
}

func (s *Scope) context() *hcl.EvalContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		s.base = s.build(values(s.Vars), values(s.Locals), values(s.Secrets), values(s.Modules))
	}
	return s.base
}

func (s *Scope) build(vars, locals, secrets, modules map[string]cty.Value) *hcl.EvalContext {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = s.World.Root
	}
	return &hcl.EvalContext{
		Functions: s.Functions,
		Variables: map[string]cty.Value{
			"var":    cty.ObjectVal(vars),
			"local":  cty.ObjectVal(locals),
			"secret": cty.ObjectVal(secrets),
			"module": cty.ObjectVal(modules),
			"path": cty.ObjectVal(map[string]cty.Value{
				"module": cty.StringVal(s.Dir), "root": cty.StringVal(s.World.Root), "cwd": cty.StringVal(cwd),
			}),
			"berth": cty.ObjectVal(map[string]cty.Value{
				"version": cty.StringVal(s.World.Version), "os": cty.StringVal(runtime.GOOS), "arch": cty.StringVal(runtime.GOARCH),
			}),
		},
	}
}

func values(m map[string]*Decl) map[string]cty.Value {
	out := make(map[string]cty.Value, len(m))
	for n, d := range m {
		out[n] = d.Value
	}
	return out
}

func affected(v cty.Value, known map[string]cty.Value) bool {
	for _, o := range mark.Needs(v) {
		if _, ok := known[o]; ok {
			return true
		}
	}
	return false
}

// Env is a place in a scope.
type Env struct {
	Scope *Scope
	iters []*iterator
}

// iterator is one dynamic block around a place.
type iterator struct {
	name  string
	key   cty.Value
	value cty.Value
	// expr gives the collection again when secrets are known.
	expr hcl.Expression
	env  *Env
}

// Env is the scope's own place.
func (s *Scope) Env() *Env { return &Env{Scope: s} }

// With is the place inside one round of a dynamic block.
func (e *Env) With(name string, key, val cty.Value, collection hcl.Expression) *Env {
	it := &iterator{name: name, key: key, value: val, expr: collection, env: e}
	return &Env{Scope: e.Scope, iters: append(slices.Clip(e.iters), it)}
}

// Iterators are the names of the dynamic blocks around.
func (e *Env) Iterators() []string {
	var out []string
	for _, it := range e.iters {
		out = append(out, it.name)
	}
	return out
}

func (e *Env) context(extra map[string]cty.Value) *hcl.EvalContext {
	return e.over(e.Scope.context(), nil, extra)
}

func (e *Env) over(base *hcl.EvalContext, vals []cty.Value, extra map[string]cty.Value) *hcl.EvalContext {
	if len(e.iters) == 0 && len(extra) == 0 {
		return base
	}
	child := base.NewChild()
	child.Variables = make(map[string]cty.Value, len(e.iters)+len(extra))
	for i, it := range e.iters {
		v := it.value
		if vals != nil {
			v = vals[i]
		}
		child.Variables[it.name] = cty.ObjectVal(map[string]cty.Value{"key": it.key, "value": v})
	}
	maps.Copy(child.Variables, extra)
	return child
}

// Public gives the value of a traversal when it is known and not sensitive.
func (e *Env) Public(t hcl.Traversal) (cty.Value, bool) {
	v, found := t.TraverseAbs(e.context(nil))
	if found.HasErrors() || mark.IsSensitive(v) {
		return cty.NilVal, false
	}
	bare, _ := v.UnmarkDeep()
	return bare, bare.IsWhollyKnown()
}

// Round says what a dynamic block's iterator goes over, its key in this round, and where the collection is evaluated.
func (e *Env) Round(name string) (collection hcl.Expression, key cty.Value, env *Env, ok bool) {
	for _, it := range e.iters {
		if it.name == name {
			k, _ := it.key.UnmarkDeep()
			return it.expr, k, it.env, true
		}
	}
	return nil, cty.NilVal, nil, false
}
