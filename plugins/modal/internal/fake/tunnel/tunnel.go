// SPDX-License-Identifier: Apache-2.0

// Package tunnel gives ports of a sandbox of the fake vendor addresses on this machine: with TLS each, under a certificate
// that nobody vouches for, and some without too.
package tunnel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

// Host is where all tunnels are.
const Host = "127.0.0.1"

// Tunnel is one port inside with its ports outside; Plain is 0 when there is only TLS.
type Tunnel struct{ Inside, TLS, Plain uint32 }

// Tunnels are those of one sandbox.
type Tunnels struct {
	dial func(ctx context.Context, port int) (net.Conn, error)
	list []Tunnel

	mu        sync.Mutex
	listeners []net.Listener    // guarded by mu
	conns     map[net.Conn]bool // guarded by mu; nil = closed
}

// Port asks for a port inside.
type Port struct {
	Inside uint32
	Plain  bool // also without TLS
}

// certificate is that of all tunnels. Nobody vouches for it.
var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// Open opens tunnels. dial connects to a port inside.
func Open(ports []Port, dial func(ctx context.Context, port int) (net.Conn, error)) (*Tunnels, error) {
	t := &Tunnels{dial: dial, conns: map[net.Conn]bool{}}
	for _, p := range ports {
		l, err := t.Listen()
		if err != nil {
			t.Close()
			return nil, err
		}
		go t.serve(l, int(p.Inside))
		x := Tunnel{Inside: p.Inside, TLS: portOf(l)}
		if p.Plain {
			if l, err = t.listen(nil); err != nil {
				t.Close()
				return nil, err
			}
			go t.serve(l, int(p.Inside))
			x.Plain = portOf(l)
		}
		t.list = append(t.list, x)
	}
	return t, nil
}

// Listen listens with TLS until the tunnels are closed.
func (t *Tunnels) Listen() (net.Listener, error) {
	cert, err := certificate()
	if err != nil {
		return nil, err
	}
	return t.listen(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
}

func (t *Tunnels) listen(with *tls.Config) (net.Listener, error) {
	l, err := net.Listen("tcp", Host+":0") //nolint:noctx // at once
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		return nil, net.ErrClosed
	}
	t.listeners = append(t.listeners, l)
	if with != nil {
		return tls.NewListener(l, with), nil
	}
	return l, nil
}

// List are the tunnels.
func (t *Tunnels) List() []Tunnel { return t.list }

func (t *Tunnels) serve(l net.Listener, port int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go t.carry(c, port)
	}
}

func (t *Tunnels) carry(c net.Conn, port int) {
	in, err := t.dial(context.Background(), port)
	t.mu.Lock()
	open := t.conns != nil
	if open && err == nil {
		t.conns[c], t.conns[in] = true, true
	}
	t.mu.Unlock()
	if err == nil && open {
		go func() {
			_, _ = io.Copy(in, c) // ends with either
			_ = in.Close()
		}()
		_, _ = io.Copy(c, in) // the same
	}
	_ = c.Close()
	if err == nil {
		_ = in.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	delete(t.conns, in)
}

// Close ends all tunnels and what they carry.
func (t *Tunnels) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.listeners {
		_ = l.Close() // nobody asks
	}
	for c := range t.conns {
		_ = c.Close() // the same
	}
	t.conns = nil
}

func portOf(l net.Listener) uint32 { return uint32(l.Addr().(*net.TCPAddr).Port) } //nolint:errcheck // it listens on TCP
