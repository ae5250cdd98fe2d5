// SPDX-License-Identifier: Apache-2.0

package portforward_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/core/portforward"
)

// loopback stands for a sandbox: its ports are this machine's.
type loopback struct{ err error }

func (l loopback) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if l.err != nil {
		return nil, l.err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

// serve answers every connection with f, and gives the port.
func serve(t *testing.T, f func(net.Conn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// shout reads to the end before it answers, so that half-closing must be passed on.
func shout(c net.Conn) {
	b, err := io.ReadAll(c)
	if err == nil {
		_, _ = c.Write(bytes.ToUpper(b)) // the client may be gone
	}
}

func TestForward(t *testing.T) {
	f, err := portforward.Listen(t.Context(), loopback{}, "127.0.0.1:0", serve(t, shout), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			c, err := net.Dial("tcp", f.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			text := strings.Repeat("text "+strconv.Itoa(i), 50_000)
			sent := make(chan error, 1)
			go func() {
				_, err := io.WriteString(c, text)
				sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
			}()
			got, err := io.ReadAll(c)
			if err := errors.Join(err, <-sent); err != nil || string(got) != strings.ToUpper(text) {
				t.Errorf("%d of %d bytes, %v", len(got), len(text), err)
			}
		})
	}
	clients.Wait()
}

// The end of the forward ends connections that would go on for ever, and nobody is told of a failure.
func TestClose(t *testing.T) {
	up := make(chan struct{})
	port := serve(t, func(c net.Conn) {
		close(up)
		_, _ = io.Copy(io.Discard, c) // until the forward ends it
	})
	f, err := portforward.Listen(t.Context(), loopback{}, "127.0.0.1:0", port, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-up
	f.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection is open: %d, %v", n, err)
	}
	if _, err := net.Dial("tcp", f.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// Nothing listens inside: the client's connection ends, and the reason is told.
func TestNothingInside(t *testing.T) {
	told := make(chan error, 1)
	f, err := portforward.Listen(t.Context(), loopback{errors.New("nothing there")}, "127.0.0.1:0", 80, func(err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); len(got) > 0 || (err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset")) {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-told; err == nil || !strings.Contains(err.Error(), "port 80: nothing there") {
		t.Error(err)
	}
}
