// SPDX-License-Identifier: Apache-2.0

// Package program holds the checks of the driver as a program: how core and driver find each other (handshake), and what
// it says of itself and of configuration (schema).
package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/handshake"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

func Handshake() suite.Group {
	return suite.Group{
		Name: "handshake", Doc: "core and driver find each other, and nobody else gets in",
		Checks: []suite.Check{
			{Name: "line", Binary: true, Func: handshakeLine},
			{Name: "private-socket", Binary: true, Func: privateSocket},
			{Name: "health", Binary: true, Func: health},
			{Name: "version-list", Binary: true, Func: versionList},
			{Name: "version-unknown", Binary: true, Func: versionUnknown},
			{Name: "no-cookie", Binary: true, Func: noCookie},
			{Name: "no-key", Binary: true, Func: noKey},
			{Name: "wrong-key", Binary: true, Func: wrongKey},
			{Name: "silent-client", Binary: true, Func: silentClient},
			{Name: "nothing-else-on-stdout", Binary: true, Func: quietStdout},
			{Name: "describe-by-hand", Binary: true, Func: describeByHand},
			{Name: "describe-is-static", Func: describeStatic},
			{Name: "lifeline", Binary: true, Func: lifeline},
			{Name: "lifeline-before-the-first-call", Binary: true, Func: lifelineEarly},
			{Name: "terminal-signals", Binary: true, Func: terminalSignals},
			{Name: "terminate", Binary: true, Func: terminate},
		},
	}
}

// program starts the driver's program for this check.
func program(c *kit.C, how suite.Launch) *suite.Program {
	p, err := c.Start(c.Ctx(), how)
	c.OK(err, "start the program")
	c.Cleanup(p.Kill)
	return p
}

// answers says whether the program answers to whoever has a key.
func answers(c *kit.C, p *suite.Program, key handshake.Key) error {
	conn, err := p.Dial(key)
	c.OK(err, "handshake")
	defer conn.Close() // nothing is under way
	ctx, cancel := context.WithTimeoutCause(c.Ctx(), 20*time.Second, errors.New("no answer"))
	defer cancel()
	_, err = pb.NewDriverClient(conn).Describe(ctx, &pb.DescribeRequest{})
	return err
}

func handshakeLine(c *kit.C) {
	p := program(c, suite.Launch{})
	f := strings.Split(strings.TrimSuffix(p.Line, "\n"), "|")
	if len(f) < 5 || f[0] != "1" || f[1] != "1" || f[2] != "unix" || f[4] != "grpc" || !strings.HasSuffix(p.Line, "\n") {
		c.Fatalf("the first line is %q, want 1|1|unix|SOCKET|grpc", p.Line)
	}
	if !filepath.IsAbs(f[3]) || !strings.HasPrefix(f[3], p.Dir) {
		c.Errorf("the socket is %s, not in the directory that it was given (PLUGIN_UNIX_SOCKET_DIR)", f[3])
	}
	c.OK(answers(c, p, p.Key), "describe")
}

func privateSocket(c *kit.C) {
	p := program(c, suite.Launch{})
	addr := strings.Split(p.Line, "|")[3]
	info, err := os.Stat(addr)
	c.OK(err, "stat of the socket")
	if info.Mode()&os.ModeSocket == 0 {
		c.Errorf("%s is no socket", addr)
	}
}

func health(c *kit.C) {
	p := program(c, suite.Launch{})
	conn, err := p.Dial(p.Key)
	c.OK(err, "dial")
	defer conn.Close() // nothing is under way
	r, err := healthv1.NewHealthClient(conn).Check(c.Ctx(), &healthv1.HealthCheckRequest{Service: "plugin"})
	c.OK(err, "ask for the health of service plugin")
	if r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		c.Errorf("the health of service plugin is %v", r.GetStatus())
	}
}

func versionList(c *kit.C) {
	p := program(c, suite.Launch{Versions: "1,2,3"})
	if f := strings.Split(p.Line, "|"); len(f) < 2 || f[1] != "1" {
		c.Errorf("of the protocols 1, 2 and 3 the program chose %q", p.Line)
	}
	c.OK(answers(c, p, p.Key), "describe")
}

func versionUnknown(c *kit.C) {
	p := program(c, suite.Launch{Versions: "99"})
	if f := strings.Split(p.Line, "|"); len(f) >= 2 && f[1] == "99" {
		c.Errorf("the program says that it speaks protocol 99: %q", p.Line)
	}
}

