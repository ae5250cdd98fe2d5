// SPDX-License-Identifier: Apache-2.0

package history

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/berth-dev/berth/core/model"
)

// Fingerprint tells calls under one call id apart.
func Fingerprint(c model.ToolCall) string {
	h := sha256.New()
	for _, s := range []string{string(c.Kind), c.Name, c.Arguments} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
