// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/spec"
)

func has(list []string, s string) bool {
	return slices.Contains(list, s)
}

func posOf(e hcl.Expression) spec.Pos { return eval.Pos(e.Range()) }
