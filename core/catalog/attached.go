// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/rpc"
)

// ParseAttached reads the value of [handshake.EnvReattach]; empty = none.
func ParseAttached(text string) (map[string]handshake.Reattach, error) {
	if text == "" {
		return nil, nil
	}
	var out map[string]handshake.Reattach
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	err := dec.Decode(&out)
	if err == nil && dec.Decode(new(any)) != io.EOF {
		err = fmt.Errorf("something follows the object")
	}
	for source, at := range out {
		namespace, name, _ := strings.Cut(source, "/")
		switch {
		case err != nil:
		case !goodName().MatchString(namespace) || !goodName().MatchString(name):
			err = fmt.Errorf("%q is no driver: it is namespace/name", source)
		case at.Network != "unix":
			err = fmt.Errorf("%s has network %q: it is unix", source, at.Network)
		case !filepath.IsAbs(at.Addr):
			err = fmt.Errorf("%s has addr %q: it is an absolute path", source, at.Addr)
		case !filepath.IsAbs(at.KeyFile):
			err = fmt.Errorf("%s has key_file %q: it is an absolute path", source, at.KeyFile)
		}
	}
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "%s cannot be read: %v", handshake.EnvReattach, err).
			WithHint("set it to the line that the driver's command serve prints, or unset it")
	}
	return out, nil
}

// askAttached asks a driver that runs already. Nothing is kept: the next build may say something else.
func askAttached(ctx context.Context, b Binary) (driver.Description, error) {
	at, err := launch.Attach(ctx, b.Name, *b.Reattach, rpc.DialOptions()...)
	if err != nil {
		return driver.Description{}, err
	}
	defer at.Close()
	d, err := rpc.New(at.Conn(), rpc.Config{}).Load(ctx)
	if err == nil && d.Name != b.Name {
		err = errs.New(errs.DriverIncompatible, "the driver at %s calls itself %q, not %q", b.Path, d.Name, b.Name).
			WithHint("correct the name in %s, or ask for driver %q", handshake.EnvReattach, d.Name)
	}
	return d, err
}
