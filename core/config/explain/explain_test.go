// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/config/explain"
	"github.com/berth-dev/berth/core/diag"
)

func TestEveryCodeIsExplained(t *testing.T) {
	src, err := os.ReadFile("../../diag/code.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`= ([0-9]{4})`).FindAllSubmatch(src, -1) {
		want = append(want, string(m[1]))
	}
	var got []string
	for _, x := range explain.All() {
		got = append(got, strings.TrimPrefix(x.Code.String(), "BERTH"))
		if x.Title == "" || x.Meaning == "" {
			t.Errorf("%s: no title or no meaning", x.Code)
		}
		if len(x.Wrong) > 0 != (len(x.Right) > 0) {
			t.Errorf("%s: one example without the other", x.Code)
		}
		for _, f := range append(slices.Clone(x.Wrong), x.Right...) {
			if f.Name == "" || strings.Contains(f.Content, "\n=== ") {
				t.Errorf("%s: file %q", x.Code, f.Name)
			}
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("codes in order: want\n%v\ngot\n%v", want, got)
	}
}

func TestText(t *testing.T) {
	code, ok := diag.ParseCode("berth1104")
	if !ok {
		t.Fatal("not a code")
	}
	x, ok := explain.Find(code)
	if !ok {
		t.Fatal("not found")
	}
	text := x.String()
	for _, part := range []string{
		"BERTH1104: too few or too many labels\n\nThe labels", "\nWrong:\n\n  # main.berth.hcl\n  manifest \"data\" {\n",
		"\nRight:\n", `    mount "s3" "data" {`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	for _, s := range []string{"BERTH99999", "x", "", "-101", "11011"} {
		if c, ok := diag.ParseCode(s); ok {
			t.Errorf("%q is the code %s", s, c)
		}
	}
	if _, ok := explain.Find(9999); ok {
		t.Error("a code that does not exist is explained")
	}
}
