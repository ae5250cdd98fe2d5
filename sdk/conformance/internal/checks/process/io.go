// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
)

// firstly notes whether anything was written before the start was told.
type firstly struct{ started, early bool }

func (f *firstly) Write(p []byte) (int, error) {
	f.early = f.early || !f.started
	return len(p), nil
}

func startedFirst(c *kit.C) {
	var f firstly
	out, err := c.Try(c.Ctx(), c.Box(), &driver.Command{Argv: []string{"echo", "hello"}}, driver.Streams{
		Stdout: &f, OnStart: func(driver.Started) { f.started = true },
	})
	c.OK(err, "run")
	if !f.started || f.early {
		c.Errorf("the start of a command was told: %v; output came before it: %v", f.started, f.early)
	}
	if out.Started.ProcessID == "" {
		c.Errorf("a command that was given no id got none")
	}
}

func separation(c *kit.C) {
	out := c.Exec(c.Box(), "sh", "-c", "echo out; echo err >&2")
	c.Same("standard output", out.Stdout, []byte("out\n"))
	c.Same("standard error", out.Stderr, []byte("err\n"))
}

func order(c *kit.C) {
	var want bytes.Buffer
	script := strings.Builder{}
	for i := range 50 {
		fmt.Fprintf(&script, "echo %d\n", i)
		fmt.Fprintf(&want, "%d\n", i)
	}
	c.Same("fifty lines", c.Exec(c.Box(), "sh", "-c", script.String()).Stdout, want.Bytes())
}

func noOutput(c *kit.C) {
	out := c.Exec(c.Box(), "true")
	if len(out.Stdout)+len(out.Stderr) > 0 || out.Exit.OutputBytes != 0 {
		c.Errorf("true printed %q and %q, %d bytes", out.Stdout, out.Stderr, out.Exit.OutputBytes)
	}
}

func noNewline(c *kit.C) {
	c.Same("output without a newline", c.Exec(c.Box(), "printf", "no newline").Stdout, []byte("no newline"))
}

func binaryOutput(c *kit.C) {
	box := c.Box()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	all = append(all, kit.Pattern(5000)...) //nolint:makezero // it is appended to what was made
	name := c.Word("bytes")
	kit.Put(c, box, name, all)
	c.Same("every byte that there is", c.Exec(box, "cat", name).Stdout, all)
}

func muchOutput(c *kit.C) {
	const want = 100 << 20
	var n kit.Counter
	exit, err := c.Box().Run(c.Ctx(), &driver.Command{Argv: []string{"head", "-c", strconv.Itoa(want), "/dev/zero"}}, driver.Streams{Stdout: &n})
	c.OK(err, "run")
	if n.N != want || exit.OutputBytes != want {
		c.Errorf("of 100 MB %d bytes came; the exit counts %d", n.N, exit.OutputBytes)
	}
}

func outputWhole(c *kit.C) {
	box := c.Box()
	name := c.Word("much")
	data := kit.Pattern(1 << 20)
	kit.Put(c, box, name, data)
	for range 5 {
		if got := c.Exec(box, "cat", name).Stdout; sha256.Sum256(got) != sha256.Sum256(data) {
			c.Same("what a command printed just before its end", got, data)
		}
	}
}

// slow takes what is written only after it was waited for.
type slow struct {
	after <-chan struct{}
	got   []byte
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.after
	s.got = append(s.got, p...)
	return len(p), nil
}

func slowReader(c *kit.C) {
	box := c.Box()
	name := c.Word("much")
	data := kit.Pattern(4 << 20)
	kit.Put(c, box, name, data)
	gate := make(chan struct{})
	s := &slow{after: gate}
	done := make(chan error, 1)
	go func() {
		_, err := box.Run(c.Ctx(), &driver.Command{Argv: []string{"cat", name}}, driver.Streams{Stdout: s})
		done <- err
	}()
	// Other commands go on while this one waits for its reader.
	for range 3 {
		c.Sh(box, "true")
	}
	close(gate)
	c.OK(<-done, "run")
	c.Same("4 MiB that nobody read at first", s.got, data)
}

func outputCounted(c *kit.C) {
	out := c.Exec(c.Box(), "sh", "-c", "printf 12345; printf 678 >&2")
	if out.Exit.OutputBytes != 8 {
		c.Errorf("after 8 bytes of output the exit counts %d", out.Exit.OutputBytes)
	}
}

func stdinEcho(c *kit.C) {
	data := kit.Pattern(5000)
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"cat"}}, bytes.NewReader(data))
	c.Same("what went through cat", out.Stdout, data)
}

func stdinMuch(c *kit.C) {
	data := kit.Pattern(10 << 20)
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"cat"}}, bytes.NewReader(data))
	c.Same("10 MB that went through cat", out.Stdout, data)
}

func stdinNone(c *kit.C) {
	out := c.Exec(c.Box(), "cat")
	if out.Exit.Code != 0 || len(out.Stdout) > 0 {
		c.Errorf("cat without an input: %+v, %q", out.Exit, out.Stdout)
	}
}

func stdinEnds(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "cat; echo end"}}, strings.NewReader("input "))
	c.Same("an input that ends", out.Stdout, []byte("input end\n"))
}

func stdinUnread(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "exit 3"}}, bytes.NewReader(make([]byte, 10<<20)))
	if out.Exit.Code != 3 {
		c.Errorf("a command that does not read its input ended with %+v, want 3", out.Exit)
	}
}

func stdinTurns(c *kit.C) {
	r, w := io.Pipe()
	first, second := kit.Seen("one"), kit.Seen("two")
	run := kit.Begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"cat"}}, driver.Streams{Stdin: r, Stdout: io.MultiWriter(first, second)})
	for _, turn := range []struct {
		say  string
		wait *kit.Signalled
	}{{"one\n", first}, {"two\n", second}} {
		_, err := io.WriteString(w, turn.say)
		c.OK(err, "write to the command")
		turn.wait.Wait(c, run)
	}
	c.OK(w.Close(), "close the input")
	run.Wait(c)
	c.OK(run.Err, "run")
	c.Same("a conversation", run.Out.Stdout, []byte("one\ntwo\n"))
}
