// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/sdk/errs"
)

// socketPair gives the two ends of a unix connection.
func socketPair(t *testing.T) (core, driver net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	core, err = net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	driver, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { core.Close(); driver.Close() })
	return core, driver
}

// shake runs both sides and gives their errors.
func shake(t *testing.T, coreKey, driverKey Key) (coreErr, driverErr error) {
	t.Helper()
	core, driver := socketPair(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := Driver(driverKey).ServerHandshake(driver)
		done <- err
	}()
	_, _, coreErr = Core(coreKey).ClientHandshake(t.Context(), "", core)
	return coreErr, <-done
}

func TestSameKey(t *testing.T) {
	k := NewKey()
	if c, d := shake(t, k, k); c != nil || d != nil {
		t.Fatalf("core: %v, driver: %v", c, d)
	}
}

func TestOtherKeyIsRefused(t *testing.T) {
	c, d := shake(t, NewKey(), NewKey())
	if !errors.Is(c, errs.AuthFailed) || !strings.Contains(c.Error(), "does not hold") {
		t.Errorf("core: %v", c)
	}
	if !errors.Is(d, errs.AuthFailed) {
		t.Errorf("driver: %v", d)
	}
}

// A client that skips its own check must still be refused by the driver.
func TestDriverRefusesWrongProof(t *testing.T) {
	for name, proof := range map[string]func(k Key, c, d []byte, seen []byte) []byte{
		"wrong":     func(Key, []byte, []byte, []byte) []byte { return make([]byte, 32) },
		"reflected": func(_ Key, _, _, seen []byte) []byte { return seen },
		"other key": func(_ Key, c, d, _ []byte) []byte { return credential{NewKey()}.proof("core", c, d) },
	} {
		t.Run(name, func(t *testing.T) {
			k := NewKey()
			core, driver := socketPair(t)
			done := make(chan error, 1)
			go func() {
				_, _, err := Driver(k).ServerHandshake(driver)
				done <- err
			}()
			nonce := make([]byte, nonceSize)
			if _, err := core.Write(append([]byte(magic), nonce...)); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, nonceSize+32)
			if _, err := io.ReadFull(core, answer); err != nil {
				t.Fatal(err)
			}
			if _, err := core.Write(proof(k, nonce, answer[:nonceSize], answer[nonceSize:])); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, errs.AuthFailed) {
				t.Fatalf("driver: %v", err)
			}
		})
	}
}

// tap records what the core wrote.
type tap struct {
	net.Conn
	wrote bytes.Buffer
}

func (c *tap) Write(p []byte) (int, error) {
	c.wrote.Write(p)
	return c.Conn.Write(p)
}

func TestReplayIsRefused(t *testing.T) {
	k := NewKey()
	core, driver := socketPair(t)
	recorded := &tap{Conn: core}
	done := make(chan error, 1)
	serve := func(c net.Conn) {
		_, _, err := Driver(k).ServerHandshake(c)
		done <- err
	}
	go serve(driver)
	if _, _, err := Core(k).ClientHandshake(t.Context(), "", recorded); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	core, driver = socketPair(t)
	go serve(driver)
	if _, err := core.Write(recorded.wrote.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errs.AuthFailed) {
		t.Fatalf("the recorded handshake was taken: %v", err)
	}
}

func TestPlainClientIsRefused(t *testing.T) {
	core, driver := socketPair(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := Driver(NewKey()).ServerHandshake(driver)
		done <- err
	}()
	if _, err := fmt.Fprint(core, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", strings.Repeat("\x00", 64)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errs.AuthFailed) {
		t.Fatalf("driver: %v", err)
	}
}

func TestCancelEndsTheHandshake(t *testing.T) {
	core, _ := socketPair(t)
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := Core(NewKey()).ClientHandshake(ctx, "", core)
		done <- err
	}()
	cancel(why)
	select {
	case err := <-done:
		if !errors.Is(err, why) {
			t.Fatalf("got %v", err)
		}
	case <-time.After(2 * time.Second):
		t.Fatal("still waiting for a silent driver")
	}
}

func TestKeyFromEnvironment(t *testing.T) {
	k := NewKey()
	t.Setenv(EnvKey, k.Encode())
	got, err := KeyFromEnvironment()
	if err != nil || got != k {
		t.Fatalf("got %v, %v", got == k, err)
	}
	if _, ok := os.LookupEnv(EnvKey); ok {
		t.Error("the key is still in the environment")
	}
	if _, err := KeyFromEnvironment(); !errors.Is(err, errs.DriverStartFailed) {
		t.Errorf("absent key: %v", err)
	}
	for _, bad := range []string{"", "00", strings.Repeat("zz", 32), k.Encode() + "00"} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q was taken as a key", bad)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Contains(s, k.Encode()[:8]) || !strings.Contains(s, "(key)") {
		t.Errorf("the key shows: %s", s)
	}
}

// The credential must work as gRPC uses it, not only by hand.
func TestThroughGRPC(t *testing.T) {
	k := NewKey()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(Driver(k)))
	healthv1.RegisterHealthServer(srv, health.NewServer())
	go srv.Serve(l) // ends with Stop
	defer srv.Stop()
	call := func(k Key) error {
		conn, err := grpc.NewClient("unix:"+l.Addr().String(), grpc.WithTransportCredentials(Core(k)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		return err
	}
	if err := call(k); err != nil {
		t.Fatal(err)
	}
	if err := call(NewKey()); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "does not hold") {
		t.Fatalf("wrong key: %v", err)
	}
}
