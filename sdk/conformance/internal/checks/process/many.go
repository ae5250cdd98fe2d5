// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
)

func manyAtOnce(c *kit.C) {
	box := c.Box()
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			out, err := c.Try(c.Ctx(), box, &driver.Command{Argv: []string{"echo", strconv.Itoa(i)}}, driver.Streams{})
			if err != nil || string(out.Stdout) != strconv.Itoa(i)+"\n" {
				c.Errorf("command %d of 200 at once: %v, %q", i, err, out.Stdout)
			}
		})
	}
	all.Wait()
}

func manyInTurn(c *kit.C) {
	box := c.Box()
	for i := range 50 {
		if got := c.Sh(box, "echo "+strconv.Itoa(i)); got != strconv.Itoa(i)+"\n" {
			c.Fatalf("command %d in turn said %q", i, got)
		}
	}
}

func sameID(c *kit.C) {
	box := c.Box()
	name := c.Word("once")
	cmd := &driver.Command{ID: c.Word("p"), Argv: []string{"sh", "-c", "echo ran >> " + name + "; echo out"}, Detached: true}
	for i := range 3 {
		out, err := c.Try(c.Ctx(), box, cmd, driver.Streams{})
		c.OK(err, "run %d with the same id", i+1)
		c.Same("output", out.Stdout, []byte("out\n"))
	}
	c.Same("what a command that was started three times with one id did", kit.Get(c, box, name), []byte("ran\n"))
}

func exec(c *kit.C) {
	r, err := c.Box().Exec(c.Ctx(), &driver.Command{Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 5"}}, nil, 1<<20, 1<<20)
	c.OK(err, "exec")
	if r.Exit.Code != 5 || string(r.Stdout.Head)+string(r.Stdout.Tail) != "out\n" || string(r.Stderr.Head)+string(r.Stderr.Tail) != "err\n" {
		c.Errorf("exec: %+v", r)
	}
}

func execBounded(c *kit.C) {
	r, err := c.Box().Exec(c.Ctx(), &driver.Command{
		Argv: []string{"sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done"},
	}, nil, 100, 50)
	c.OK(err, "exec")
	var want bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	b := want.Bytes()
	c.Same("the beginning", r.Stdout.Head, b[:100])
	c.Same("the end", r.Stdout.Tail, b[len(b)-50:])
	if r.Stdout.Dropped != uint64(len(b)-150) {
		c.Errorf("of %d bytes with 150 kept, %d were said to be dropped", len(b), r.Stdout.Dropped)
	}
}

func execStdin(c *kit.C) {
	r, err := c.Box().Exec(c.Ctx(), &driver.Command{Argv: []string{"cat"}}, []byte("input"), 100, 100)
	c.OK(err, "exec")
	c.Same("what went through cat", append(r.Stdout.Head, r.Stdout.Tail...), []byte("input"))
}
