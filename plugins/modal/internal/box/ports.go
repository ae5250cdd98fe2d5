// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// tunnelTime bounds the wait for the addresses of a new sandbox.
const tunnelTime = 30 * time.Second

// Expose gives a port's address. HTTP that is not public is behind a token, for any port; everything else is a tunnel,
// which a port has from the sandbox's creation on or never.
func (b *Box) Expose(ctx context.Context, port uint16, protocol string, public bool) (driver.Endpoint, error) {
	if _, err := b.live(ctx); err != nil {
		return driver.Endpoint{}, err
	}
	if protocol == "http" && !public {
		return b.connectToken(ctx, port)
	}
	if !slices.Contains(b.record.Ports, port) {
		return driver.Endpoint{}, errs.New(errs.PortNotConfigured, "port %d was not asked for when the sandbox was made", port).
			With("port", strconv.Itoa(int(port))).WithHint("name it in exposed_ports, and make a new sandbox")
	}
	all, err := b.sb.Tunnels(ctx, tunnelTime, nil)
	if err != nil {
		return driver.Endpoint{}, vendor.Error(ctx, errs.PortUnavailable, "look up the port's address", err)
	}
	t := all[int(port)]
	if t == nil {
		return driver.Endpoint{}, errs.New(errs.PortUnavailable, "Modal knows no address of port %d", port).With("port", strconv.Itoa(int(port)))
	}
	if host, n, err := t.TCPSocket(); err == nil && protocol == "tcp" {
		return driver.Endpoint{Host: host, Port: uint16(n)}, nil
	}
	return driver.Endpoint{Host: t.Host, Port: uint16(t.Port), TLS: true}, nil
}

func (b *Box) connectToken(ctx context.Context, port uint16) (driver.Endpoint, error) {
	t, err := b.sb.CreateConnectToken(ctx, &modal.SandboxCreateConnectTokenParams{Port: int(port)})
	if err != nil {
		return driver.Endpoint{}, vendor.Error(ctx, errs.PortUnavailable, "make a token for the port", err)
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return driver.Endpoint{}, errs.New(errs.PortUnavailable, "Modal gives the address %q, which cannot be read", t.URL)
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if u.Port() == "" {
		n, err = 443, nil
	}
	if err != nil || u.Hostname() == "" {
		return driver.Endpoint{}, errs.New(errs.PortUnavailable, "Modal gives the address %q, which cannot be read", t.URL)
	}
	return driver.Endpoint{
		Host: u.Hostname(), Port: uint16(n), TLS: true, Path: u.Path, Query: u.RawQuery, Headers: map[string]string{"Authorization": "Bearer " + t.Token},
	}, nil
}

// Unexpose does nothing: tunnels and tokens live as long as the sandbox.
func (b *Box) Unexpose(context.Context, uint16) error { return nil }
