// SPDX-License-Identifier: Apache-2.0

package bound_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/berth-dev/berth/core/config/bound"
)

func scope() *hcl.EvalContext {
	big := make([]cty.Value, 20_000)
	for i := range big {
		big[i] = cty.StringVal("x")
	}
	return &hcl.EvalContext{
		Variables: map[string]cty.Value{
			"many": cty.ListVal(big), "long": cty.StringVal(strings.Repeat("y", 8<<20)), "secret": cty.StringVal("s").Mark("m"),
			"unknown": cty.UnknownVal(cty.String).Mark("m"),
		},
		Functions: map[string]function.Function{"range": stdlib.RangeFunc, "upper": stdlib.UpperFunc, "length": stdlib.LengthFunc},
	}
}

// eval evaluates an expression as native syntax and as JSON.
func eval(t *testing.T, src string) map[string]func() (cty.Value, hcl.Diagnostics) {
	t.Helper()
	file, ds := hclsyntax.ParseConfig([]byte("a = "+src+"\n"), "a.hcl", hcl.InitialPos)
	if ds.HasErrors() {
		t.Fatalf("%s: %s", src, ds)
	}
	bound.Prepare(file.Body)
	text, err := json.Marshal(map[string]string{"a": "${" + src + "}"})
	if err != nil {
		t.Fatal(err)
	}
	object, ds := hcljson.Parse(text, "a.json")
	if ds.HasErrors() {
		t.Fatalf("%s: %s", src, ds)
	}
	out := map[string]func() (cty.Value, hcl.Diagnostics){}
	for name, body := range map[string]hcl.Body{"native": file.Body, "JSON": object.Body} {
		attrs, ds := body.JustAttributes()
		if ds.HasErrors() {
			t.Fatal(ds)
		}
		out[name] = func() (cty.Value, hcl.Diagnostics) { return bound.Value(attrs["a"].Expr, scope()) }
	}
	return out
}

func TestRunawayExpressions(t *testing.T) {
	for _, src := range []string{
		`[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : 1]]]`,
		`[for a in many : [for b in many : 1 if false]]`,
		`"%{ for a in many }%{ for b in many }x%{ endfor }%{ endfor }"`,
		`[for a in many : "${long}x"]`, `["${long}", "${long}", "${long}"]`,
		`"` + strings.Repeat("${long}", 100) + `"`,
	} {
		for kind, run := range eval(t, src) {
			_, ds := run()
			if len(ds) != 1 || ds[0].Summary != "Expression makes too much" {
				t.Errorf("%s of %.60s: %v", kind, src, ds)
			}
		}
	}
}

// What is prepared has the value that it had.
func TestOrdinaryExpressions(t *testing.T) {
	for _, src := range []string{
		`[for a in range(100) : [for b in range(100) : a * b]]`, `"%{ for a in range(3) }<${a}>%{ endfor }"`, `{ for a in ["x", "y"] : a => upper(a) }`,
		`[for a in ["x", "y"] : [for b in ["z"] : "${a}${b}-${secret}"] if a != "y"]`, `"a${secret}b${unknown}"`, `[for x in range(2) : [for y in [secret] : y]]`,
		`{ for k, v in { a = 1, b = 2 } : v => k... }`, `"${unknown}"`, `length("%{ for a in range(3) }${a}%{ for b in range(2) }x%{ endfor }%{ endfor }") > 1`,
	} {
		plain, ds := hclsyntax.ParseExpression([]byte(src), "a.hcl", hcl.InitialPos)
		if ds.HasErrors() {
			t.Fatal(ds)
		}
		want, wantDiags := plain.Value(scope())
		for kind, run := range eval(t, src) {
			got, gotDiags := run()
			if !got.RawEquals(want) || len(gotDiags) != len(wantDiags) {
				t.Errorf("%s of %s: %#v, %v; want %#v, %v", kind, src, got, gotDiags, want, wantDiags)
			}
		}
	}
}

// Whoever walks over a prepared tree sees every name and call.
func TestPreparedTreesCanBeWalked(t *testing.T) {
	for _, src := range []string{`[for a in many : upper(secret)]`, `"x${upper(secret)}y${many}"`, `[for a in many : secret if many]`} {
		seen := func(prepared bool) (calls int, names []string) {
			file, _ := hclsyntax.ParseConfig([]byte("a = "+src+"\n"), "a.hcl", hcl.InitialPos)
			if prepared {
				bound.Prepare(file.Body)
			}
			attrs, _ := file.Body.JustAttributes()
			body, ok := file.Body.(*hclsyntax.Body)
			if !ok {
				t.Fatal("not native")
			}
			_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
				if _, ok := n.(*hclsyntax.FunctionCallExpr); ok {
					calls++
				}
				return nil
			})
			for _, v := range attrs["a"].Expr.Variables() {
				names = append(names, v.RootName())
			}
			return calls, names
		}
		wantCalls, wantNames := seen(false)
		calls, names := seen(true)
		if calls != wantCalls || strings.Join(names, " ") != strings.Join(wantNames, " ") {
			t.Errorf("%s: %d calls, %v; want %d, %v", src, calls, names, wantCalls, wantNames)
		}
	}
}
