// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/diag"
)

// hostFiles are the functions that look at the host. Templates may call those of table, but no templatefile again.
func hostFiles(o Options, table map[string]function.Function) map[string]function.Function {
	h := host{dir: o.Dir, files: o.Files}
	funcs := map[string]function.Function{
		"abspath":    onText("Makes a path absolute.", h.absPath),
		"file":       onText("Gives the text of a file.", h.text),
		"filebase64": onText("Gives the content of a file in Base64.", h.base64),
		"fileexists": h.exists(),
		"fileset":    h.set(),
		"filesha256": onText("Gives the SHA-256 sum of a file in hexadecimal.", h.sha256),
		"pathexpand": onText("Puts the home directory in place of a leading ~.", expandHome),
	}
	if o.Untrusted || o.Files == nil {
		for name := range funcs {
			funcs[name] = refused(name)
		}
		funcs["templatefile"] = refused("templatefile")
		return funcs
	}
	inside := map[string]function.Function{"templatefile": failing("templatefile cannot be called inside a template")}
	maps.Copy(inside, table)
	for name, f := range funcs {
		inside[name] = guard(name, f)
	}
	funcs["templatefile"] = h.template(inside)
	return funcs
}

type host struct {
	dir   string
	files *Files
}

func (h host) absPath(s string) (string, error) {
	if !filepath.IsAbs(s) {
		s = filepath.Join(h.dir, s)
	}
	s, err := filepath.Abs(s)
	return filepath.ToSlash(s), err
}

func (h host) text(name string) (string, error) {
	b, err := h.files.Read(h.dir, name)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%q is not UTF-8 text; use filebase64", name)
	}
	return string(b), nil
}

func (h host) base64(name string) (string, error) {
	b, err := h.files.Read(h.dir, name)
	return base64.StdEncoding.EncodeToString(b), err
}

func (h host) sha256(name string) (string, error) {
	b, err := h.files.Read(h.dir, name)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func expandHome(s string) (string, error) {
	if s != "~" && !strings.HasPrefix(s, "~/") {
		return s, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("the home directory is not known")
	}
	return home + s[1:], nil
}

func (h host) exists() function.Function {
	return function.New(&function.Spec{
		Description: "Says whether a file exists.",
		Params:      []function.Parameter{text("path")},
		Type:        function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			ok, err := h.files.Exists(h.dir, args[0].AsString())
			if err != nil {
				return cty.NilVal, err
			}
			return cty.BoolVal(ok), nil
		},
	})
}

func (h host) set() function.Function {
	return function.New(&function.Spec{
		Description: "Gives the regular files below a directory whose path matches a pattern; ** stands for any directories.",
		Params:      []function.Parameter{text("path"), text("pattern")},
		Type:        function.StaticReturnType(cty.Set(cty.String)),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			names, err := h.files.Match(h.dir, args[0].AsString(), args[1].AsString())
			if err != nil {
				return cty.NilVal, err
			}
			if len(names) == 0 {
				return cty.SetValEmpty(cty.String), nil
			}
			out := make([]cty.Value, len(names))
			for i, n := range names {
				out[i] = cty.StringVal(n)
			}
			return cty.SetVal(out), nil
		},
	})
}

// Match lists the regular files below a directory whose relative path matches a pattern. Links to directories are not
// followed.
func (f *Files) Match(dir, below, pattern string) ([]string, error) {
	real, _, err := f.locate(dir, below)
	if err != nil {
		return nil, err
	}
	// Two ** in a row match what one does, at the cost of trying every split.
	parts := slices.CompactFunc(strings.Split(pattern, "/"), func(a, b string) bool { return a == "**" && b == "**" })
	for _, p := range parts {
		if _, err := filepath.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%q is not a pattern", pattern)
		}
		if p == ".." {
			return nil, fmt.Errorf("the pattern %q leaves the directory", pattern)
		}
	}
	const most = 100_000
	seen := 0
	var out []string
	err = filepath.WalkDir(real, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return plain(err, below)
		}
		if seen++; seen > most {
			return fmt.Errorf("%q holds more than %d files", below, most)
		}
		rel, err := filepath.Rel(real, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if e.Type().IsRegular() && matches(parts, strings.Split(rel, "/")) {
			out = append(out, rel)
		}
		return nil
	})
	sort.Strings(out)
	return out, err
}

func matches(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == "**" {
		for n := 0; n <= len(path); n++ {
			if matches(pattern[1:], path[n:]) {
				return true
			}
		}
		return false
	}
	if len(path) == 0 {
		return false
	}
	ok, err := filepath.Match(pattern[0], path[0])
	return err == nil && ok && matches(pattern[1:], path[1:])
}

// template renders a file with variables of its own.
func (h host) template(inside map[string]function.Function) function.Function {
	render := func(args []cty.Value) (cty.Value, error) {
		name := args[0].AsString()
		src, err := h.text(name)
		if err != nil {
			return cty.NilVal, err
		}
		clean, bad := diag.SourceAs(name, []byte(src), diag.Template)
		if bad != nil {
			return cty.NilVal, bad
		}
		expr, ds := hclsyntax.ParseTemplate(clean, name, hcl.InitialPos)
		files := diag.Files{name: {Bytes: clean}}
		if ds.HasErrors() {
			return cty.NilVal, diag.Converter{Files: files}.Convert(ds).Err()
		}
		vars, err := templateVars(args[1])
		if err != nil {
			return cty.NilVal, function.NewArgError(1, err)
		}
		names := make([]string, 0, len(vars))
		for n := range vars {
			names = append(names, n)
		}
		v, ds := expr.Value(&hcl.EvalContext{Variables: vars, Functions: inside})
		if ds.HasErrors() {
			c := diag.Converter{Files: files, Names: names, Functions: Names()}
			return cty.NilVal, c.Convert(ds).Err()
		}
		return v, nil
	}
	return function.New(&function.Spec{
		Description: "Renders a file as a template with the given variables.",
		Params:      []function.Parameter{text("path"), anything("vars")},
		Type: func(args []cty.Value) (cty.Type, error) {
			if !args[0].IsKnown() || !args[1].IsKnown() {
				return cty.DynamicPseudoType, nil
			}
			v, err := render(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return render(args) },
	})
}

func templateVars(v cty.Value) (map[string]cty.Value, error) {
	if t := v.Type(); !t.IsObjectType() && !t.IsMapType() {
		return nil, errors.New("must be an object with the variables of the template")
	}
	vars := map[string]cty.Value{}
	for name, value := range v.AsValueMap() {
		if !hclsyntax.ValidIdentifier(name) {
			return nil, fmt.Errorf("%q is not a name for a variable", name)
		}
		vars[name] = value
	}
	return vars, nil
}

func failing(why string) function.Function {
	f := func() error { return errors.New(why) }
	return function.New(&function.Spec{
		VarParam: &function.Parameter{Name: "arguments", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true, AllowMarked: true},
		Type:     func([]cty.Value) (cty.Type, error) { return cty.NilType, f() },
		Impl:     func([]cty.Value, cty.Type) (cty.Value, error) { return cty.NilVal, f() },
	})
}
