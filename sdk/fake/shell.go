// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// frame is one command in execution.
type frame struct {
	p   *process
	in  io.Reader
	out func([]byte) error
	err func([]byte) error
	env map[string]string
	dir string
}

// exited is the error of the built-in exit, and of a command that failed to be one.
type exited int

func (e exited) Error() string { return "exit " + strconv.Itoa(int(e)) }

type builtin func(f *frame, args []string) (int, error)

// builtins is a function and no variable: sh refers back to it.
func builtins(name string) builtin {
	switch name {
	case "true", ":":
		return func(*frame, []string) (int, error) { return 0, nil }
	case "false":
		return func(*frame, []string) (int, error) { return 1, nil }
	case "exit":
		return func(_ *frame, a []string) (int, error) { return 0, exited(number(a, 0, 0)) }
	case "echo":
		return echo
	case "printf":
		return func(f *frame, a []string) (int, error) { return 0, f.out([]byte(format(a))) }
	case "cat":
		return cat
	case "tee":
		return tee
	case "sleep":
		return sleep
	case "pwd":
		return func(f *frame, _ []string) (int, error) { return 0, f.out([]byte(f.dir + "\n")) }
	case "cd":
		return func(f *frame, a []string) (int, error) {
			f.dir = f.path(strings.Join(a, " "))
			return 0, nil
		}
	case "env":
		return environ
	case "count":
		return func(f *frame, a []string) (int, error) { return 0, lines(f, a, false) }
	case "both":
		return func(f *frame, a []string) (int, error) { return 0, lines(f, a, true) }
	case "signal":
		return func(f *frame, a []string) (int, error) {
			f.p.signal(strings.TrimPrefix(strings.Join(a, ""), "SIG"))
			return 0, errEnded
		}
	case "kill":
		return func(f *frame, a []string) (int, error) {
			for _, arg := range a {
				if name, ok := strings.CutPrefix(arg, "-"); ok && name != "0" {
					f.p.signal(name)
					return 0, f.p.wait(0)
				}
			}
			return 0, nil
		}
	case "id":
		return func(f *frame, _ []string) (int, error) {
			return 0, f.out([]byte(cmp.Or(f.p.cmd.User, "root") + "\n"))
		}
	case "ln":
		return link
	case "trap":
		return func(f *frame, _ []string) (int, error) {
			f.p.mu.Lock()
			defer f.p.mu.Unlock()
			f.p.deaf = true
			return 0, nil
		}
	case "stty":
		return func(f *frame, _ []string) (int, error) {
			f.p.mu.Lock()
			size := f.p.size
			f.p.mu.Unlock()
			return 0, f.out(fmt.Appendf(nil, "%d %d\n", size.Rows, size.Cols))
		}
	case "listen", "web":
		return listen
	case "rm":
		return remove
	case "mkdir":
		return mkdir
	case "test", "[":
		return test
	case "sh", "bash":
		return shell
	}
	return nil
}

func known(argv0 string) bool { return builtins(path.Base(argv0)) != nil }

// interpret runs the whole command.
func (p *process) interpret() (int, error) {
	f := &frame{
		p: p, in: p.in, env: p.env, dir: p.dir(),
		out: func(b []byte) error { return p.write(stdout, b) },
		err: func(b []byte) error { return p.write(stderr, b) },
	}
	code, err := builtins(path.Base(p.cmd.Argv[0]))(f, p.cmd.Argv[1:])
	if e, ok := errors.AsType[exited](err); ok {
		return int(e) & 255, nil
	}
	return code, err
}

func (f *frame) path(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(f.dir, p)
}

func (f *frame) complain(name string, err error) (int, error) {
	return 1, f.err(fmt.Appendf(nil, "%s: %s\n", name, err))
}

func number(args []string, i, fallback int) int {
	if i < len(args) {
		if n, err := strconv.Atoi(args[i]); err == nil {
			return n
		}
	}
	return fallback
}

func echo(f *frame, args []string) (int, error) {
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		args, end = args[1:], ""
	}
	return 0, f.out([]byte(strings.Join(args, " ") + end))
}

func format(args []string) string {
	if len(args) == 0 {
		return ""
	}
	text := strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(args[0])
	for _, a := range args[1:] {
		text = strings.Replace(text, "%s", a, 1)
	}
	return strings.ReplaceAll(text, "%%", "%")
}

func cat(f *frame, args []string) (int, error) {
	if len(args) == 0 {
		buf := make([]byte, 32<<10)
		for {
			n, err := f.in.Read(buf)
			if n > 0 {
				if werr := f.out(buf[:n]); werr != nil {
					return 1, werr
				}
			}
			if errors.Is(err, io.EOF) {
				return 0, nil
			}
			if err != nil {
				return 1, err
			}
		}
	}
	code := 0
	for _, name := range args {
		data, err := f.p.s.fs.read(f.path(name))
		if err != nil {
			if _, err := f.complain("cat: "+name, err); err != nil {
				return 1, err
			}
			code = 1
			continue
		}
		if err := f.out(data); err != nil {
			return 1, err
		}
	}
	return code, nil
}

func tee(f *frame, args []string) (int, error) {
	data, err := io.ReadAll(f.in)
	if err != nil {
		return 1, err
	}
	for _, name := range args {
		if err := f.p.s.fs.write(f.path(name), data, false); err != nil {
			return f.complain("tee", err)
		}
	}
	return 0, f.out(data)
}

