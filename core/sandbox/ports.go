// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/portforward"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// expose gives the sandbox's exposed_ports addresses. A driver that gives none but connects to ports inside gets them on
// this machine's loopback address, which lives as long as the session.
func (s *Session) expose(ctx context.Context) error {
	for _, p := range s.cfg.Spec.Ports {
		forwards := len(s.forwards)
		e, err := s.endpoint(ctx, p)
		if err != nil {
			return fmt.Errorf("exposed_ports: port %d: %w", p.Port, err)
		}
		s.ports = append(s.ports, event.Port{Port: p.Port, URL: address(p.Protocol, e), Here: len(s.forwards) > forwards})
	}
	return nil
}

func (s *Session) endpoint(ctx context.Context, p spec.Port) (driver.Endpoint, error) {
	exposes := has(s.cfg.Driver, driver.PortHTTP) || has(s.cfg.Driver, driver.PortTCP)
	if exposer, ok := s.Sandbox.(driver.PortExposer); ok && exposes {
		return exposer.Expose(ctx, p.Port, p.Protocol, p.Public)
	}
	dialer, ok := s.Sandbox.(driver.PortForwarder)
	switch {
	case !ok || !has(s.cfg.Driver, driver.PortForward):
		return driver.Endpoint{}, errs.New(errs.Unsupported, "driver %q cannot make ports reachable", s.cfg.DriverName)
	case p.Public:
		return driver.Endpoint{}, errs.New(errs.Unsupported, "driver %q cannot make ports public", s.cfg.DriverName).
			WithHint("leave public out: the port is then reachable on this machine")
	}
	f, err := portforward.Listen(ctx, dialer, "127.0.0.1:0", p.Port, func(err error) { s.cfg.Emit(event.Warning{Message: err.Error()}) })
	if err != nil {
		return driver.Endpoint{}, err
	}
	s.forwards = append(s.forwards, f)
	at, err := netip.ParseAddrPort(f.Addr().String())
	if err != nil {
		return driver.Endpoint{}, err
	}
	return driver.Endpoint{Host: at.Addr().String(), Port: at.Port()}, nil
}

// unexpose ends the forwards of this process.
func (s *Session) unexpose() {
	for _, f := range s.forwards {
		f.Close()
	}
	s.forwards = nil
}

// address is an endpoint as a URL. Headers are not in it: they may be secret.
func address(protocol string, e driver.Endpoint) string {
	scheme := map[string]string{"": "http", "https": "http"}[protocol]
	if scheme == "" {
		scheme = protocol
	}
	if scheme != "tcp" && (e.TLS || protocol == "https") {
		scheme += "s"
	}
	u := url.URL{Scheme: scheme, Host: e.Host, Path: e.Path, RawQuery: e.Query}
	if e.Port != 0 {
		u.Host = net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
	}
	return u.String()
}

// Ports are the exposed ports with their addresses.
func (s *Session) Ports() []event.Port { return slices.Clone(s.ports) }
