// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// expose gives the address of a port that is not empty.
func expose(c *kit.C, box *rpc.Sandbox, port uint16, protocol string, public bool) driver.Endpoint {
	at, err := box.Expose(c.Ctx(), port, protocol, public)
	c.OK(err, "expose port %d", port)
	if at.Host == "" || at.Port == 0 {
		c.Fatalf("the address of an exposed port is %q:%d", at.Host, at.Port)
	}
	return at
}

func portTCP(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8010} })
	at := expose(c, box, 8010, "tcp", false)
	if at.TLS || at.Path != "" || len(at.Headers) > 0 {
		c.Skipf("connections to the address have more in them than what the server inside says")
	}
	serveEcho(c, box, 8010)
	conn, err := new(net.Dialer).DialContext(c.Ctx(), "tcp", net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))))
	c.OK(err, "dial the address of an exposed port")
	c.Cleanup(func() { _ = conn.Close() }) // nothing is under way
	echoes(c, conn, kit.Pattern(100_000))
}

// address is the address of a page of a server inside.
func address(at driver.Endpoint, page, query string) string {
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), Path: strings.TrimSuffix(at.Path, "/") + page}
	if at.TLS {
		u.Scheme = "https"
	}
	u.RawQuery = strings.TrimPrefix(at.Query+"&"+query, "&")
	return u.String()
}

// header is what requests to an address need.
func header(at driver.Endpoint) http.Header {
	h := http.Header{}
	for k, v := range at.Headers {
		h.Set(k, v)
	}
	return h
}

// ask makes a request of a server inside. The address may answer in the server's stead until it has noticed it.
func ask(c *kit.C, at driver.Endpoint) {
	t := transport(c)
	defer t.CloseIdleConnections()
	var said string
	var status int
	c.Eventually("a server inside answers at the port's address", func() bool {
		r, err := http.NewRequestWithContext(c.Ctx(), http.MethodPost, address(at, "/a/page", "q=1"), strings.NewReader("a question"))
		c.OK(err, "make a request")
		r.Header = header(at)
		resp, err := t.RoundTrip(r)
		if err != nil {
			c.OK(permanent(err), "ask at the address of an exposed port")
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		c.OK(err, "read the answer")
		said, status = string(b), resp.StatusCode
		return status != http.StatusBadGateway && status != http.StatusServiceUnavailable
	})
	// What stands before it may add to the query, and to the path.
	if status != http.StatusOK || !strings.HasPrefix(said, "POST /") || !strings.Contains(said, "/a/page?") || !strings.Contains(said, "q=1") ||
		!strings.HasSuffix(said, " a question") {
		c.Errorf("a server inside was asked through the address of its port: %d, %.500q", status, said)
	}
}

// transport carries requests to exposed ports.
func transport(c *kit.C) *http.Transport {
	if t := c.Options().Transport; t != nil {
		return t.Clone()
	}
	return &http.Transport{}
}

// permanent is an error that does not pass: a name that does not exist.
func permanent(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return err
	}
	return nil
}

func portHTTP(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8015} })
	at := expose(c, box, 8015, "http", false)
	serve(c, box, 8015, webServers)
	ask(c, at)
}

func portWebSocket(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8016} })
	at := expose(c, box, 8016, "http", false)
	serve(c, box, 8016, webServers)
	t := transport(c)
	defer t.CloseIdleConnections()
	var ws *websocket.Conn
	var last error
	c.Eventually("a server inside opens a WebSocket at the port's address", func() bool {
		conn, resp, err := websocket.Dial(c.Ctx(), address(at, "/socket", ""), &websocket.DialOptions{
			HTTPHeader: header(at), HTTPClient: &http.Client{Transport: t},
		})
		if resp != nil && resp.Body != nil {
			defer resp.Body.Close()
		}
		if resp != nil && err != nil && resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusServiceUnavailable {
			c.Fatalf("open a WebSocket at the address of an exposed port: %v", err)
		}
		if err != nil && resp == nil {
			c.OK(permanent(err), "open a WebSocket at the address of an exposed port")
		}
		ws, last = conn, err
		return err == nil
	})
	c.OK(last, "open a WebSocket")
	defer ws.CloseNow() //nolint:errcheck // nothing is under way
	for _, text := range []string{"hello", "", "again, \x00\xff"} {
		c.OK(ws.Write(c.Ctx(), websocket.MessageBinary, []byte(text)), "send a message")
		_, got, err := ws.Read(c.Ctx())
		c.OK(err, "read a message")
		c.Same("a message that came back", got, []byte(text))
	}
}

func portPublic(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8017} })
	at, err := box.Expose(c.Ctx(), 8017, "http", true)
	if errs.CodeOf(err) == errs.PortUnavailable {
		c.Skipf("the sandbox's configuration allows no public port: %v", err)
	}
	c.OK(err, "expose a port to everybody")
	serve(c, box, 8017, webServers)
	ask(c, at)
}

// portPrivate wants that an address which comes with something secret is of no use without.
func portPrivate(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8018} })
	at := expose(c, box, 8018, "http", false)
	if len(at.Headers) == 0 {
		c.Skipf("the address of a port that is not public needs no headers here")
	}
	serve(c, box, 8018, webServers)
	ask(c, at)
	at.Headers = nil
	r, err := http.NewRequestWithContext(c.Ctx(), http.MethodGet, address(at, "/secret", ""), nil)
	c.OK(err, "make a request")
	t := transport(c)
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(r)
	if err != nil && c.Ctx().Err() != nil {
		c.Fatalf("ask without the headers: %v", context.Cause(c.Ctx()))
	}
	if err != nil {
		return // not even that
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		c.Errorf("a port that is not public answers to a request without its headers")
	}
}
