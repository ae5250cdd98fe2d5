// SPDX-License-Identifier: Apache-2.0

package tool_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

func TestDecodeArguments(t *testing.T) {
	type args struct {
		Cmd   string   `json:"cmd"`
		N     *int64   `json:"n"`
		TTY   *bool    `json:"tty"`
		Names []string `json:"names"`
	}
	for text, want := range map[string]string{
		``:                            "",
		`{"cmd": "x", "unknown": 1}`:  "",
		`{"n": null, "tty": true}`:    "",
		`{"cmd": 1}`:                  `argument "cmd" is a number, a string is needed`,
		`{"n": "10"}`:                 `argument "n" is a string, a whole number is needed`,
		`{"n": 1.5}`:                  `argument "n" is a number 1.5, a whole number is needed`,
		`{"tty": "yes"}`:              `argument "tty" is a string, a boolean is needed`,
		`{"names": "a"}`:              `an array is needed`,
		`[1]`:                         `the arguments are an array, a JSON object is needed`,
		`{"cmd": `:                    "not valid JSON",
		`{"cmd": "x"} {"cmd": "y"}`:   "something follows",
		`{"cmd": "unterminated`:       "not valid JSON",
		"{\"cmd\": \"raw\nnewline\"}": "not valid JSON",
	} {
		e := tool.DecodeArguments(text, &args{})
		switch {
		case want == "" && e != nil:
			t.Errorf("%s: %v", text, e)
		case want != "" && (e == nil || !strings.Contains(e.Message, want)):
			t.Errorf("%s: got %+v, want %q", text, e, want)
		case want != "" && (!e.Retryable || e.Code != tool.CodeArguments):
			t.Errorf("%s: %+v", text, e)
		}
	}
}

func TestTruncate(t *testing.T) {
	if got := tool.Truncate("abc", "def", 0, 1, 2); got.Text != "abcdef" || got.OriginalTokens != 0 {
		t.Errorf("within the budget: %+v", got)
	}
	long := strings.Repeat("0123456789\n", 1000)
	got := tool.Truncate(long, "", 0, 1000, 100)
	if len(got.Text) > 400 || !strings.HasPrefix(got.Text, "Total output lines: 1000\n\n0123456789\n") ||
		!strings.HasSuffix(got.Text, "0123456789\n") || !strings.Contains(got.Text, "tokens truncated…") || got.OriginalTokens != 2750 {
		t.Errorf("%+v", got)
	}
	// What was dropped before counts too.
	got = tool.Truncate("head", "tail", 1<<30, 5, 1000)
	if !strings.Contains(got.Text, "head\n…268435456 tokens truncated…\ntail") {
		t.Errorf("%+v", got)
	}
	// A tiny budget still says that something is gone.
	if got = tool.Truncate(long, "", 0, 1000, 1); !strings.Contains(got.Text, "truncated") {
		t.Errorf("%+v", got)
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add("日本語日本語日本語", "ééé", uint64(0), 3)
	f.Add(strings.Repeat("x", 500), "", uint64(7), 20)
	f.Fuzz(func(t *testing.T, head, tail string, dropped uint64, max int) {
		if max < 1 || max > 1000 || dropped > 1<<60 || !utf8.ValidString(head+tail) || len(head)+len(tail) > 1<<16 {
			return
		}
		got := tool.Truncate(head, tail, dropped, 1, max)
		if !utf8.ValidString(got.Text) {
			t.Fatalf("a character was cut: %q", got.Text)
		}
		if limit := max*4 + 80; len(got.Text) > limit {
			t.Fatalf("%d bytes, more than %d", len(got.Text), limit)
		}
	})
}

func TestFailed(t *testing.T) {
	r := tool.Failed(errs.New(errs.ExecNotFound, "no such program").WithHint("install it"))
	if r.Error.Code != "exec_not_found" || r.Error.Hint != "install it" || r.Error.Retryable {
		t.Errorf("%+v", r.Error)
	}
	if r := tool.Failed(errs.New(errs.SandboxNotReady, "paused")); !r.Error.Retryable {
		t.Errorf("%+v", r.Error)
	}
	if r := tool.Failed(errors.New("boom")); r.Error.Code != "internal" {
		t.Errorf("%+v", r.Error)
	}
}
