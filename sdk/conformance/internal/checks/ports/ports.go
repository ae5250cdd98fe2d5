// SPDX-License-Identifier: Apache-2.0

// Package ports holds the checks of the group ports: servers inside, reached from outside.
package ports

import (
	"io"
	"net"
	"strconv"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func Group() suite.Group {
	forward, tcp, web := kit.Needs(driver.PortForward), kit.Needs(driver.PortTCP), kit.Needs(driver.PortHTTP)
	return suite.Group{
		Name: "ports", Doc: "servers inside are reached from outside",
		Checks: []suite.Check{
			{Name: "forward", Needs: forward, Func: portForward},
			{Name: "forward-1-MB", Needs: forward, Func: portForwardMuch},
			{Name: "forward-many", Needs: forward, Func: portForwardMany},
			{Name: "forward-nobody-listens", Needs: forward, Func: portNobody},
			{Name: "forward-given-up", Needs: forward, Func: portGivenUp},
			{Name: "forward-after-resume", Needs: kit.Needs(driver.PortForward, driver.LifeResume), Proves: forward, Func: portResumed},
			{Name: "expose-tcp", Needs: tcp, Func: portTCP},
			{Name: "expose-http", Needs: web, Func: portHTTP},
			{Name: "expose-http-websocket", Needs: web, Func: portWebSocket},
			{Name: "expose-private", Needs: web, Func: portPrivate},
			{Name: "expose-public", Needs: kit.Needs(driver.PortPublic), Func: portPublic},
			{Name: "expose-dynamic", Needs: kit.Needs(driver.PortDynamic, driver.PortTCP), Proves: kit.Needs(driver.PortDynamic), Func: portDynamic},
			{Name: "expose-again", Needs: tcp, Func: portExposeAgain},
			{Name: "expose-not-configured", Unless: driver.PortDynamic, Func: portNotConfigured},
			{Name: "unexpose", Needs: tcp, Func: portUnexpose},
		},
	}
}

// echoes wants that a connection gives back what it is sent.
func echoes(c *kit.C, conn io.ReadWriter, data []byte) {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		sent <- err
	}()
	got := make([]byte, len(data))
	_, err := io.ReadFull(conn, got)
	c.OK(err, "read from the port")
	c.OK(<-sent, "write to the port")
	c.Same("what came back", got, data)
}

func dial(c *kit.C, box *rpc.Sandbox, port uint16) net.Conn {
	conn, err := box.Dial(c.Ctx(), port)
	c.OK(err, "dial port %d", port)
	c.Cleanup(func() { _ = conn.Close() }) // it may be closed already
	return conn
}

func portForward(c *kit.C) {
	box := c.Fresh()
	serveEcho(c, box, 8000)
	conn := dial(c, box, 8000)
	echoes(c, conn, []byte("hello"))
	echoes(c, conn, []byte("again"))
}

func portForwardMuch(c *kit.C) {
	box := c.Fresh()
	serveEcho(c, box, 8001)
	echoes(c, dial(c, box, 8001), kit.Pattern(1<<20))
}

func portForwardMany(c *kit.C) {
	box := c.Fresh()
	serveEcho(c, box, 8002)
	var conns []net.Conn
	for range 10 {
		conns = append(conns, dial(c, box, 8002))
	}
	for i, conn := range conns {
		echoes(c, conn, []byte("connection "+strconv.Itoa(i)))
	}
}

func portNobody(c *kit.C) {
	conn, err := c.Box().Dial(c.Ctx(), 64999)
	if err == nil {
		_ = conn.Close() // it should not be there
	}
	c.Code(err, "dial a port where nobody listens", errs.PortUnavailable)
}

func portGivenUp(c *kit.C) {
	box := c.Fresh()
	serveEcho(c, box, 8003)
	for range 10 {
		conn := dial(c, box, 8003)
		_, err := conn.Write([]byte("x"))
		c.OK(err, "write")
		c.OK(conn.Close(), "close")
	}
	echoes(c, dial(c, box, 8003), []byte("after ten that gave up"))
}

func portResumed(c *kit.C) {
	box := c.Fresh()
	serveEcho(c, box, 8004)
	again, err := c.Main().Resume(c.Ctx(), c.Resumption(box))
	c.OK(err, "resume")
	echoes(c, dial(c, again, 8004), []byte("after a resume"))
}

func portDynamic(c *kit.C) {
	expose(c, c.Fresh(), 8011, "tcp", false)
}

func portExposeAgain(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8012} })
	first, err := box.Expose(c.Ctx(), 8012, "tcp", false)
	c.OK(err, "expose")
	for range c.Options().Repeat {
		again, err := box.Expose(c.Ctx(), 8012, "tcp", false)
		c.OK(err, "expose again")
		if again.Host != first.Host || again.Port != first.Port {
			c.Errorf("the address was %s:%d and is %s:%d", first.Host, first.Port, again.Host, again.Port)
		}
	}
}

func portNotConfigured(c *kit.C) {
	_, err := c.Box().Expose(c.Ctx(), 8013, "tcp", false)
	c.Code(err, "expose a port that was not configured", errs.PortNotConfigured, errs.Unsupported)
}

func portUnexpose(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Ports = []uint16{8014} })
	_, err := box.Expose(c.Ctx(), 8014, "tcp", false)
	c.OK(err, "expose")
	for range c.Options().Repeat {
		c.OK(box.Unexpose(c.Ctx(), 8014), "unexpose, also again")
	}
}
