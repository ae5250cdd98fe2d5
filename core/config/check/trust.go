// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/schema"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
)

// hostCommand finds what makes the host run a program of the project's choice; nil = nothing. The clone of a git_repo is
// none: the program is git, and only transports are taken that run no other.
func hostCommand(n *tree.Node) *eval.HostCommand {
	switch {
	case n.Type == "secret" && n.Attrs["command"] != nil:
		return &eval.HostCommand{What: "command", Range: n.Attrs["command"].Range}
	case n.Type == "mcp_server" && len(n.Labels) > 0 && n.Labels[0] == "stdio" && says(n, "run_in", "host"):
		return &eval.HostCommand{What: `run_in = "host"`, Range: n.Attrs["run_in"].Range}
	case (n.Type == "tool" || n.Type == "guardrail") && says(n, "target", "host"):
		return &eval.HostCommand{What: `target = "host"`, Range: n.Attrs["target"].Range}
	}
	return nil
}

// untrusted reports what a project that is not trusted may not say.
func (c *Checker) untrusted(n *tree.Node, command *eval.HostCommand) {
	what, rng := "", n.Header
	switch {
	case n.Schema != nil && n.Schema.Flags&schema.Host != 0:
		what = fmt.Sprintf("block %q", n.Type)
	case command != nil:
		what, rng = command.What, command.Range
	case n.Type == "tool" && len(n.Labels) > 0 && n.Labels[0] == "http":
		what = `tool "http"`
	case (n.Type == "local_file" || n.Type == "local_dir") && !c.allowed(n):
		what = fmt.Sprintf("%s outside the allowed paths", n.Type)
	case n.Type == "mount" && len(n.Labels) > 0 && n.Labels[0] == "host":
		what = `mount "host"`
	case (n.Type == "from" || n.Type == "lazy_from") && len(n.Labels) > 0 && n.Labels[0] == "local_dir" && !c.allowed(n):
		what = "a local_dir outside the allowed paths"
	}
	if what != "" {
		c.forbidden(rng, what)
	}
	if n.Body == nil {
		return
	}
	for _, a := range n.Attrs {
		if a.Schema.Has(schema.Host) {
			c.forbidden(a.NameRange, fmt.Sprintf("%q", a.Name))
		}
	}
}

func (c *Checker) forbidden(rng hcl.Range, what string) {
	c.add(diag.Errorf(diag.NotUntrusted, rng, "%s is not allowed in an untrusted project", what).
		Labelf("it would reach the host").Helpf("whoever starts the project can pass what is needed as variables, or trust it"))
}

// says reports whether an attribute has a value, or one that is not known yet.
func says(n *tree.Node, name, want string) bool {
	a := n.Attrs[name]
	if a == nil {
		return false
	}
	v, ds := a.Env.Value(a.Expr, a.Use)
	bare, _ := v.Unmark()
	if ds.HasErrors() || bare.IsNull() {
		return false
	}
	return !bare.IsKnown() || bare.Type() == cty.String && bare.AsString() == want
}

// allowed reports whether the source of a host entry is on the allow list.
func (c *Checker) allowed(n *tree.Node) bool {
	a := n.Attrs["source"]
	if a == nil {
		return true // reported as missing
	}
	v, ds := a.Env.Value(a.Expr, a.Use)
	bare, _ := v.Unmark()
	if ds.HasErrors() || !bare.IsKnown() || bare.IsNull() || bare.Type() != cty.String {
		return false
	}
	src := bare.AsString()
	if !filepath.IsAbs(src) {
		src = filepath.Join(a.Env.Scope.Dir, src)
	}
	src = filepath.Clean(src)
	if real, err := filepath.EvalSymlinks(src); err == nil {
		src = real
	}
	for _, p := range c.World.AllowFiles {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		rel, err := filepath.Rel(p, src)
		if err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}
