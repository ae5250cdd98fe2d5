// SPDX-License-Identifier: Apache-2.0

// Package checks holds the checks of the conformance suite, one file for each group.
//
// A check proves one behaviour that the interfaces of package driver promise, from outside, and fails when the behaviour
// is another. It runs against every kind of sandbox, so it uses nothing but a POSIX shell unless it says which tools it
// needs, and it waits for events and never for time.
//
// Size: a flat list of some two hundred checks that share nothing but a few helpers.
package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
)

// C is a check while it runs.
type C = suite.C

// Groups are all checks, in the order in which they run.
func Groups() []suite.Group {
	return []suite.Group{handshakes(), schemas(), lifecycle(), process(), pty(), files(), tree(), ports(), accounts(), snapshots(), mounts(), faults(), perf(), leaks()}
}

func needs(f ...driver.Feature) []driver.Feature { return f }

// put writes a file that must not fail to be written.
func put(c *C, box *rpc.Sandbox, path string, data []byte) driver.WriteResult {
	r, err := box.Write(c.Ctx(), path, driver.WriteOptions{}, bytes.NewReader(data))
	c.OK(err, "write %q", path)
	return r
}

// get reads a file that must not fail to be read.
func get(c *C, box *rpc.Sandbox, path string) []byte {
	b, err := read(c.Ctx(), box, path, driver.ReadOptions{})
	c.OK(err, "read %q", path)
	return b
}

func read(ctx context.Context, box *rpc.Sandbox, path string, opts driver.ReadOptions) ([]byte, error) {
	_, r, err := box.Open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// stat describes a file that must be there.
func stat(c *C, box *rpc.Sandbox, path string) driver.FileInfo {
	info, err := statErr(c, box, path, false)
	c.OK(err, "stat %q", path)
	return info
}

func statErr(c *C, box *rpc.Sandbox, path string, follow bool) (driver.FileInfo, error) {
	rs, err := box.Stat(c.Ctx(), []string{path}, driver.StatOptions{Follow: follow})
	if err != nil {
		return driver.FileInfo{}, err
	}
	if len(rs) != 1 {
		return driver.FileInfo{}, fmt.Errorf("%d answers for one path", len(rs))
	}
	return rs[0].Info, rs[0].Err
}

// absent wants that there is no such file.
func absent(c *C, box *rpc.Sandbox, path string) {
	_, err := statErr(c, box, path, false)
	c.Code(err, "stat "+path, errs.FileNotFound)
}

// list gives the names in a directory.
func list(c *C, box *rpc.Sandbox, path string, opts driver.ListOptions) map[string]driver.FileInfo {
	out := map[string]driver.FileInfo{}
	for info, err := range box.List(c.Ctx(), path, opts) {
		c.OK(err, "list %q", path)
		if _, twice := out[info.Path]; twice {
			c.Errorf("list %q: %q comes twice", path, info.Path)
		}
		out[info.Path] = info
	}
	return out
}

func listErr(c *C, box *rpc.Sandbox, path string) error {
	for _, err := range box.List(c.Ctx(), path, driver.ListOptions{}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// found gives the ids of this driver's sandboxes with the labels.
func found(c *C, d *rpc.Driver, labels map[string]string) []string {
	var out []string
	for info, err := range d.List(c.Ctx(), labels) {
		c.OK(err, "list sandboxes")
		out = append(out, info.SandboxID)
	}
	return out
}

// pattern is n bytes in which each place can be told from others.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// running is a command that goes on in the background.
type running struct {
	out  suite.Out
	err  error
	done chan struct{}
	id   string
}

// begin starts a command and waits until it has started.
func begin(ctx context.Context, c *C, box driver.Sandbox, cmd *driver.Command, streams driver.Streams) *running {
	r := &running{done: make(chan struct{})}
	started := make(chan string, 1)
	streams.OnStart = func(s driver.Started) { started <- s.ProcessID }
	go func() {
		defer close(r.done)
		r.out, r.err = c.Try(ctx, box, cmd, streams)
	}()
	select {
	case r.id = <-started:
	case <-r.done:
		c.Fatalf("%q ended before it had started: %v", cmd.Argv, r.err)
	case <-c.Ctx().Done():
		c.Fatalf("%q did not start: %v", cmd.Argv, context.Cause(c.Ctx()))
	}
	return r
}

// wait waits for the end.
func (r *running) wait(c *C) {
	select {
	case <-r.done:
	case <-c.Ctx().Done():
		c.Fatalf("the command did not end: %v", context.Cause(c.Ctx()))
	}
}

// signalled is written to when something is first written to it.
type signalled struct {
	want []byte
	have []byte
	seen chan struct{}
}

func seen(text string) *signalled { return &signalled{want: []byte(text), seen: make(chan struct{})} }

// Write looks for the text.
func (s *signalled) Write(p []byte) (int, error) {
	select {
	case <-s.seen:
		return len(p), nil
	default:
	}
	s.have = append(s.have, p...)
	if bytes.Contains(s.have, s.want) {
		close(s.seen)
	}
	return len(p), nil
}

func (s *signalled) wait(c *C, r *running) {
	select {
	case <-s.seen:
	case <-r.done:
		select {
		case <-s.seen:
		default:
			c.Fatalf("the command ended (%+v, %v) and had not printed %q but %q", r.out.Exit, r.err, s.want, r.out.Stdout)
		}
	case <-c.Ctx().Done():
		c.Fatalf("the command did not print %q: %v", s.want, context.Cause(c.Ctx()))
	}
}

const hour = time.Hour

var (
	running1  = driver.Command{Argv: []string{"sleep", "3600"}}
	noStreams driver.Streams
)

func connect(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
