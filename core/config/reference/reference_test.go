// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/berth-dev/berth/core/config/reference"
)

var update = flag.Bool("update", false, "write docs/reference.md")

const file = "../../../docs/reference.md"

func TestReferenceIsFresh(t *testing.T) {
	var b bytes.Buffer
	if err := reference.Write(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("docs/reference.md is stale, run make generate (%v)", err)
	}
}
