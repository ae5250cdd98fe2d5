// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"io"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
	"github.com/berth-dev/berth/sdk/driver"
)

func PTY() suite.Group {
	claimed := kit.Needs(driver.ProcPTY)
	return suite.Group{
		Name: "pty", Doc: "commands get terminals that behave like terminals",
		Checks: []suite.Check{
			{Name: "size", Needs: claimed, Func: ptySize},
			{Name: "size-by-default", Needs: claimed, Func: ptyDefaultSize},
			{Name: "resize", Needs: claimed, Func: ptyResize},
			{Name: "is-a-terminal", Needs: claimed, Tools: []string{"loops", "stty"}, Func: ptyIsTerminal},
			{Name: "one-stream", Needs: claimed, Func: ptyOneStream},
			{Name: "control-C", Needs: claimed, Tools: []string{"loops", "stty"}, Func: ptyInterrupt},
			{Name: "control-D", Needs: claimed, Tools: []string{"loops", "stty"}, Func: ptyEnd},
			{Name: "echo", Needs: claimed, Tools: []string{"loops", "stty"}, Func: ptyEcho},
			{Name: "UTF-8", Needs: claimed, Func: ptyUTF8},
			{Name: "10-MB", Needs: claimed, Tools: []string{"loops", "stty", "head"}, Func: ptyMuch},
			{Name: "exit-while-output-waits", Needs: claimed, Func: ptyExit},
			{Name: "attach", Needs: kit.Needs(driver.ProcPTY, driver.ProcDetached), Proves: claimed, Func: ptyAttach},
			{Name: "hang-up", Needs: claimed, Func: ptyHangUp},
		},
	}
}

// text is output without what a terminal makes of line ends.
func text(b []byte) string { return strings.ReplaceAll(string(b), "\r\n", "\n") }

func ptySize(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"stty", "size"}, TTY: true, Size: driver.Size{Rows: 37, Cols: 111}}, nil)
	if got := text(out.Stdout); got != "37 111\n" {
		c.Errorf("in a terminal of 37 × 111 stty says %q", got)
	}
}

func ptyDefaultSize(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"stty", "size"}, TTY: true}, nil)
	if got := text(out.Stdout); got != "24 80\n" {
		c.Errorf("in a terminal whose size was not said stty says %q, want 24 80", got)
	}
}

func ptyResize(c *kit.C) {
	resize := make(chan driver.Size, 1)
	r, w := io.Pipe()
	up := kit.Seen("up")
	run := kit.Begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"sh", "-c", "echo up; cat; stty size"}, TTY: true}, driver.Streams{
		Stdin: r, Stdout: up, Resize: resize,
	})
	up.Wait(c, run)
	resize <- driver.Size{Rows: 50, Cols: 132}
	// The size and the end of the input take different ways; the command looks when it is told to.
	c.Sh(c.Box(), "true")
	_, err := io.WriteString(w, "\x04")
	c.OK(err, "write")
	c.OK(w.Close(), "close")
	run.Wait(c)
	c.OK(run.Err, "run")
	if got := text(run.Out.Stdout); !strings.Contains(got, "50 132\n") {
		c.Errorf("after a resize to 50 × 132 the terminal said %q", got)
	}
}

func ptyIsTerminal(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "for fd in 0 1 2; do test -t $fd && echo $fd; done; echo > /dev/tty && echo controls"}, TTY: true}, nil)
	if got := text(out.Stdout); got != "0\n1\n2\n\ncontrols\n" {
		c.Errorf("what of a command with a terminal is one: %q", got)
	}
}

func ptyOneStream(c *kit.C) {
	out := c.Command(c.Box(), &driver.Command{Argv: []string{"sh", "-c", "echo out; echo err >&2"}, TTY: true}, nil)
	if got := text(out.Stdout); got != "out\nerr\n" || len(out.Stderr) > 0 {
		c.Errorf("a terminal gave %q on standard output and %q on standard error", got, out.Stderr)
	}
}

func ptyInterrupt(c *kit.C) {
	r, w := io.Pipe()
	up := kit.Seen("up")
	run := kit.Begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"sh", "-c", "echo up; exec sleep 3600"}, TTY: true}, driver.Streams{Stdin: r, Stdout: up})
	up.Wait(c, run)
	_, err := io.WriteString(w, "\x03")
	c.OK(err, "write ^C")
	run.Wait(c)
	c.OK(run.Err, "run")
	if run.Out.Exit.Signal != "INT" {
		c.Errorf("after ^C the command ended with %+v", run.Out.Exit)
	}
}

