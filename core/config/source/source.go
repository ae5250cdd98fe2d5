// SPDX-License-Identifier: Apache-2.0

// Package source finds, reads and parses the files of a project.
package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"

	"github.com/berth-dev/berth/core/config/bound"
	"github.com/berth-dev/berth/core/diag"
)

// maxSize bounds one file; diag bounds its depth.
const maxSize = 1 << 20

// The suffixes of files.
const (
	hclSuffix      = ".berth.hcl"
	jsonSuffix     = ".berth.json"
	varsHCLSuffix  = ".berthvars.hcl"
	varsJSONSuffix = ".berthvars.json"
)

// File is one parsed file.
type File struct {
	Name string // as in ranges
	Dir  string // absolute directory
	Body hcl.Body
	JSON bool
}

// Sources holds every file that was read, for snippets.
type Sources struct {
	Files diag.Files
}

// New makes an empty set.
func New() *Sources { return &Sources{Files: diag.Files{}} }

// Text gives the bytes of a range; "" when the file is not at hand.
func (s *Sources) Text(r hcl.Range) string {
	f := s.Files[r.Filename]
	if f == nil || r.Start.Byte < 0 || r.End.Byte > len(f.Bytes) || r.Start.Byte > r.End.Byte {
		return ""
	}
	return string(f.Bytes[r.Start.Byte:r.End.Byte])
}

// Layout is what a directory holds.
type Layout struct {
	Dir     string // absolute
	Shown   string // as the user wrote it; "" for the working directory
	Configs []string
	Auto    []string // *.auto.berthvars.*, in byte order
}

// Find looks at a directory, or at one file with the automatic variables beside it.
func Find(path string) (Layout, diag.Diagnostics) {
	info, err := os.Stat(path)
	if err != nil {
		return Layout{}, diag.Diagnostics{unreadable(path, err)}
	}
	dir, single := path, ""
	if !info.IsDir() {
		dir, single = filepath.Dir(path), filepath.Base(path)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Layout{}, diag.Diagnostics{unreadable(path, err)}
	}
	lay := Layout{Dir: abs, Shown: filepath.Clean(dir)}
	if lay.Shown == "." {
		lay.Shown = ""
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return lay, diag.Diagnostics{unreadable(path, err)}
	}
	for _, e := range entries {
		n := e.Name()
		switch {
		case e.IsDir():
		case isAuto(n):
			lay.Auto = append(lay.Auto, n)
		case single == "" && (strings.HasSuffix(n, hclSuffix) || strings.HasSuffix(n, jsonSuffix)):
			lay.Configs = append(lay.Configs, n)
		}
	}
	if single != "" {
		if !strings.HasSuffix(single, hclSuffix) && !strings.HasSuffix(single, jsonSuffix) {
			return lay, diag.Diagnostics{diag.Errorf(diag.WrongFileKind, hcl.Range{},
				"%q is not a file of a berth project", path).
				Helpf("the names of configuration files end in %s or %s", hclSuffix, jsonSuffix)}
		}
		lay.Configs = []string{single}
	}
	sort.Strings(lay.Configs)
	sort.Strings(lay.Auto)
	if len(lay.Configs) == 0 {
		return lay, diag.Diagnostics{diag.Errorf(diag.UnreadableSource, hcl.Range{}, "no configuration in %q", path).
			Helpf("berth reads every file that ends in %s or %s in the directory", hclSuffix, jsonSuffix).
			Helpf("berth init DIR writes a first project")}
	}
	return lay, nil
}

func isAuto(n string) bool {
	return strings.HasSuffix(n, ".auto"+varsHCLSuffix) || strings.HasSuffix(n, ".auto"+varsJSONSuffix)
}

// IsVars reports whether a name is that of a file with values of variables.
func IsVars(name string) bool {
	return strings.HasSuffix(name, varsHCLSuffix) || strings.HasSuffix(name, varsJSONSuffix)
}

// Show gives the name of a file of the layout as ranges show it.
func (l Layout) Show(name string) string { return filepath.Join(l.Shown, name) }

// Read reads and parses one file. The file is nil when nothing of it can be used; the body may be partial when there
// are errors.
func (s *Sources) Read(path, shown string) (*File, diag.Diagnostics) {
	raw, err := readBounded(path)
	if err != nil {
		return nil, diag.Diagnostics{unreadable(shown, err)}
	}
	abs, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, diag.Diagnostics{unreadable(shown, err)}
	}
	return s.Parse(raw, shown, abs)
}

// Parse parses the bytes of a file.
func (s *Sources) Parse(raw []byte, shown, dir string) (*File, diag.Diagnostics) {
	src, bad := diag.Source(shown, raw)
	if bad != nil {
		s.Files[shown] = &hcl.File{Bytes: raw}
		return nil, diag.Diagnostics{bad}
	}
	isJSON := strings.HasSuffix(shown, ".json")
	var file *hcl.File
	var found hcl.Diagnostics
	if isJSON {
		file, found = json.Parse(src, shown)
	} else {
		file, found = hclsyntax.ParseConfig(src, shown, hcl.InitialPos)
	}
	if file == nil || file.Body == nil {
		file = &hcl.File{Bytes: src}
	}
	if file.Bytes == nil {
		file.Bytes = src
	}
	bound.Prepare(file.Body)
	s.Files[shown] = file
	ds := diag.Converter{Files: s.Files, JSON: isJSON}.Convert(found)
	if file.Body == nil || isJSON && ds.HasErrors() {
		return nil, ds
	}
	return &File{Name: shown, Dir: dir, Body: file.Body, JSON: isJSON}, ds
}

func readBounded(path string) (_ []byte, err error) {
	// A FIFO would block an ordinary open for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxSize {
		return nil, fmt.Errorf("larger than %d bytes; keep data in files of its own and read it with file() or local_file", maxSize)
	}
	return raw, nil
}

func unreadable(path string, err error) *diag.Diagnostic {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return diag.Errorf(diag.UnreadableSource, hcl.Range{}, "cannot read %q: %v", path, err)
}
