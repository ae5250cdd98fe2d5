// SPDX-License-Identifier: Apache-2.0

package embed_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/embed"
)

func TestGuest(t *testing.T) {
	_, err := embed.Guest("plan9", "mips")
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.Unsupported || !strings.Contains(e.Hint, "make guest") {
		t.Errorf("got %v", err)
	}
	want, err := os.ReadFile("bin/berth-guest-linux-amd64")
	if err != nil {
		t.Skip("no guest was built: make guest")
	}
	got, err := embed.Guest("linux", "amd64")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}
