// SPDX-License-Identifier: Apache-2.0

package funcs

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/berth-dev/berth/core/semver"
)

// ParseDuration reads a text such as "1h30m" or "250ms".
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration such as \"30s\", \"10m\" or \"1h30m\"", s)
	case d < 0:
		return 0, fmt.Errorf("%q is a negative duration", s)
	}
	return d, nil
}

// ParseBytes reads a text such as "512MiB" or "1.5GB".
func ParseBytes(s string) (uint64, error) {
	text := strings.TrimSpace(s)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(text[len(digits):])
	factor, ok := map[string]float64{
		"": 1, "B": 1,
		"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	}[unit]
	n, isNumber := new(big.Rat).SetString(digits)
	if !ok || !isNumber || strings.ContainsAny(digits, "eEpP/_xX") || len(digits) > 40 {
		return 0, fmt.Errorf("%q is not a size such as \"512MiB\", \"1.5GB\" or \"4096\"", s)
	}
	n.Mul(n, new(big.Rat).SetFloat64(factor))
	if n.Sign() < 0 {
		return 0, fmt.Errorf("%q is a negative size", s)
	}
	whole := new(big.Int).Quo(n.Num(), n.Denom())
	if !whole.IsUint64() || whole.Uint64() > math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return whole.Uint64(), nil
}

var durationFunc = function.New(&function.Spec{
	Description: "Gives the seconds of a duration such as \"1h30m\".",
	Params:      []function.Parameter{text("duration")},
	Type:        function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		d, err := ParseDuration(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		ns := cty.NumberIntVal(int64(d))
		return ns.Divide(cty.NumberIntVal(int64(time.Second))), nil
	},
})

var bytesFunc = function.New(&function.Spec{
	Description: "Gives the number of bytes of a size such as \"512MiB\".",
	Params:      []function.Parameter{text("size")},
	Type:        function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		n, err := ParseBytes(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.NumberUIntVal(n), nil
	},
})

var semverFunc = function.New(&function.Spec{
	Description: "Says whether a version meets a constraint such as \"~> 1.2\".",
	Params:      []function.Parameter{text("version"), text("constraint")},
	Type:        function.StaticReturnType(cty.Bool),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		v, err := semver.Parse(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		c, err := semver.ParseConstraint(args[1].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(1, err)
		}
		return cty.BoolVal(c.Allows(v)), nil
	},
})
