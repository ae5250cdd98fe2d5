// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func TestForms(t *testing.T) {
	const secret = `s3cr&t "value"/+é`
	var s Set
	if got := s.String(secret); got != secret {
		t.Fatalf("an empty set changed %q", got)
	}
	s.Add(secret)
	j, err := json.Marshal(map[string]string{"k": secret})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plain": "a " + secret + " b", "json": string(j),
		"query": "https://x/?k=" + url.QueryEscape(secret), "path": "https://x/" + url.PathEscape(secret),
	} {
		got := s.String(text)
		if !strings.Contains(got, Mark) || strings.Contains(got, "s3cr") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for prefix := range 7 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", prefix) + secret + ":tail"))
		if got := s.String(text); !strings.Contains(got, Mark) {
			t.Errorf("base64 after %d bytes: %s", prefix, got)
		}
	}
}

func TestSecretWithinSecret(t *testing.T) {
	var s Set
	s.Add("abcdef", "abcdef-long", "short", "line one\nline two")
	if got := s.String("x abcdef-long y abcdef z short"); got != "x "+Mark+" y "+Mark+" z short" {
		t.Error(got)
	}
	if got := s.String("log: line two"); got != "log: "+Mark {
		t.Error(got)
	}
	var none *Set
	if none.String("x") != "x" {
		t.Error("a nil set changed a text")
	}
}
