// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"strconv"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Expose gives a port an address: for HTTP the service's own, with the token that it takes in a header, for anything else
// one on this machine.
func (b *Box) Expose(ctx context.Context, port uint16, protocol string, public bool) (driver.Endpoint, error) {
	if _, err := b.live(ctx); err != nil {
		return driver.Endpoint{}, err
	}
	if public && !b.record.Public {
		return driver.Endpoint{}, errs.New(errs.PortUnavailable, "the ports of this sandbox are reached with a token only").With("port", strconv.Itoa(int(port))).
			WithHint("set public_traffic = true in the sandbox block's config")
	}
	if protocol != "http" && !public {
		at, err := b.tunnels.Open(port, b.Dial)
		if err != nil {
			return driver.Endpoint{}, err
		}
		return driver.Endpoint{Host: at.IP.String(), Port: uint16(at.Port)}, nil
	}
	a, err := b.remote.Address(port, b.record.Public)
	if err != nil {
		return driver.Endpoint{}, err
	}
	e := driver.Endpoint{Host: a.URL.Hostname(), TLS: a.URL.Scheme == "https", Path: a.URL.Path, Headers: a.Headers, Port: 80}
	if e.TLS {
		e.Port = 443
	}
	if n, err := strconv.ParseUint(a.URL.Port(), 10, 16); err == nil {
		e.Port = uint16(n)
	}
	return e, nil
}

// Unexpose closes the address on this machine. The service's own is there as long as the sandbox.
func (b *Box) Unexpose(_ context.Context, port uint16) error {
	b.tunnels.Drop(port)
	return nil
}
