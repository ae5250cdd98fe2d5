// SPDX-License-Identifier: Apache-2.0

// Package redact takes secrets out of texts: as they are, and in the forms in which they usually travel.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// MinLength is the shortest secret that is looked for; shorter ones would hit too much that is harmless.
const MinLength = 6

// Mark stands where a secret was.
const Mark = "(sensitive value)"

// Set is a growing set of secrets. The zero Set is empty and ready; a nil Set changes nothing. It may be used from
// several goroutines.
type Set struct {
	replacer atomic.Pointer[strings.Replacer] // nil = no secrets

	mu    sync.Mutex
	forms map[string]bool // guarded by mu
}

// Add puts secrets into the set.
func (s *Set) Add(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.forms)
	for _, secret := range secrets {
		for _, line := range append(strings.Split(secret, "\n"), secret) {
			s.addLocked(strings.TrimRight(line, "\r"))
		}
	}
	if len(s.forms) == before {
		return
	}
	// The longest form first: a secret that holds another one must go as a whole.
	forms := make([]string, 0, len(s.forms))
	for f := range s.forms {
		forms = append(forms, f)
	}
	sort.Slice(forms, func(i, j int) bool {
		if len(forms[i]) != len(forms[j]) {
			return len(forms[i]) > len(forms[j])
		}
		return forms[i] < forms[j]
	})
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range forms {
		pairs = append(pairs, f, Mark)
	}
	s.replacer.Store(strings.NewReplacer(pairs...))
}

func (s *Set) addLocked(secret string) {
	if len(secret) < MinLength {
		return
	}
	if s.forms == nil {
		s.forms = map[string]bool{}
	}
	add := func(f string) {
		if len(f) >= MinLength {
			s.forms[f] = true
		}
	}
	add(secret)
	add(url.QueryEscape(secret))
	add(url.PathEscape(secret))
	if j, err := json.Marshal(secret); err == nil {
		add(string(j[1 : len(j)-1]))
	}
	// Inside a longer text the encoding depends on where the secret begins: three phases, less the characters that the
	// neighbours share.
	for phase := range 3 {
		padded := append(make([]byte, phase), secret...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			full := enc.EncodeToString(padded)
			from := (phase*8 + 5) / 6
			to := len(padded) * 8 / 6
			if to-from >= 2*MinLength || phase == 0 {
				add(full[from:to])
			}
		}
	}
}

// String gives text without the secrets.
func (s *Set) String(text string) string {
	if s == nil {
		return text
	}
	r := s.replacer.Load()
	if r == nil {
		return text
	}
	return r.Replace(text)
}
