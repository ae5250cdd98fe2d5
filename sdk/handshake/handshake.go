// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"crypto/rand"
	"encoding/hex"
	"os"

	"github.com/hashicorp/go-plugin"

	"github.com/berth-dev/berth/sdk/errs"
)

// ProtocolVersion is the version of the driver protocol: it changes only when the protocol breaks.
const ProtocolVersion = 1

// PluginName is the one entry of the plugin set.
const PluginName = "driver"

// MaxMessageBytes bounds every gRPC message, in both directions and on both sides.
const MaxMessageBytes = 16 << 20

// The environment of a driver process, beside what go-plugin itself passes.
const (
	EnvCookie = "BERTH_DRIVER_COOKIE" // says that berth started the process; not a secret
	EnvKey    = "BERTH_DRIVER_KEY"    // the [Key], in hexadecimal
	EnvWait   = "BERTH_DRIVER_WAIT"   // "1": print the process id and wait for a debugger before serving
)

// CookieValue is the value of [EnvCookie].
const CookieValue = "d1f0a9b0c3ce4a0d8f6e3b5c7a2914e6"

// Config is go-plugin's part of the agreement.
func Config() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  ProtocolVersion,
		MagicCookieKey:   EnvCookie,
		MagicCookieValue: CookieValue,
	}
}

// Key is the secret that core and driver share for the life of one driver process.
type Key [32]byte

// NewKey makes a random key.
func NewKey() Key {
	var k Key
	rand.Read(k[:]) // crypto/rand.Read never fails: it ends the program instead
	return k
}

// ParseKey reads what [Key.Encode] wrote.
func ParseKey(s string) (Key, error) {
	var k Key
	if hex.DecodedLen(len(s)) != len(k) {
		return Key{}, errs.New(errs.DriverStartFailed, "%s has %d characters, not %d", EnvKey, len(s), hex.EncodedLen(len(k)))
	}
	if _, err := hex.Decode(k[:], []byte(s)); err != nil {
		return Key{}, errs.New(errs.DriverStartFailed, "%s is not hexadecimal", EnvKey)
	}
	return k, nil
}

// Encode gives the text for [EnvKey].
func (k Key) Encode() string { return hex.EncodeToString(k[:]) }

// String hides the key.
func (k Key) String() string { return "(key)" }

// GoString hides the key.
func (k Key) GoString() string { return "(key)" }

// KeyFromEnvironment takes the key out of the environment of this process, so that no child inherits it.
func KeyFromEnvironment() (Key, error) {
	s, ok := os.LookupEnv(EnvKey)
	if !ok {
		return Key{}, errs.New(errs.DriverStartFailed, "%s is not set", EnvKey).
			WithHint("a driver is started by berth, not by hand")
	}
	if err := os.Unsetenv(EnvKey); err != nil {
		return Key{}, errs.Wrap(errs.DriverStartFailed, "clear "+EnvKey, err)
	}
	return ParseKey(s)
}
