// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/berth-dev/berth/core/config/schema"

// BlockTypes are the types of the blocks that a project may hold.
func BlockTypes() []string {
	var out []string
	for _, b := range schema.Root().Blocks {
		out = append(out, b.Type)
	}
	return out
}
