// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/secret"
	"github.com/berth-dev/berth/core/diag"
)

// declareSecrets reads the secret blocks of a file, so that everything else may name them.
func (l *loader) declareSecrets(in hcl.Body) {
	content, _, _ := in.PartialContent(&hcl.BodySchema{
		Blocks: []hcl.BlockHeaderSchema{{Type: "secret", LabelNames: []string{"name"}}},
	})
	for _, b := range content.Blocks {
		s := &secret.Secret{
			Key: "secret." + b.Labels[0], Header: b.DefRange, Source: b.DefRange,
			Dir: filepath.Dir(b.DefRange.Filename), Format: "text", Trim: true,
		}
		var sources []string
		from := func(name string, read func(*hcl.Attribute)) func(*hcl.Attribute) {
			return func(a *hcl.Attribute) {
				sources = append(sources, name)
				s.Source = a.Range
				read(a)
			}
		}
		l.read(b.Body, b.DefRange, body{attrs: map[string]func(*hcl.Attribute){
			"env":         from("env", l.text("", &s.Env)),
			"file":        from("file", l.path("", &s.File)),
			"command":     from("command", l.list("", &s.Command)),
			"format":      l.text("", &s.Format, "text", "json", "dotenv"),
			"trim":        l.truth("", &s.Trim),
			"optional":    l.truth("", &s.Optional),
			"ttl":         l.duration("", &s.TTL),
			"description": l.text("", new(string)),
		}})
		if len(sources) != 1 {
			slices.Sort(sources)
			l.add(diag.Errorf(diag.ExactlyOneOf, b.DefRange, "secret %q needs exactly one source", b.Labels[0]).
				Labelf(`write one of "env", "file" and "command"`))
		}
		l.secrets[b.Labels[0]] = s
	}
}

// resolve fetches a secret as text.
func (l *loader) resolve(s *secret.Secret) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		v, err := l.resolver.Value(ctx, s)
		if err != nil {
			return "", err
		}
		v, _ = v.UnmarkDeep()
		return asText(v)
	}
}