func ptyEnd(c *kit.C) {
	r, w := io.Pipe()
	first := kit.Seen("line")
	run := kit.Begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"sh", "-c", "stty -echo; echo ready line; cat; echo over"}, TTY: true}, driver.Streams{Stdin: r, Stdout: first})
	first.Wait(c, run)
	_, err := io.WriteString(w, "hello\n\x04")
	c.OK(err, "write ^D")
	run.Wait(c)
	c.OK(run.Err, "run")
	if got := text(run.Out.Stdout); got != "ready line\nhello\nover\n" {
		c.Errorf("a conversation that ^D ended: %q", got)
	}
}

func ptyEcho(c *kit.C) {
	r, w := io.Pipe()
	up, back := kit.Seen("up"), kit.Seen("typed")
	run := kit.Begin(c.Ctx(), c, c.Box(), &driver.Command{Argv: []string{"sh", "-c", "echo up; read x; echo got $x"}, TTY: true}, driver.Streams{Stdin: r, Stdout: io.MultiWriter(up, back)})
	up.Wait(c, run)
	_, err := io.WriteString(w, "typed")
	c.OK(err, "write")
	back.Wait(c, run)
	_, err = io.WriteString(w, "\n")
	c.OK(err, "write")
	run.Wait(c)
	if got := text(run.Out.Stdout); got != "up\ntyped\ngot typed\n" {
		c.Errorf("a terminal that echoes: %q", got)
	}
}

func ptyUTF8(c *kit.C) {
	box := c.Box()
	data := bytes.Repeat([]byte("日本語 äöü 😀 "), 20_000)
	name := c.Word("utf8")
	kit.Put(c, box, name, data)
	out := c.Command(box, &driver.Command{Argv: []string{"cat", name}, TTY: true}, nil)
	c.Same("many characters through a terminal", out.Stdout, data)
}

func ptyMuch(c *kit.C) {
	const want = 10 << 20
	var n kit.Counter
	// Without echo: the end of input is a character, which a raw terminal would show.
	_, err := c.Box().Run(c.Ctx(), &driver.Command{Argv: []string{"sh", "-c", "stty raw -echo; exec head -c 10485760 /dev/zero"}, TTY: true}, driver.Streams{Stdout: &n})
	c.OK(err, "run")
	if n.N != want {
		c.Errorf("of 10 MB through a terminal %d bytes came", n.N)
	}
}

func ptyExit(c *kit.C) {
	box := c.Box()
	name := c.Word("much")
	data := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	kit.Put(c, box, name, data)
	for range 3 {
		out := c.Command(box, &driver.Command{Argv: []string{"sh", "-c", "cat " + name + "; exit 7"}, TTY: true}, nil)
		c.Same("what a command printed on its terminal just before its end", out.Stdout, data)
		if out.Exit.Code != 7 {
			c.Errorf("it ended with %+v, want 7", out.Exit)
		}
	}
}

func ptyAttach(c *kit.C) {
	box := c.Box()
	text := bytes.Repeat([]byte("terminal "), 5000)
	id := kit.Spoken(c, box, text, &driver.Command{TTY: true})
	got, _ := kit.Follow(c, box, id, 0, len(text))
	c.Same("the replay of a terminal", got, text)
}

func ptyHangUp(c *kit.C) {
	box := c.Box()
	r, w := io.Pipe()
	up := kit.Seen("up")
	run := kit.Begin(c.Ctx(), c, box, &driver.Command{Argv: []string{"sh", "-c", "echo up; cat"}, TTY: true}, driver.Streams{Stdin: r, Stdout: up})
	up.Wait(c, run)
	c.OK(w.Close(), "close the input of a terminal")
	// The end of the input is no ^D: a terminal stays. A driver may end the command, and may leave it.
	if err := box.Signal(c.Ctx(), run.ID, driver.Signal{Name: "KILL"}); err != nil {
		c.Logf("the command had ended: %v", err)
	}
	run.Wait(c)
	c.OK(run.Err, "run")
}
