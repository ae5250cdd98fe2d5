// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"errors"
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/config/bound"
	"github.com/berth-dev/berth/core/diag"
)

// Bounds on what one call may make.
const (
	mostText     = bound.MostText
	mostElements = bound.MostElements
)

// Error is a function's failure that has a code of its own.
type Error struct {
	Number  diag.Code
	Message string
}

func (e *Error) Error() string { return e.Message }

// Code is the code of the diagnostic.
func (e *Error) Code() diag.Code { return e.Number }

// guard makes a function safe: its errors never show a marked argument, and what it makes is bounded.
func guard(name string, f function.Function) function.Function {
	return function.New(&function.Spec{
		Description: f.Description(),
		Params:      open(f.Params()),
		VarParam:    openVar(f.VarParam()),
		Type: func(args []cty.Value) (cty.Type, error) {
			t, err := f.ReturnTypeForValues(args)
			return t, veil(err, args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			v, err := f.Call(args)
			if err != nil {
				return cty.NilVal, veil(err, args)
			}
			if err := bound.CheckSize(v); err != nil {
				return cty.NilVal, fmt.Errorf("%s: %w", name, err)
			}
			return withMarksOf(args, v), nil
		},
	})
}

// withMarksOf marks an unknown result with everything that its arguments carry: the library drops the marks of
// arguments which a function wants to see marked when it does not call it because they are unknown.
func withMarksOf(args []cty.Value, v cty.Value) cty.Value {
	if v.IsWhollyKnown() {
		return v
	}
	for _, a := range args {
		_, marks := a.UnmarkDeep()
		v = v.WithMarks(marks)
	}
	return v
}

// open lets everything through to the function that is guarded, which knows what it takes and what to do with marks.
func open(in []function.Parameter) []function.Parameter {
	out := make([]function.Parameter, len(in))
	for i, p := range in {
		p.AllowNull, p.AllowUnknown, p.AllowDynamicType, p.AllowMarked = true, true, true, true
		out[i] = p
	}
	return out
}

func openVar(p *function.Parameter) *function.Parameter {
	if p == nil {
		return nil
	}
	return &open([]function.Parameter{*p})[0]
}

// veil takes the reason out of an error when it could show a marked argument: a reason may quote any part of a text.
func veil(err error, args []cty.Value) error {
	if err == nil {
		return nil
	}
	marked := false
	for _, a := range args {
		marked = marked || a.ContainsMarked()
	}
	var own *Error
	if !marked || errors.As(err, &own) {
		return err
	}
	const text = "the reason is not shown because an argument is " + diag.Redacted
	if arg, ok := errors.AsType[function.ArgError](err); ok {
		return function.NewArgErrorf(arg.Index, "%s", text)
	}
	return errors.New(text)
}

// refused is a function that a project without trust may not call.
func refused(name string) function.Function {
	err := &Error{
		Number:  diag.FunctionUntrusted,
		Message: fmt.Sprintf("%s may not be called in an untrusted project", name),
	}
	return function.New(&function.Spec{
		VarParam: &function.Parameter{
			Name: "arguments", Type: cty.DynamicPseudoType,
			AllowNull: true, AllowUnknown: true, AllowDynamicType: true, AllowMarked: true,
		},
		Type: func([]cty.Value) (cty.Type, error) { return cty.NilType, err },
		Impl: func([]cty.Value, cty.Type) (cty.Value, error) { return cty.NilVal, err },
	})
}
