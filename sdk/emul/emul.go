// SPDX-License-Identifier: Apache-2.0

package emul

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Runner is the part of a sandbox that is needed.
type Runner interface {
	Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error)
}

// Options are for [New]; the zero value is a workspace without granted paths.
type Options struct {
	Grants []string // further absolute paths that may be reached
}

// Emulator is a [driver.FileSystem] and a [driver.TreeIO] made of commands. It may be used from several goroutines.
type Emulator struct {
	box  Runner
	opts Options

	mu    sync.Mutex
	tools *tools // guarded by mu; nil until the first call
}

var (
	_ driver.FileSystem = (*Emulator)(nil)
	_ driver.TreeIO     = (*Emulator)(nil)
)

// New makes an emulator. Nothing is run until the first call.
func New(box Runner, opts Options) *Emulator { return &Emulator{box: box, opts: opts} }

// tools is what a sandbox has.
type tools struct {
	root     string // of the workspace, without links
	missing  map[string]bool
	printf   bool   // find has -printf
	prelude  string // of every script
	explains string // why there is nothing at all; empty = there is
}

const probe = `for c in cat tar find stat mkdir rmdir rm mv ln chmod chown touch head tail readlink; do
  command -v "$c" >/dev/null 2>&1 || printf 'missing %s\n' "$c"
done
find / -prune -printf 'printf\n' 2>/dev/null
printf 'root %s' "$(pwd -P)"`

// probed finds out what there is, once. A probe that the transport broke is repeated by the next call.
func (e *Emulator) probed(ctx context.Context) (*tools, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tools != nil {
		return e.tools, nil
	}
	var out bytes.Buffer
	exit, err := e.box.Run(ctx, &driver.Command{Argv: []string{"sh", "-c", probe}}, driver.Streams{Stdout: &out})
	t := &tools{missing: map[string]bool{}}
	switch {
	case errors.Is(err, errs.ExecNotFound):
		t.explains = "the sandbox has no shell"
	case err != nil:
		return nil, errs.Wrap(errs.ExecTransport, "probe the sandbox's tools", err)
	case exit.Code != 0:
		t.explains = "the sandbox's shell does not work"
	}
	head, root, ok := strings.Cut(out.String(), "root ")
	if t.explains == "" && (!ok || !path.IsAbs(root)) {
		t.explains = "the sandbox's shell gives no working directory"
	}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "missing "); ok {
			t.missing[name] = true
		}
		t.printf = t.printf || line == "printf"
	}
	t.root = root
	t.prelude = prelude(append([]string{root}, e.opts.Grants...))
	e.tools = t
	return t, nil
}

// use gives the tools, and fails when one that is needed is missing.
func (e *Emulator) use(ctx context.Context, f driver.Feature, need ...string) (*tools, error) {
	t, err := e.probed(ctx)
	if err != nil {
		return nil, err
	}
	why := t.explains
	for _, name := range need {
		if why == "" && t.missing[name] {
			why = "the sandbox has no " + name
		}
	}
	if why != "" {
		return nil, errs.New(errs.Unsupported, "%s, which this driver needs for it", why).With("feature", string(f)).
			WithHint("use an image that has a shell and the usual tools")
	}
	return t, nil
}

// split gives the directory and the name of a path, made absolute. The workspace itself and the root have the name ".".
func (t *tools) split(p string) (dir, base string, err error) {
	if strings.Contains(p, "\x00") {
		return "", "", errs.New(errs.InvalidArgument, "the path has a NUL byte")
	}
	abs := p
	if !path.IsAbs(p) {
		abs = t.root + "/" + p
	}
	// Not path.Clean: ".." after a link is not what the text says. Only the last component has to be a name.
	abs = strings.TrimRight(abs, "/")
	if abs == "" || path.Clean(abs) == t.root {
		return path.Clean("/" + abs), ".", nil
	}
	i := strings.LastIndexByte(abs, '/')
	dir, base = abs[:i], abs[i+1:]
	if dir == "" {
		dir = "/"
	}
	if base == "." || base == ".." || base == "" {
		return abs, ".", nil
	}
	return dir, base, nil
}

// call is one run of a script.
type call struct {
	op     string
	path   string // for errors
	script string
	args   []string
	user   string
	stdin  io.Reader
	stdout io.Writer
}

// run runs a script and turns its failure into an error.
func (e *Emulator) run(ctx context.Context, t *tools, c call) error {
	stderr := &tailBuffer{}
	exit, err := e.box.Run(ctx, &driver.Command{
		Argv: append([]string{"sh", "-c", t.prelude + c.script, "sh"}, c.args...),
		Env:  map[string]string{"LC_ALL": "C", "TZ": "UTC0"},
		User: c.user,
	}, driver.Streams{Stdin: c.stdin, Stdout: c.stdout, Stderr: stderr})
	if err != nil {
		return errs.Wrap(errs.ExecTransport, c.op, err)
	}
	if exit.Code == 0 {
		return nil
	}
	return failure(c, exit, stderr.String())
}

// output runs a script and gives what it prints.
func (e *Emulator) output(ctx context.Context, t *tools, c call) ([]byte, error) {
	var out bytes.Buffer
	c.stdout = &out
	err := e.run(ctx, t, c)
	return out.Bytes(), err
}

// failure reads what a script said: a line of our own, else what a tool printed.
func failure(c call, exit driver.Exit, said string) error {
	said = strings.TrimSpace(said)
	last := said[strings.LastIndexByte(said, '\n')+1:]
	code, message := errs.Internal, last
	if word, ok := strings.CutPrefix(last, "berth:"); ok {
		code, message = errs.Code(word), strings.ReplaceAll(word, "_", " ")
	} else {
		for _, k := range []struct {
			text string
			code errs.Code
		}{
			{"No such file or directory", errs.FileNotFound},
			{"Permission denied", errs.PermissionDenied},
			{"Operation not permitted", errs.PermissionDenied},
			{"Read-only file system", errs.ReadOnly},
			{"No space left", errs.NoSpace},
			{"Disk quota exceeded", errs.NoSpace},
			{"File exists", errs.FileExists},
			{"Is a directory", errs.IsDirectory},
			{"Not a directory", errs.NotDirectory},
			{"Directory not empty", errs.DirectoryNotEmpty},
			{"subdirectory of itself", errs.InvalidArgument},
			{"Invalid argument", errs.InvalidArgument},
			{"invalid user", errs.InvalidArgument},
			{"unknown user", errs.InvalidArgument},
			{"invalid group", errs.InvalidArgument},
		} {
			if strings.Contains(said, k.text) {
				code = k.code
				break
			}
		}
	}
	if message == "" {
		message = "the sandbox's shell failed"
	}
	err := errs.New(code, "%s", message).With("path", c.path)
	err.Op = c.op
	if exit.Signal != "" {
		err.Message += " (ended by signal " + exit.Signal + ")"
	}
	return err
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct{ b []byte }

const tailMax = 8 << 10

// Write keeps the last bytes.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - tailMax; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// String gives what was kept.
func (t *tailBuffer) String() string { return string(t.b) }
