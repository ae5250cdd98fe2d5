// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Ports are reached from outside: with TLS, without where that was asked for, and by HTTP with a token.
func TestPorts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, map[string]any{"unencrypted_ports": []int{7001}})
	req.Ports = []uint16{7000}
	s := f.create(t, req)
	for _, argv := range [][]string{{"listen", "7000"}, {"listen", "7001"}, {"httpd", "-f", "-p", "127.0.0.1:7002"}} {
		go func() { _, _ = s.Run(t.Context(), &driver.Command{Argv: argv}, driver.Streams{}) }()
	}
	sh(t, s, "echo served > index.html")
	for _, port := range []uint16{7000, 7001, 7002} {
		eventually(t, "the servers listen", func() bool {
			c, err := s.Dial(t.Context(), port)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	insecure := &tls.Config{InsecureSkipVerify: true}
	echo := func(what string, c net.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer c.Close()
		b := make([]byte, 4)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "ping" {
			t.Errorf("%s: %q, %v", what, b, err)
		}
	}
	at, err := s.Expose(t.Context(), 7000, "tcp", true)
	if err != nil || !at.TLS {
		t.Fatalf("%+v, %v", at, err)
	}
	c, err := tls.Dial("tcp", net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), insecure)
	echo("TLS", c, err)
	if at, err = s.Expose(t.Context(), 7001, "tcp", true); err != nil || at.TLS {
		t.Fatalf("%+v, %v", at, err)
	}
	plain, err := net.Dial("tcp", net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))))
	echo("plain", plain, err)

	// HTTP that is not public: any port, and only with the token.
	if at, err = s.Expose(t.Context(), 7002, "http", false); err != nil || at.Headers["Authorization"] == "" {
		t.Fatalf("%+v, %v", at, err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}}
	for header, want := range map[string]int{at.Headers["Authorization"]: 200, "": 401} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))+"/index.html", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", header)
		res, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != want || want == 200 && string(b) != "served\n" {
			t.Errorf("%d %q, %v, want %d", res.StatusCode, b, err, want)
		}
	}
	if _, err := s.Expose(t.Context(), 7002, "tcp", true); !errors.Is(err, errs.PortNotConfigured) {
		t.Errorf("%v", err)
	}
}