func noCookie(c *kit.C) {
	p := program(c, suite.Launch{NoCookie: true})
	kit.Ended(c, p, "it was started by hand")
	if p.State().Success() || p.Line != "" {
		c.Errorf("started by hand the program ended with %v and printed %q", p.State(), p.Line)
	}
	if p.Stderr.String() == "" {
		c.Errorf("started by hand the program does not say what it is")
	}
}

func noKey(c *kit.C) {
	p := program(c, suite.Launch{NoKey: true})
	if p.Line == "" {
		kit.Ended(c, p, "it has no key")
		return
	}
	if answers(c, p, handshake.Key{}) == nil || answers(c, p, handshake.NewKey()) == nil {
		c.Errorf("a program that was given no key serves anybody")
	}
}

func wrongKey(c *kit.C) {
	p := program(c, suite.Launch{})
	if answers(c, p, handshake.NewKey()) == nil {
		c.Errorf("a client with another key is served")
	}
	c.OK(answers(c, p, p.Key), "describe, after somebody with another key was refused")
}

func silentClient(c *kit.C) {
	p := program(c, suite.Launch{})
	conn, err := kit.Connect(c.Ctx(), strings.Split(p.Line, "|")[3])
	c.OK(err, "connect")
	defer conn.Close() // nothing was said
	c.OK(answers(c, p, p.Key), "describe, beside a client that says nothing")
}

func quietStdout(c *kit.C) {
	p := program(c, suite.Launch{})
	c.OK(answers(c, p, p.Key), "describe")
	p.Cut()
	kit.Ended(c, p, "its lifeline was cut")
	if s := p.Stdout.String(); s != "" {
		c.Errorf("after the handshake the program printed %.200q on standard output", s)
	}
}

func describeByHand(c *kit.C) {
	p := program(c, suite.Launch{NoCookie: true, NoKey: true, Args: []string{"describe", "--json"}})
	kit.Ended(c, p, "it was asked to describe itself")
	c.Eventually("the description is there", func() bool {
		_, err := wire.UnmarshalDescription([]byte(p.Line + p.Stdout.String()))
		return err == nil
	})
	d, err := wire.UnmarshalDescription([]byte(p.Line + p.Stdout.String()))
	c.OK(err, "read what describe --json printed")
	got, err := wire.DescriptionProto(d)
	c.OK(err, "encode it")
	want, err := wire.DescriptionProto(c.Main().Desc)
	c.OK(err, "encode the description")
	got.Isolation, want.Isolation = nil, nil // it is found by probing, and says what it found
	if !proto.Equal(got, want) {
		c.Errorf("describe --json and the call Describe differ")
	}
}

func describeStatic(c *kit.C) {
	first, err := pb.NewDriverClient(c.Main().Conn).Describe(c.Ctx(), &pb.DescribeRequest{})
	c.OK(err, "describe")
	for range c.Options().Repeat {
		again, err := pb.NewDriverClient(c.Main().Conn).Describe(c.Ctx(), &pb.DescribeRequest{})
		c.OK(err, "describe")
		if !proto.Equal(first, again) {
			c.Errorf("the description changes")
		}
	}
}

func lifeline(c *kit.C) {
	p := c.Spawn()
	box := c.FreshOn(p)
	kit.Begin(c.Ctx(), c, box, &kit.Forever, kit.NoStreams)
	p.Program().Cut()
	kit.Ended(c, p.Program(), "its core has gone")
	if _, err := os.Stat(strings.Split(p.Program().Line, "|")[3]); err == nil {
		c.Errorf("the program ended and left its socket")
	}
}

func lifelineEarly(c *kit.C) {
	p := program(c, suite.Launch{})
	p.Cut()
	kit.Ended(c, p, "its core has gone")
}

func terminalSignals(c *kit.C) {
	p := program(c, suite.Launch{})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGHUP} {
		c.OK(p.Signal(sig), "signal")
		c.OK(answers(c, p, p.Key), "describe, after %v", sig)
	}
}

func terminate(c *kit.C) {
	p := program(c, suite.Launch{})
	c.OK(answers(c, p, p.Key), "describe")
	c.OK(p.Signal(syscall.SIGTERM), "signal TERM")
	kit.Ended(c, p, "it got TERM")
}
