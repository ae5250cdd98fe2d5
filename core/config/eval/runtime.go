// SPDX-License-Identifier: Apache-2.0

package eval

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
)

// Runtime is an expression that is evaluated while a run is going on. It is a [spec.Expr].
type Runtime struct {
	Expr hcl.Expression
	Env  *Env
	Use  Use
	// Type is what the value is converted to; NilType = not at all.
	Type cty.Type
}

var _ spec.Expr = (*Runtime)(nil)

// Eval evaluates the expression. Secrets in it are fetched.
func (r *Runtime) Eval(vars spec.RunVars) (any, error) {
	v, err := r.Env.Reveal(context.Background(), r.Expr, r.Use.known(vars))
	if err != nil {
		return nil, err
	}
	if r.Type != cty.NilType {
		v, err = convert.Convert(v, r.Type)
		if err != nil {
			return nil, diag.Errorf(diag.WrongType, r.Expr.Range(), "wrong type").Labelf("this gives %s, not %s",
				diag.FriendlyType(v.Type()), diag.FriendlyType(r.Type))
		}
	}
	return GoValue(v), nil
}

// Pos is where the expression stands.
func (r *Runtime) Pos() spec.Pos { return Pos(r.Expr.Range()) }

// Pos is the start of a range.
func Pos(r hcl.Range) spec.Pos {
	return spec.Pos{File: r.Filename, Line: r.Start.Line, Column: r.Start.Column}
}

// known are the run-time names with their values.
func (u Use) known(vars spec.RunVars) map[string]cty.Value {
	out := map[string]cty.Value{}
	if u.Run {
		ports := map[string]cty.Value{}
		for p, url := range vars.Ports {
			ports[p] = cty.ObjectVal(map[string]cty.Value{"url": cty.StringVal(url)})
		}
		portMap := cty.MapValEmpty(cty.Object(map[string]cty.Type{"url": cty.String}))
		if len(ports) > 0 {
			portMap = cty.MapVal(ports)
		}
		started := ""
		if !vars.StartedAt.IsZero() {
			started = vars.StartedAt.UTC().Format(time.RFC3339)
		}
		out["run"] = cty.ObjectVal(map[string]cty.Value{
			"id": cty.StringVal(vars.RunID), "input": cty.StringVal(vars.Input), "agent": cty.StringVal(vars.Agent),
			"started_at": cty.StringVal(started), "vars": objectOf(vars.Vars),
			"sandbox": cty.ObjectVal(map[string]cty.Value{"id": cty.StringVal(vars.SandboxID), "ports": portMap}),
		})
	}
	if u.Param {
		v := objectOf(vars.Params)
		if u.Arguments.Defaults != nil {
			v = u.Arguments.Defaults.Apply(v)
		}
		if u.Arguments.Type != cty.NilType {
			if c, err := convert.Convert(v, u.Arguments.Type); err == nil {
				v = c
			}
		}
		out["param"] = v
	}
	if u.Output {
		out["output"] = CtyValue(vars.Output)
	}
	return out
}

func objectOf(m map[string]any) cty.Value {
	if m == nil {
		return cty.EmptyObjectVal
	}
	return CtyValue(m)
}

// GoValue gives a known, unmarked value as string, float64, bool, nil, []any or map[string]any.
func GoValue(v cty.Value) any {
	if v == cty.NilVal || v.IsNull() || !v.IsKnown() {
		return nil
	}
	t := v.Type()
	switch {
	case t == cty.String:
		return v.AsString()
	case t == cty.Bool:
		return v.True()
	case t == cty.Number:
		f, _ := v.AsBigFloat().Float64()
		return f
	case t.IsObjectType() || t.IsMapType():
		out := make(map[string]any, v.LengthInt())
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			out[k.AsString()] = GoValue(e)
		}
		return out
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		out := make([]any, 0, v.LengthInt())
		for it := v.ElementIterator(); it.Next(); {
			_, e := it.Element()
			out = append(out, GoValue(e))
		}
		return out
	}
	return nil
}

// CtyValue gives what JSON gave, or simple Go values, as a value.
func CtyValue(x any) cty.Value {
	switch x := x.(type) {
	case nil:
		return cty.NullVal(cty.DynamicPseudoType)
	case string:
		return cty.StringVal(x)
	case bool:
		return cty.BoolVal(x)
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return cty.NullVal(cty.Number)
		}
		return cty.NumberFloatVal(x)
	case int:
		return cty.NumberIntVal(int64(x))
	case int64:
		return cty.NumberIntVal(x)
	case interface{ String() string }: // json.Number and its like
		if f, _, err := big.ParseFloat(x.String(), 10, 512, big.ToNearestEven); err == nil {
			return cty.NumberVal(f)
		}
		return cty.StringVal(x.String())
	case []any:
		vals := make([]cty.Value, len(x))
		for i, e := range x {
			vals[i] = CtyValue(e)
		}
		return cty.TupleVal(vals)
	case []string:
		vals := make([]cty.Value, len(x))
		for i, e := range x {
			vals[i] = cty.StringVal(e)
		}
		return cty.TupleVal(vals)
	case map[string]any:
		vals := make(map[string]cty.Value, len(x))
		for k, e := range x {
			vals[k] = CtyValue(e)
		}
		return cty.ObjectVal(vals)
	case map[string]string:
		vals := make(map[string]cty.Value, len(x))
		for k, e := range x {
			vals[k] = cty.StringVal(e)
		}
		return cty.ObjectVal(vals)
	}
	return cty.StringVal(fmt.Sprint(x))
}