func sleep(f *frame, args []string) (int, error) {
	if len(args) == 0 {
		return f.complain("sleep", errors.New("how long?"))
	}
	if args[0] == "infinity" {
		<-f.p.ended
		return 0, errEnded
	}
	d, err := duration(args[0])
	if err != nil {
		return f.complain("sleep", err)
	}
	return 0, f.p.wait(d)
}

func duration(s string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(n * float64(time.Second)), nil
	}
	return time.ParseDuration(s)
}

func environ(f *frame, _ []string) (int, error) {
	for _, k := range slices.Sorted(maps.Keys(f.env)) {
		if err := f.out([]byte(k + "=" + f.env[k] + "\n")); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// Line is the line number n, of size bytes, that count and both write.
func Line(n, size int) []byte {
	b := fmt.Appendf(nil, "%08d ", n)
	for len(b) < size-1 {
		b = append(b, 'a'+byte((n+len(b))%26))
	}
	return append(b[:max(size-1, 0)], '\n')
}

func lines(f *frame, args []string, odd bool) error {
	size := number(args, 1, 16)
	var interval time.Duration
	if len(args) > 2 {
		d, err := duration(args[2])
		if err != nil {
			return exited(2)
		}
		interval = d
	}
	for i := range number(args, 0, 1) {
		if i > 0 {
			if err := f.p.wait(interval); err != nil {
				return err
			}
		}
		out := f.out
		if odd && i%2 == 1 {
			out = f.err
		}
		if err := out(Line(i, size)); err != nil {
			return err
		}
	}
	return nil
}

func listen(f *frame, args []string) (int, error) {
	port := uint16(number(args, 0, 0))
	s := f.p.s
	s.mu.Lock()
	if s.servers[port] != nil {
		s.mu.Unlock()
		return f.complain("listen", errors.New("address in use"))
	}
	s.servers[port] = f.p
	s.tellLocked(driver.Event{Kind: driver.EventPortOpened, Port: port})
	s.mu.Unlock()
	<-f.p.ended
	s.mu.Lock()
	delete(s.servers, port)
	s.tellLocked(driver.Event{Kind: driver.EventPortClosed, Port: port})
	s.mu.Unlock()
	return 0, errEnded
}

func remove(f *frame, args []string) (int, error) {
	t := f.p.s.fs
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range args {
		if strings.HasPrefix(name, "-") {
			continue
		}
		if at, err := t.findLocked(f.path(name), false); err == nil && at.node != nil && at.dir != nil {
			delete(at.dir.Children, at.name)
			t.touchLocked(nil, driver.FileRemoved, at.path)
		}
	}
	return 0, nil
}

func mkdir(f *frame, args []string) (int, error) {
	t := f.p.s.fs
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range args {
		if strings.HasPrefix(name, "-") {
			continue
		}
		if at, err := t.findLocked(f.path(name), true); err == nil && at.node != nil {
			continue
		}
		if err := t.putLocked(f.path(name), directory(), true); err != nil {
			return 1, nil // the exit code is the answer
		}
	}
	return 0, nil
}

// link makes symbolic links: ln -s TARGET NAME.
func link(f *frame, args []string) (int, error) {
	if len(args) != 3 || args[0] != "-s" {
		return 1, nil
	}
	t := f.p.s.fs
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &node{Kind: driver.TypeSymlink, Mode: 0o777, User: "root", Group: "root", Time: time.Now(), Target: args[1]}
	if err := t.putLocked(f.path(args[2]), n, false); err != nil {
		return 1, nil // the exit code is the answer
	}
	return 0, nil
}

func test(f *frame, args []string) (int, error) {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "]" })
	if len(args) == 3 {
		holds := map[string]bool{"=": args[0] == args[2], "!=": args[0] != args[2], "-eq": args[0] == args[2], "-ne": args[0] != args[2]}
		if holds[args[1]] {
			return 0, nil
		}
		return 1, nil
	}
	if len(args) < 2 {
		return 1, nil
	}
	t := f.p.s.fs
	t.mu.Lock()
	defer t.mu.Unlock()
	at, err := t.findLocked(f.path(args[1]), true)
	if args[0] == "-L" {
		at, err = t.findLocked(f.path(args[1]), false)
	}
	ok := err == nil && at.node != nil && (args[0] == "-e" || args[0] == "-L" && at.node.Kind == driver.TypeSymlink ||
		args[0] == "-d" && at.node.Kind == driver.TypeDirectory || args[0] == "-f" && at.node.Kind == driver.TypeRegular)
	if ok {
		return 0, nil
	}
	return 1, nil
}

// shell runs sh -c SCRIPT.
func shell(f *frame, args []string) (int, error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if strings.Contains(args[0], "c") && len(args) > 1 {
			return script(f, args[1])
		}
		args = args[1:]
	}
	text, err := io.ReadAll(f.in)
	if err != nil {
		return 1, err
	}
	return script(f, string(text))
}

// pipeline runs commands whose outputs are the next one's input.
func pipeline(f *frame, commands [][]word) (int, error) {
	in := f.in
	for i, c := range commands {
		g := *f
		g.in = in
		var buf *bytes.Buffer
		if i < len(commands)-1 {
			buf = &bytes.Buffer{}
			g.out = func(b []byte) error { buf.Write(b); return nil }
		}
		code, err := simple(&g, c)
		if len(commands) == 1 {
			f.dir = g.dir
		}
		if err != nil || i == len(commands)-1 {
			return code, err
		}
		in = buf
	}
	return 0, nil
}
