// SPDX-License-Identifier: Apache-2.0

// Package redact replaces secrets in texts that leave the driver process.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
)

// MinLength is the length below which a secret is not replaced: it would blot out ordinary text.
const MinLength = 6

// Mark stands where a secret was.
const Mark = "(sensitive value)"

// Set is a set of secrets. The zero value is empty and ready; a nil *Set replaces nothing.
type Set struct {
	mu       sync.RWMutex
	count    map[string]int    // of each secret
	replacer *strings.Replacer // of every form of every secret; nil = to be made
}

// Add puts secrets into the set until the returned function is called.
func (s *Set) Add(secrets ...string) (remove func()) {
	var added []string
	for _, v := range secrets {
		if len(v) >= MinLength {
			added = append(added, v)
		}
	}
	if s == nil || len(added) == 0 {
		return func() {}
	}
	s.change(added, 1)
	var once sync.Once
	return func() { once.Do(func() { s.change(added, -1) }) }
}

// AddValues is Add for the values of a map.
func (s *Set) AddValues(m map[string]string) (remove func()) {
	values := make([]string, 0, len(m))
	for _, v := range m {
		values = append(values, v)
	}
	return s.Add(values...)
}

func (s *Set) change(secrets []string, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]int{}
	}
	for _, v := range secrets {
		before := s.count[v]
		if s.count[v] += by; s.count[v] <= 0 {
			delete(s.count, v)
		}
		if (before == 0) != (s.count[v] == 0) {
			s.replacer = nil
		}
	}
}

// String replaces every secret in text, also where it is written in base64, as part of a URL, or as JSON.
func (s *Set) String(text string) string {
	if s == nil || len(text) < MinLength {
		return text
	}
	s.mu.RLock()
	r, empty := s.replacer, len(s.count) == 0
	s.mu.RUnlock()
	if empty {
		return text
	}
	if r == nil {
		r = s.build()
	}
	return r.Replace(text)
}

func (s *Set) build() *strings.Replacer {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	var pairs []string
	add := func(form string) {
		if len(form) >= MinLength && !seen[form] {
			seen[form] = true
			pairs = append(pairs, form, Mark)
		}
	}
	for v := range s.count {
		add(v)
		b, err := json.Marshal(v)
		if err == nil {
			add(string(b[1 : len(b)-1]))
			// hclog does not escape for HTML.
			plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b[1 : len(b)-1]))
			add(plain)
		}
		add(url.QueryEscape(v))
		add(url.PathEscape(v))
		add(base64.StdEncoding.EncodeToString([]byte(v)))
		add(base64.RawStdEncoding.EncodeToString([]byte(v)))
		add(base64.URLEncoding.EncodeToString([]byte(v)))
		add(base64.RawURLEncoding.EncodeToString([]byte(v)))
	}
	s.replacer = strings.NewReplacer(pairs...)
	return s.replacer
}
