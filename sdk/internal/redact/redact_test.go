// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
)

func TestEveryFormIsReplaced(t *testing.T) {
	const secret = "p@ss \"w<o>rd\"&/ü"
	var s Set
	remove := s.Add(secret, "short")
	j, err := json.Marshal(map[string]string{"k": secret})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plain": secret, "json": string(j), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64url": base64.RawURLEncoding.EncodeToString([]byte(secret)),
	} {
		got := s.String("before " + text + " after")
		if strings.Contains(got, text) || !strings.Contains(got, Mark) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := s.String("a short text"); got != "a short text" {
		t.Errorf("got %q", got)
	}
	remove()
	remove()
	if got := s.String(secret); got != secret {
		t.Errorf("after its removal: %q", got)
	}
}

func TestSecretsAreCounted(t *testing.T) {
	var s Set
	first := s.Add("the secret")
	second := s.AddValues(map[string]string{"A": "the secret"})
	first()
	if got := s.String("the secret"); got != Mark {
		t.Errorf("got %q", got)
	}
	second()
	if got := s.String("the secret"); got != "the secret" {
		t.Errorf("got %q", got)
	}
	var none *Set
	none.Add("whatever")()
	if got := none.String("whatever"); got != "whatever" {
		t.Errorf("got %q", got)
	}
}

func TestManyGoroutines(t *testing.T) {
	var s Set
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			secret := strings.Repeat(string(rune('a'+i)), 10)
			for range 50 {
				remove := s.Add(secret)
				if got := s.String(secret); got != Mark {
					t.Errorf("got %q", got)
				}
				remove()
			}
		})
	}
	all.Wait()
}
