// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Expose gives a port an address: the published one if there is one, else a tunnel through the guest, which any port
// can have at any time.
func (s *Guest) Expose(ctx context.Context, port uint16, _ string, public bool) (driver.Endpoint, error) {
	if _, err := s.live(ctx); err != nil {
		return driver.Endpoint{}, err
	}
	e, err := s.published(ctx, port, public)
	if err != nil || e.Port != 0 && (s.e.Local || !loopback(e.Host)) {
		if err == nil && public && loopback(e.Host) {
			err = notPublic(port)
		}
		return e, err
	}
	if public {
		return e, notPublic(port)
	}
	at, err := s.tunnels.Open(port, s.Dial)
	if err != nil {
		return e, err
	}
	return driver.Endpoint{Host: at.IP.String(), Port: uint16(at.Port)}, nil
}

// Unexpose closes a tunnel. A published port stays as long as the container.
func (s *Guest) Unexpose(_ context.Context, port uint16) error {
	s.tunnels.Drop(port)
	return nil
}

func notPublic(port uint16) error {
	return errs.New(errs.PortUnavailable, "port %d is only to be reached from the engine's machine", port).With("port", strconv.Itoa(int(port))).
		WithHint("name the port in the sandbox block, and set publish_address to an address that others reach")
}

func loopback(host string) bool { return net.ParseIP(host).IsLoopback() }

// published is where the engine publishes a port, for others or for this machine; zero when it does not. It changes each
// time the container starts.
func (b *Box) published(ctx context.Context, port uint16, public bool) (driver.Endpoint, error) {
	if !slices.Contains(b.record.Ports, port) {
		return driver.Endpoint{}, nil
	}
	got, err := b.e.ContainerInspect(ctx, b.st.Container, client.ContainerInspectOptions{})
	if err != nil {
		return driver.Endpoint{}, engine.Error(errs.PortUnavailable, "look up the published port", err)
	}
	p, ok := network.PortFrom(port, network.TCP)
	if !ok || got.Container.NetworkSettings == nil {
		return driver.Endpoint{}, nil
	}
	for _, at := range got.Container.NetworkSettings.Ports[p] {
		n, err := strconv.ParseUint(at.HostPort, 10, 16)
		if err != nil || !at.HostIP.IsValid() {
			continue
		}
		host := at.HostIP
		if host.IsUnspecified() && public {
			return driver.Endpoint{Host: b.outward(ctx), Port: uint16(n)}, nil
		}
		if host.IsUnspecified() {
			return driver.Endpoint{Host: "127.0.0.1", Port: uint16(n)}, nil
		}
		return driver.Endpoint{Host: host.String(), Port: uint16(n)}, nil
	}
	return driver.Endpoint{}, nil
}

// outward is the address of the engine's machine that others use: by which it reaches them.
func (b *Box) outward(ctx context.Context) string {
	const loop = "127.0.0.1"
	if !b.e.Local {
		return loop
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp", "192.0.2.1:9") // an address of nobody's; nothing is sent
	if err != nil {
		return loop
	}
	defer conn.Close() // nothing is under way
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return loop
	}
	return host
}
