// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/ext/customdecode"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/diag"
)

// The library has a try and a can, too, but they give an unmarked value while their argument is not known yet, and
// every secret is unknown when a project is validated.

var tryFunc = function.New(&function.Spec{
	Description: "Gives the first of its expressions that has no error.",
	VarParam:    &function.Parameter{Name: "expressions", Type: customdecode.ExpressionClosureType},
	Type: func(args []cty.Value) (cty.Type, error) {
		v, err := try(args)
		if err != nil {
			return cty.NilType, err
		}
		return v.Type(), nil
	},
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return try(args) },
})

var canFunc = function.New(&function.Spec{
	Description: "Says whether an expression has no error.",
	Params:      []function.Parameter{{Name: "expression", Type: customdecode.ExpressionClosureType}},
	Type:        function.StaticReturnType(cty.Bool),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		v, diags := customdecode.ExpressionClosureFromVal(args[0]).Value()
		if diags.HasErrors() {
			return cty.False, nil
		}
		_, marks := v.UnmarkDeep()
		if !v.IsWhollyKnown() {
			return cty.UnknownVal(cty.Bool).RefineNotNull().WithMarks(marks), nil
		}
		return cty.True.WithMarks(marks), nil
	},
})

func try(args []cty.Value) (cty.Value, error) {
	if len(args) == 0 {
		return cty.NilVal, errors.New("at least one argument is required")
	}
	var reasons strings.Builder
	for _, arg := range args {
		closure := customdecode.ExpressionClosureFromVal(arg)
		v, diags := closure.Value()
		if !diags.HasErrors() {
			if !v.IsWhollyKnown() {
				// Once it is known it may have another type, or be an error.
				_, marks := v.UnmarkDeep()
				return cty.DynamicVal.WithMarks(marks), nil
			}
			return v, nil
		}
		for _, d := range (diag.Converter{}).Convert(diags) {
			fmt.Fprintf(&reasons, "\n- %s", d.Error())
		}
	}
	return cty.NilVal, fmt.Errorf("every expression has an error:%s", reasons.String())
}
