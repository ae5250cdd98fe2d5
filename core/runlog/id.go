// SPDX-License-Identifier: Apache-2.0

package runlog

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

var idCoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID makes a run id: a time and random bits, in an alphabet without look-alikes. Ids sort by time.
func NewID(now time.Time) string {
	var b [15]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16)
	rand.Read(b[6:])
	return idCoding.EncodeToString(b[:])
}

// Dir is the directory of a run below a base directory, usually .berth/runs. It refuses ids that are no single, plain
// path element.
func Dir(base, runID string) (string, error) {
	if !goodID(runID) {
		return "", fmt.Errorf("run id %q: an id is 1 to 128 letters, digits, dots, dashes and underscores and begins with a letter or digit", runID)
	}
	return filepath.Join(base, runID), nil
}

func goodID(s string) bool {
	return 0 < len(s) && len(s) <= 128 && strings.Trim(s[:1], "._-") != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}
