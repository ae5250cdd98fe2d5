// SPDX-License-Identifier: Apache-2.0

// Package format brings files of HCL into their canonical form. It changes spaces only: never the order, the line
// endings, a byte order mark or what a file means; and it refuses files that do not parse.
package format

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/berth-dev/berth/core/diag"
)

// Source gives the canonical form of a file.
func Source(name string, src []byte) ([]byte, diag.Diagnostics, diag.Files) {
	clean, bad := diag.Source(name, src)
	if bad != nil {
		return nil, diag.Diagnostics{bad}, diag.Files{name: {Bytes: src}}
	}
	mark := src[:len(src)-len(clean)]
	file, ds := hclsyntax.ParseConfig(clean, name, hcl.InitialPos)
	files := diag.Files{name: file}
	if file == nil {
		files[name] = &hcl.File{Bytes: clean}
	}
	if found := (diag.Converter{Files: files}).Convert(ds); found.HasErrors() {
		return nil, found, files
	}
	out := hclwrite.Format(clean)
	if !sameMeaning(clean, out) {
		// A fault of the formatter must not cost anybody their file.
		d := diag.Errorf(0, hcl.Range{Filename: name}, "the formatter would change what the file says").
			Helpf("the file was left alone; please report this with the file")
		return nil, diag.Diagnostics{d}, files
	}
	return append(slices.Clone(mark), out...), nil, files
}

// sameMeaning reports whether two sources differ in spaces between tokens only.
func sameMeaning(a, b []byte) bool {
	x, _ := hclsyntax.LexConfig(a, "", hcl.InitialPos)
	y, _ := hclsyntax.LexConfig(b, "", hcl.InitialPos)
	return slices.EqualFunc(x, y, func(p, q hclsyntax.Token) bool {
		if p.Type != q.Type {
			return false
		}
		if p.Type == hclsyntax.TokenOHeredoc || p.Type == hclsyntax.TokenCHeredoc {
			return bytes.Equal(bytes.TrimSpace(p.Bytes), bytes.TrimSpace(q.Bytes))
		}
		return bytes.Equal(p.Bytes, q.Bytes)
	})
}

// Command is `berth fmt`.
type Command struct {
	Dir       string    // what relative paths start from; empty = the working directory
	Paths     []string  // files and directories, or "-" alone for In; none = Dir
	Check     bool      // change nothing
	Diff      bool      // print what changes
	Recursive bool      // directories below, too
	In        io.Reader // for "-"
	Out       io.Writer // names of the files that change, their differences, or the formatted In
}

// Outcome is what a Command found.
type Outcome struct {
	Changed     []string // files that changed, or would; "-" for In
	Diagnostics diag.Diagnostics
	Files       diag.Files // for the snippets of Diagnostics
}

// Run formats. An error is a fault with files or streams; what is wrong inside files is in the outcome, and those files
// are left alone.
func (c Command) Run(ctx context.Context) (*Outcome, error) {
	out := &Outcome{Files: diag.Files{}}
	if slices.Contains(c.Paths, "-") {
		if len(c.Paths) > 1 {
			return nil, errors.New("format: - reads the standard input and cannot be combined with paths")
		}
		return out, c.stdin(out)
	}
	paths := c.Paths
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, p := range paths {
		if err := c.path(ctx, out, p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

const stdinName = "<stdin>"

func (c Command) stdin(out *Outcome) error {
	src, err := io.ReadAll(io.LimitReader(c.In, mostBytes+1))
	if err != nil {
		return fmt.Errorf("read the standard input: %w", err)
	}
	if len(src) > mostBytes {
		return fmt.Errorf("the standard input is larger than %d MiB", mostBytes>>20)
	}
	result, ds, files := Source(stdinName, src)
	out.Diagnostics, out.Files = ds, files
	if ds.HasErrors() {
		return nil
	}
	changed := !bytes.Equal(src, result)
	if changed {
		out.Changed = append(out.Changed, "-")
	}
	switch {
	case c.Diff && changed:
		_, err = io.WriteString(c.Out, Diff(stdinName, src, result))
	case !c.Check && !c.Diff:
		_, err = c.Out.Write(result)
	}
	return err
}

func (c Command) path(ctx context.Context, out *Outcome, path string) error {
	full := path
	if !filepath.IsAbs(full) {
		full = filepath.Join(c.Dir, path)
	}
	info, err := os.Stat(full)
	if err != nil {
		return fmt.Errorf("format %s: %w", path, err)
	}
	if !info.IsDir() {
		if !strings.HasSuffix(path, ".hcl") {
			return fmt.Errorf("format %s: only files with the suffix .hcl have a canonical form\nhint: name a directory to format those in it", path)
		}
		return c.file(out, full, path)
	}
	return c.dir(ctx, out, full, path)
}

func (c Command) dir(ctx context.Context, out *Outcome, full, shown string) error {
	return filepath.WalkDir(full, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("format %s: %w", shown, err)
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.IsDir() {
			if p != full && (!c.Recursive || strings.HasPrefix(e.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || !Wanted(e.Name()) {
			return nil
		}
		rel, err := filepath.Rel(full, p)
		if err != nil {
			return err
		}
		return c.file(out, p, filepath.Join(shown, rel))
	})
}

// Wanted reports whether a file of a directory is one of berth's, by its name.
func Wanted(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".berth.hcl") || strings.HasSuffix(name, ".berthvars.hcl"))
}

// mostBytes is the largest file that is formatted.
const mostBytes = 4 << 20

func (c Command) file(out *Outcome, full, shown string) error {
	info, err := os.Stat(full)
	if err != nil {
		return fmt.Errorf("format %s: %w", shown, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("format %s: not a regular file", shown)
	}
	if info.Size() > mostBytes {
		return fmt.Errorf("format %s: larger than %d MiB", shown, mostBytes>>20)
	}
	src, err := os.ReadFile(full)
	if err != nil {
		return fmt.Errorf("format %s: %w", shown, err)
	}
	result, ds, files := Source(shown, src)
	if len(ds) > 0 {
		out.Diagnostics = append(out.Diagnostics, ds...)
		out.Files[shown] = files[shown]
	}
	if ds.HasErrors() || bytes.Equal(src, result) {
		return nil
	}
	out.Changed = append(out.Changed, shown)
	if !c.Check {
		if err := replace(full, result, info.Mode().Perm()); err != nil {
			return fmt.Errorf("format %s: %w", shown, err)
		}
	}
	text := shown + "\n"
	if c.Diff {
		text = Diff(shown, src, result)
	}
	_, err = io.WriteString(c.Out, text)
	return err
}

// replace puts content in the place of a file in one step, so that no reader and no crash ever meets half of it.
func replace(path string, content []byte, mode fs.FileMode) (err error) {
	// A link stays one: what it leads to is replaced.
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".berth-fmt-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(content)
	if err == nil {
		err = keepOwner(tmp, path)
	}
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
