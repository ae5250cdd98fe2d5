// SPDX-License-Identifier: Apache-2.0

//go:build !berth_guest

package schema

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// The units that [Attribute.Unit] knows.
const (
	UnitBytes    = "bytes"
	UnitDuration = "duration"
)

var bytesPattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$`)

// ParseUnit reads a text such as "512MiB" or "30s" and gives bytes or seconds. A number without a unit is bytes or
// seconds already.
func ParseUnit(unit, text string) (float64, error) {
	switch unit {
	case UnitBytes:
		return parseBytes(text)
	case UnitDuration:
		if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f, nil
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errs.New(errs.ConfigInvalid, "%q is not a duration such as \"30s\", \"5m\" or \"1h30m\"", text)
		}
		return d.Seconds(), nil
	default:
		return 0, errs.New(errs.ConfigInvalid, "%q is not a unit", unit)
	}
}

func parseBytes(text string) (float64, error) {
	bad := errs.New(errs.ConfigInvalid, "%q is not a size such as \"64KiB\", \"512MiB\" or \"2GB\"", text)
	m := bytesPattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return 0, bad
	}
	factor, ok := map[string]float64{
		"": 1, "b": 1,
		"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
		"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
		"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
		"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	}[strings.ToLower(m[2])]
	if !ok {
		return 0, bad
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, bad
	}
	if n *= factor; n != math.Trunc(n) || n > 1<<63 {
		return 0, errs.New(errs.ConfigInvalid, "%q is not a whole number of bytes", text)
	}
	return n, nil
}
