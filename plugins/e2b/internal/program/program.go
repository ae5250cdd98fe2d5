// SPDX-License-Identifier: Apache-2.0

// Package program gives the guest in the form in which it is sent to sandboxes.
package program

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"runtime"
	"sync"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/embed"
)

const (
	// Dir is where the guest lies inside. A template may hold it already, under the name that names its content.
	Dir = "/opt/berth"
	// EnvGuest names a guest program for this machine's processor to use instead of the one that the driver carries.
	EnvGuest = "BERTH_GUEST"
)

// Program is a guest that is ready to be sent.
type Program struct {
	Path   string // inside
	Packed []byte // with gzip
}

var (
	programs = map[string]*Program{} // by processor
	mu       sync.Mutex
)

// For gives the guest for a processor.
func For(arch string) (*Program, error) {
	mu.Lock()
	defer mu.Unlock()
	if p := programs[arch]; p != nil {
		return p, nil
	}
	b, err := embed.Guest("linux", arch)
	if file := os.Getenv(EnvGuest); file != "" && arch == runtime.GOARCH {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, errs.Wrap(errs.StartFailed, "read the guest", err)
	}
	sum := sha256.Sum256(b)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(b)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, errs.Wrap(errs.Internal, "pack the guest", err)
	}
	p := &Program{Path: path.Join(Dir, "guest-"+hex.EncodeToString(sum[:8])), Packed: packed.Bytes()}
	programs[arch] = p
	return p, nil
}
