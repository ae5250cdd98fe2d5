// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugins/modal/internal/fake/tunnel"
)

// tunnelData is how clients are told of tunnels. The answer to a create leaves out those that are also without TLS.
func tunnelData(list []tunnel.Tunnel, encryptedOnly bool) []*pb.TunnelData {
	var out []*pb.TunnelData
	for _, x := range list {
		d := pb.TunnelData_builder{Host: tunnel.Host, Port: x.TLS, ContainerPort: x.Inside}
		if x.Plain != 0 {
			if encryptedOnly {
				continue
			}
			host, port := tunnel.Host, x.Plain
			d.UnencryptedHost, d.UnencryptedPort = &host, &port
		}
		out = append(out, d.Build())
	}
	return out
}

func (c *controlPlane) tunnelsOf(r *pb.SandboxGetTunnelsRequest, v1 bool) (*pb.SandboxGetTunnelsResponse, error) {
	b, err := c.find(r.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	if !b.runs() {
		return nil, status.Error(codes.FailedPrecondition, "the Sandbox does not run")
	}
	return pb.SandboxGetTunnelsResponse_builder{Tunnels: tunnelData(b.tunnels.List(), false)}.Build(), nil
}

// SandboxGetTunnelsV2 gives all tunnels.
func (c *controlPlane) SandboxGetTunnelsV2(_ context.Context, r *pb.SandboxGetTunnelsRequest) (*pb.SandboxGetTunnelsResponse, error) {
	return c.tunnelsOf(r, false)
}

// SandboxGetTunnels is the same for the older backend.
func (c *controlPlane) SandboxGetTunnels(_ context.Context, r *pb.SandboxGetTunnelsRequest) (*pb.SandboxGetTunnelsResponse, error) {
	return c.tunnelsOf(r, true)
}

// SandboxCreateConnectTokenV2 gives an address and the token without which it answers 401.
func (c *controlPlane) SandboxCreateConnectTokenV2(_ context.Context, r *pb.SandboxCreateConnectTokenRequest) (*pb.SandboxCreateConnectTokenResponse, error) {
	b, err := c.find(r.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	if !b.runs() {
		return nil, status.Error(codes.FailedPrecondition, "the Sandbox does not run")
	}
	l, err := b.tunnels.Listen()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	token := rand.Text()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "sandbox"})
	proxy.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return b.cell.Dial(ctx, int(r.GetPort()))
		},
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ") != token {
			http.Error(w, "modal-http: missing credentials for proxy authorization", http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, q)
	})}
	go func() { _ = server.Serve(l) }() // ends with the tunnels
	return pb.SandboxCreateConnectTokenResponse_builder{Url: "https://" + l.Addr().String(), Token: token}.Build(), nil
}
