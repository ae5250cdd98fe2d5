// SPDX-License-Identifier: Apache-2.0

package life

import (
	"net"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

func networkNone(c *kit.C) {
	box := c.Fresh(func(r *driver.CreateRequest) { r.Network.Mode = "none" })
	var devices []string
	for line := range strings.Lines(c.Sh(box, "cat /proc/net/dev")) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && name != "lo" {
			devices = append(devices, name)
		}
	}
	if len(devices) == 0 {
		return
	}
	// It has this machine's devices, or those of its own, with somebody between them and what is outside.
	places := outside(c)
	if got := reached(c, box, places); len(got) > 0 {
		c.Errorf("with network none there are %v, and a command reaches %v", devices, got)
	} else if len(reached(c, c.Box(), places)) == 0 {
		c.Skipf("with network none there are %v; that nothing is reached says little, for an ordinary sandbox reaches none of %v either", devices, places)
	}
}

// outside are addresses outside of every sandbox, "host port": a listener on this machine, and some that everybody knows.
func outside(c *kit.C) []string {
	l, err := new(net.ListenConfig).Listen(c.Ctx(), "tcp4", ":0")
	c.OK(err, "listen")
	c.Cleanup(func() { l.Close() }) // nothing is written to it
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close() // that it came is enough
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	c.OK(err, "tell where it listens")
	places := []string{"127.0.0.1 " + port, "1.1.1.1 443", "8.8.8.8 443"}
	addrs, err := net.InterfaceAddrs()
	c.OK(err, "look at this machine's addresses")
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			places = append(places, n.IP.String()+" "+port)
		}
	}
	return places
}

// reached are the places that a command in a sandbox can connect to.
func reached(c *kit.C, box *rpc.Sandbox, places []string) []string {
	const script = `command -v timeout >/dev/null && { command -v bash || command -v nc; } >/dev/null || exit 77
try() {
	if command -v bash; then timeout 5 bash -c ': </dev/tcp/$0/$1' "$1" "$2"; else timeout 5 nc -w 5 "$1" "$2" </dev/null; fi
} >/dev/null 2>&1
while [ $# -gt 0 ]; do
	(try "$1" "$2" && echo "$1 $2") &
	shift 2
done
wait`
	out := c.Exec(box, append([]string{"sh", "-c", script, "sh"}, strings.Fields(strings.Join(places, " "))...)...)
	if out.Exit.Code == 77 {
		c.Skipf("the sandbox has devices, and no timeout with bash or nc to try them with")
	}
	var got []string
	for line := range strings.Lines(string(out.Stdout)) {
		got = append(got, strings.TrimSpace(line))
	}
	return got
}

func networkNonsense(c *kit.C) {
	req := c.Request()
	req.Network.Mode = "no-such-mode"
	box, err := c.Main().Create(c.Ctx(), req)
	if err == nil {
		c.OK(box.Destroy(c.Ctx()), "destroy")
	}
	c.Code(err, "create with a network mode that nobody knows", errs.Unsupported, errs.InvalidArgument, errs.ConfigInvalid)
}
