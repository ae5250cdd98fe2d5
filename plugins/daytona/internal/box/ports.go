// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// signed is an address with its end.
type signed struct {
	preview *client.SignedPreview
	renew   time.Time
	expires time.Time
}

// Expose gives a port an address: a public one is the vendor's and carries its token, one for HTTP is the vendor's and
// needs a header, and any other is on this machine, a tunnel through the guest.
func (b *Box) Expose(ctx context.Context, port uint16, protocol string, public bool) (driver.Endpoint, error) {
	if _, err := b.live(ctx); err != nil {
		return driver.Endpoint{}, err
	}
	b.used.Store(true)
	switch {
	case public && protocol == "tcp":
		return driver.Endpoint{}, errs.New(errs.PortUnavailable, "Daytona makes HTTP public, and no other protocol").With("port", strconv.Itoa(int(port)))
	case public:
		return b.publish(ctx, port)
	case protocol == "http", protocol == "https":
		p, err := b.host.Client.Preview(ctx, b.st.ID, int(port))
		if err != nil {
			return driver.Endpoint{}, errs.Wrap(errs.PortUnavailable, "expose a port", err)
		}
		e, err := endpoint(p.URL)
		e.Headers = map[string]string{client.HeaderPreviewToken: p.Token, client.HeaderSkipWarning: "true"}
		return e, err
	}
	at, err := b.tunnels.Open(port, b.Dial)
	if err != nil {
		return driver.Endpoint{}, err
	}
	return driver.Endpoint{Host: at.IP.String(), Port: uint16(at.Port)}, nil
}

// publish gives an address that carries its token. It is the same until four fifths of its time are over.
func (b *Box) publish(ctx context.Context, port uint16) (driver.Endpoint, error) {
	defer b.hold()()
	s := b.previews[port]
	if s == nil || !time.Now().Before(s.renew) {
		now := time.Now()
		p, err := b.host.Client.SignedPreview(ctx, b.st.ID, int(port), b.cfg.PreviewTTL)
		if err != nil {
			return driver.Endpoint{}, errs.Wrap(errs.PortUnavailable, "expose a port", err)
		}
		s = &signed{preview: p, renew: now.Add(b.cfg.PreviewTTL * 4 / 5), expires: now.Add(b.cfg.PreviewTTL)}
		b.previews[port] = s
	}
	e, err := endpoint(s.preview.URL)
	e.Expires = s.expires
	return e, err
}

// Unexpose closes a tunnel and revokes a public address. The vendor's private one stays: without its token nobody gets in.
func (b *Box) Unexpose(ctx context.Context, port uint16) error {
	b.tunnels.Drop(port)
	defer b.hold()()
	s := b.previews[port]
	if s == nil {
		return nil
	}
	if err := b.host.Client.ExpirePreview(ctx, b.st.ID, s.preview); err != nil && !client.NotFound(err) {
		return errs.Wrap(errs.PortUnavailable, "close a port", err)
	}
	delete(b.previews, port)
	return nil
}

// endpoint takes an address apart.
func endpoint(address string) (driver.Endpoint, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return driver.Endpoint{}, errs.New(errs.VendorFailed, "the vendor gave an address of a port that cannot be read")
	}
	e := driver.Endpoint{Host: u.Hostname(), TLS: u.Scheme == "https", Path: u.EscapedPath(), Query: u.RawQuery, Port: 80}
	if e.TLS {
		e.Port = 443
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return e, errs.New(errs.VendorFailed, "the vendor gave an address of a port that cannot be read")
		}
		e.Port = uint16(n)
	}
	return e, nil
}
