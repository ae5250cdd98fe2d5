// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
)

func TestSum(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var c Cache
	for _, content := range []string{"one", "two", "one"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		want := sha256.Sum256([]byte(content))
		for range 2 {
			got, err := c.SumPath(path)
			if err != nil || got != hex.EncodeToString(want[:]) {
				t.Fatalf("%s: %s, %v", content, got, err)
			}
		}
	}
	if _, err := c.SumPath(path + "x"); err == nil {
		t.Error("a missing file has a digest")
	}
}

// The second sum of the same file must not read it again.
func TestCached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c Cache
	first, err := c.SumPath(path)
	if err != nil {
		t.Fatal(err)
	}
	for id := range c.sums {
		c.sums[id] = "remembered"
	}
	if got, err := c.SumPath(path); err != nil || got != "remembered" || first == got {
		t.Errorf("got %s, %v", got, err)
	}
}
