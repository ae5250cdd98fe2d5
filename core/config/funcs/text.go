// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

func text(name string) function.Parameter { return function.Parameter{Name: name, Type: cty.String} }

// onText is a function from one text to another.
func onText(doc string, f func(string) (string, error)) function.Function {
	return function.New(&function.Spec{
		Description:  doc,
		Params:       []function.Parameter{text("str")},
		Type:         function.StaticReturnType(cty.String),
		RefineResult: notNull,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			s, err := f(args[0].AsString())
			if err != nil {
				return cty.NilVal, err
			}
			return cty.StringVal(s), nil
		},
	})
}

func notNull(b *cty.RefinementBuilder) *cty.RefinementBuilder { return b.NotNull() }

func startsWith(s, t string) bool { return strings.HasPrefix(s, t) }
func endsWith(s, t string) bool   { return strings.HasSuffix(s, t) }
func contains(s, t string) bool   { return strings.Contains(s, t) }

func textTest(second string, f func(s, t string) bool) function.Function {
	return function.New(&function.Spec{
		Params:       []function.Parameter{text("str"), text(second)},
		Type:         function.StaticReturnType(cty.Bool),
		RefineResult: notNull,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(f(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

var replaceFunc = function.New(&function.Spec{
	Description: "Replaces every occurrence of a text, or of a regular expression between slashes.",
	Params:      []function.Parameter{text("str"), text("substring"), text("replacement")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		s, old, with := args[0].AsString(), args[1].AsString(), args[2].AsString()
		if len(old) > 1 && old[0] == '/' && old[len(old)-1] == '/' {
			re, err := regexp.Compile(old[1 : len(old)-1])
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(1, "not a regular expression: %s", err)
			}
			if len(re.FindAllStringIndex(s, -1))*(len(with)+1) > mostText {
				return cty.NilVal, tooMuchText()
			}
			return cty.StringVal(re.ReplaceAllString(s, with)), nil
		}
		if len(s)+strings.Count(s, old)*len(with) > 2*mostText {
			return cty.NilVal, tooMuchText()
		}
		return cty.StringVal(strings.ReplaceAll(s, old, with)), nil
	},
})

func tooMuchText() error { return fmt.Errorf("the result has more than %d MiB of text", mostText>>20) }

var indentFunc = function.New(&function.Spec{
	Description: "Puts spaces before every line but the first.",
	Params:      []function.Parameter{{Name: "spaces", Type: cty.Number}, text("str")},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		f, _ := args[0].AsBigFloat().Float64()
		if f < 0 || f > 1000 {
			return cty.NilVal, function.NewArgErrorf(0, "must be between 0 and 1000")
		}
		if strings.Count(args[1].AsString(), "\n")*int(f) > mostText {
			return cty.NilVal, tooMuchText()
		}
		return stdlib.Indent(args[0], args[1])
	},
})

var joinFunc = function.New(&function.Spec{
	Description: "Joins the elements of lists with a text between them.",
	Params:      []function.Parameter{text("separator")},
	VarParam:    &function.Parameter{Name: "lists", Type: cty.List(cty.String)},
	Type:        function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		size := 0
		for _, l := range args[1:] {
			if !l.IsWhollyKnown() {
				return cty.UnknownVal(cty.String), nil
			}
			size += l.LengthInt() * len(args[0].AsString())
		}
		if size > mostText {
			return cty.NilVal, tooMuchText()
		}
		return stdlib.JoinFunc.Call(args)
	},
})

var wideVerb = regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{4,}`)

// formatFunc refuses widths that are a mistake or an attack.
func formatFunc(f function.Function) function.Function {
	check := func(args []cty.Value) error {
		if v := args[0]; v.IsKnown() && !v.IsNull() && wideVerb.MatchString(v.AsString()) {
			return function.NewArgErrorf(0, "a width or precision must be less than 1000")
		}
		return nil
	}
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      f.Params(),
		VarParam:    f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if err := check(args); err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if err := check(args); err != nil {
				return cty.NilVal, err
			}
			return f.Call(args)
		},
	})
}

var baseNameFunc = onText("Gives the last part of a path.", func(s string) (string, error) { return path.Base(s), nil })

var dirNameFunc = onText("Gives a path without its last part.", func(s string) (string, error) { return path.Dir(s), nil })
