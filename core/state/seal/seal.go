// SPDX-License-Identifier: Apache-2.0

// Package seal keeps what is stored from being changed by others. A sealed text is JSON that anyone may read, with a MAC
// by a key of the user; it hides nothing, so nothing secret belongs into it.
//
// The key is a file in the user's state directory that only the user can read, made when it is first needed. Whoever
// loses it keeps all records and cannot use what is sealed any more: sessions are then only good for being removed.
package seal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/sdk/errs"
)

// version is that of the envelope.
const version = 1

// Key seals and opens.
type Key struct {
	secret []byte
	id     string // tells it from others and says nothing about it
	path   string
}

// envelope is a sealed text.
type envelope struct {
	Version int             `json:"version"`
	Key     string          `json:"key"`
	MAC     []byte          `json:"mac"`
	Body    json.RawMessage `json:"body"`
}

// Load reads the key of a file, and makes it when there is none.
func Load(path string) (*Key, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return nil, fmt.Errorf("make the key of session states: %w", err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of session states: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("the key of session states: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, errs.New(errs.PermissionDenied, "the key of session states, %s, can be read by others (mode %o)", path, info.Mode().Perm()).
			WithHint("chmod 600 %s; if somebody may have read it, remove it, and the sessions that were made with it", path)
	}
	secret, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil || len(secret) != sha256.Size {
		return nil, errs.New(errs.ConfigInvalid, "%s does not hold a key of session states", path).
			WithHint("restore it from a copy; or remove it: a new one is made, and sessions of the old one can only be removed")
	}
	return newKey(secret, path), nil
}

func newKey(secret []byte, path string) *Key {
	sum := sha256.Sum256(append([]byte("berth key id\x00"), secret...))
	return &Key{secret: secret, id: hex.EncodeToString(sum[:4]), path: path}
}

// makeKey makes the file, whole or not at all; another process may do the same now.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	secret := make([]byte, sha256.Size)
	rand.Read(secret)                                     // crypto/rand.Read never fails: it ends the program instead
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(secret))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// mac is over what it is for and the body, exactly as they are written.
func (k *Key) mac(purpose string, body []byte) []byte {
	m := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(m, "berth seal %d\x00%d\x00%s", version, len(purpose), purpose)
	m.Write(body)
	return m.Sum(nil)
}

// Seal seals a value. The purpose, such as "session 01ab", keeps it from being put into another's place.
func (k *Key) Seal(purpose string, value any) ([]byte, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{Version: version, Key: k.id, MAC: k.mac(purpose, body), Body: body})
}

// Open reads a value that was sealed for this purpose, with this key, and not changed since.
func (k *Key) Open(purpose string, sealed []byte, into any) error {
	e, err := read(purpose, sealed)
	if err != nil {
		return err
	}
	if e.Key != k.id {
		return errs.New(errs.PermissionDenied, "the state of %s was sealed with key %s, and this user's key, %s, is another (%s)", purpose, e.Key, k.path, k.id).
			WithHint("it was made by another user, or the key was lost: restore it from a copy, or remove the session and make a new one")
	}
	if !hmac.Equal(e.MAC, k.mac(purpose, e.Body)) {
		return errs.New(errs.PermissionDenied, "the state of %s was changed since berth sealed it", purpose).
			WithHint("it is not used: whoever changed it could lead berth to another sandbox. Remove the session and make a new one")
	}
	return decode(purpose, e.Body, into)
}

// Peek reads a sealed value for showing it, without asking who wrote it.
func Peek(purpose string, sealed []byte, into any) error {
	e, err := read(purpose, sealed)
	if err != nil {
		return err
	}
	return decode(purpose, e.Body, into)
}

func decode(purpose string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the state of %s: %w", purpose, err)
	}
	return nil
}

func read(purpose string, sealed []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(sealed, &e); err != nil || e.Version < 1 {
		return e, errs.New(errs.ConfigInvalid, "the state of %s is none that berth has sealed", purpose).
			WithHint("remove the session and make a new one")
	}
	if e.Version > version {
		return e, errs.New(errs.VersionMismatch, "the state of %s has version %d, and this berth knows up to %d", purpose, e.Version, version).
			WithHint("a newer berth has written it: use that one")
	}
	return e, nil
}
