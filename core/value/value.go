// SPDX-License-Identifier: Apache-2.0

// Package value holds the small values that every layer uses: ids, secrets and their redaction.
package value

import (
	"context"
	"log/slog"
)

// Secret is a text that must not be seen. It prints as a redaction in every form; [Secret.Reveal] is the only way in.
// The zero Secret is absent.
type Secret struct {
	name    string
	resolve func(context.Context) (text string, found bool, err error)
}

// NewSecret makes a secret that is resolved when it is revealed. The name is shown in place of the text.
func NewSecret(name string, resolve func(context.Context) (string, error)) Secret {
	return NewOptionalSecret(name, func(ctx context.Context) (string, bool, error) {
		text, err := resolve(ctx)
		return text, true, err
	})
}

// NewOptionalSecret is NewSecret for a text that may turn out not to exist: what it is for is left out then.
func NewOptionalSecret(name string, resolve func(context.Context) (text string, found bool, err error)) Secret {
	return Secret{name: name, resolve: resolve}
}

// PlainSecret is a text that is known already.
func PlainSecret(text string) Secret {
	return NewSecret("", func(context.Context) (string, error) { return text, nil })
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.resolve == nil }

// Name is where the secret comes from, such as "secret.github"; it may be shown. Empty when that is not known.
func (s Secret) Name() string { return s.name }

// Reveal resolves the text; "" for the zero Secret and for one that does not exist.
func (s Secret) Reveal(ctx context.Context) (string, error) {
	text, _, err := s.Lookup(ctx)
	return text, err
}

// Lookup is Reveal for those who leave out what does not exist: an environment variable, a header, a credential.
func (s Secret) Lookup(ctx context.Context) (text string, found bool, err error) {
	if s.resolve == nil {
		return "", false, nil
	}
	return s.resolve(ctx)
}

const redacted = "(sensitive value)"

// String gives a redaction.
func (s Secret) String() string { return redacted }

// GoString gives a redaction.
func (s Secret) GoString() string { return redacted }

// MarshalText gives a redaction, for JSON too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue gives a redaction.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
