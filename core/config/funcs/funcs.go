// SPDX-License-Identifier: Apache-2.0

// Package funcs is the functions that expressions in a project may call.
//
// They are pure, but for those that read files of the host, which are confined to the project directory and refused to
// projects that are not trusted. Every function keeps the marks of its arguments, and no error shows an argument that is
// marked.
//
// Size: a hundred small functions in one table.
package funcs

import (
	"maps"
	"slices"

	ctyyaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Options say what the functions may do.
type Options struct {
	// Dir is what relative paths start from: the directory of the file that holds the expression.
	Dir string
	// Files reads the host's files; nil refuses every function that would.
	Files *Files
	// Untrusted refuses functions that read files or take marks away.
	Untrusted bool
}

// Table gives the functions by name.
func Table(o Options) map[string]function.Function {
	t := map[string]function.Function{}
	for name, f := range pure() {
		t[name] = guard(name, f)
	}
	maps.Copy(t, marking())
	t["can"] = canFunc
	t["try"] = tryFunc
	for name, f := range hostFiles(o, t) {
		t[name] = guard(name, f)
	}
	if o.Untrusted {
		t["nonsensitive"] = refused("nonsensitive")
	}
	return t
}

// Names lists every function, sorted, for suggestions and documents.
func Names() []string {
	var out []string
	for name := range Table(Options{}) {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func pure() map[string]function.Function {
	return map[string]function.Function{
		"abs":      stdlib.AbsoluteFunc,
		"ceil":     stdlib.CeilFunc,
		"floor":    stdlib.FloorFunc,
		"max":      stdlib.MaxFunc,
		"min":      stdlib.MinFunc,
		"parseint": stdlib.ParseIntFunc,
		"pow":      stdlib.PowFunc,
		"signum":   stdlib.SignumFunc,
		"sum":      sumFunc,

		"chomp":       stdlib.ChompFunc,
		"endswith":    textTest("suffix", endsWith),
		"format":      formatFunc(stdlib.FormatFunc),
		"formatlist":  formatFunc(stdlib.FormatListFunc),
		"indent":      indentFunc,
		"join":        joinFunc,
		"lower":       stdlib.LowerFunc,
		"upper":       stdlib.UpperFunc,
		"title":       stdlib.TitleFunc,
		"trim":        stdlib.TrimFunc,
		"trimprefix":  stdlib.TrimPrefixFunc,
		"trimsuffix":  stdlib.TrimSuffixFunc,
		"trimspace":   stdlib.TrimSpaceFunc,
		"regex":       stdlib.RegexFunc,
		"regexall":    stdlib.RegexAllFunc,
		"replace":     replaceFunc,
		"split":       stdlib.SplitFunc,
		"startswith":  textTest("prefix", startsWith),
		"strcontains": textTest("substr", contains),
		"strrev":      stdlib.ReverseFunc,
		"substr":      stdlib.SubstrFunc,

		"alltrue":         allTrueFunc,
		"anytrue":         anyTrueFunc,
		"chunklist":       stdlib.ChunklistFunc,
		"coalesce":        coalesceFunc,
		"coalescelist":    stdlib.CoalesceListFunc,
		"compact":         stdlib.CompactFunc,
		"concat":          stdlib.ConcatFunc,
		"contains":        stdlib.ContainsFunc,
		"distinct":        stdlib.DistinctFunc,
		"element":         stdlib.ElementFunc,
		"flatten":         stdlib.FlattenFunc,
		"index":           indexFunc,
		"keys":            stdlib.KeysFunc,
		"length":          lengthFunc,
		"lookup":          lookupFunc,
		"matchkeys":       matchKeysFunc,
		"merge":           stdlib.MergeFunc,
		"one":             oneFunc,
		"range":           stdlib.RangeFunc,
		"reverse":         stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc,
		"setproduct":      setProductFunc,
		"setsubtract":     stdlib.SetSubtractFunc,
		"setunion":        stdlib.SetUnionFunc,
		"slice":           stdlib.SliceFunc,
		"sort":            stdlib.SortFunc,
		"transpose":       transposeFunc,
		"values":          stdlib.ValuesFunc,
		"zipmap":          stdlib.ZipmapFunc,

		"base64decode":     base64DecodeFunc,
		"base64encode":     base64EncodeFunc,
		"csvdecode":        stdlib.CSVDecodeFunc,
		"jsondecode":       stdlib.JSONDecodeFunc,
		"jsonencode":       stdlib.JSONEncodeFunc,
		"textencodebase64": textEncodeBase64Func,
		"urlencode":        urlEncodeFunc,
		"yamldecode":       ctyyaml.YAMLDecodeFunc,
		"yamlencode":       ctyyaml.YAMLEncodeFunc,

		"md5":    md5Func,
		"sha256": sha256Func,
		"sha512": sha512Func,
		"uuidv5": uuidV5Func,

		"tobool":   stdlib.MakeToFunc(cty.Bool),
		"tolist":   stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap":    stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),
		"tonumber": stdlib.MakeToFunc(cty.Number),
		"toset":    stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tostring": stdlib.MakeToFunc(cty.String),

		"cidrhost":    cidrHostFunc,
		"cidrnetmask": cidrNetmaskFunc,
		"cidrsubnet":  cidrSubnetFunc,

		"basename": baseNameFunc,
		"dirname":  dirNameFunc,

		"bytes":    bytesFunc,
		"duration": durationFunc,
		"semver":   semverFunc,
	}
}
