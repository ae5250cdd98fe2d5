// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-dev/berth/sdk/errs"
)

// LockFile is the name of the lock file in a project's directory.
const LockFile = ".berth.lock.hcl"

// Lock says which drivers a project was made with.
type Lock struct {
	path    string
	Entries []LockEntry // sorted by source
}

// LockEntry is one driver.
type LockEntry struct {
	Source      string            `hcl:"source,label"`
	Version     string            `hcl:"version"`
	Constraints string            `hcl:"constraints,optional"`
	Protocol    []int             `hcl:"protocol,optional"`
	Hashes      map[string]string `hcl:"hashes"` // os_arch to "sha256:…"
}

// ReadLock reads the lock file of a directory; without one the lock is empty.
func ReadLock(dir string) (*Lock, error) {
	l := &Lock{path: filepath.Join(dir, LockFile)}
	src, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) || dir == "" {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lock file: %w", err)
	}
	file, ds := hclparse.NewParser().ParseHCL(src, l.path)
	if ds.HasErrors() {
		return nil, lockError(ds)
	}
	var body struct {
		Drivers []LockEntry `hcl:"driver,block"`
	}
	if ds := gohcl.DecodeBody(file.Body, nil, &body); ds.HasErrors() {
		return nil, lockError(ds)
	}
	for _, e := range body.Drivers {
		if l.Entry(e.Source) != nil {
			return nil, errs.New(errs.ConfigInvalid, "%s: driver %q stands twice", l.path, e.Source).
				WithHint("keep one, or remove the file and run berth init")
		}
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

func lockError(ds hcl.Diagnostics) error {
	e := errs.New(errs.ConfigInvalid, "the lock file cannot be read").WithHint("restore it from version control, or remove it and run berth init")
	e.Err = ds
	return e
}

// Entry gives the entry of a driver; nil when there is none.
func (l *Lock) Entry(source string) *LockEntry {
	for i := range l.Entries {
		if l.Entries[i].Source == source {
			return &l.Entries[i]
		}
	}
	return nil
}

// Path is where the lock file is, or would be.
func (l *Lock) Path() string { return l.path }

// Set puts an entry in place of the one of the same driver. Hashes of other platforms stay when the version is the same.
func (l *Lock) Set(e LockEntry) {
	old := l.Entry(e.Source)
	if old == nil {
		l.Entries = append(l.Entries, e)
		slices.SortFunc(l.Entries, func(a, b LockEntry) int { return bytes.Compare([]byte(a.Source), []byte(b.Source)) })
		return
	}
	if old.Version == e.Version {
		hashes := maps.Clone(old.Hashes)
		maps.Copy(hashes, e.Hashes)
		e.Hashes = hashes
	}
	*old = e
}

// Write writes the lock file, atomically.
func (l *Lock) Write() error {
	f := hclwrite.NewEmptyFile()
	f.Body().AppendUnstructuredTokens(hclwrite.Tokens{{Bytes: []byte("# Written by berth init and berth driver lock. Commit it.\n")}})
	for _, e := range l.Entries {
		f.Body().AppendNewline()
		b := f.Body().AppendNewBlock("driver", []string{e.Source}).Body()
		b.SetAttributeValue("version", cty.StringVal(e.Version))
		if e.Constraints != "" {
			b.SetAttributeValue("constraints", cty.StringVal(e.Constraints))
		}
		if len(e.Protocol) > 0 {
			var ps []cty.Value
			for _, p := range e.Protocol {
				ps = append(ps, cty.NumberIntVal(int64(p)))
			}
			b.SetAttributeValue("protocol", cty.TupleVal(ps))
		}
		hashes := map[string]cty.Value{}
		for k, v := range e.Hashes {
			hashes[k] = cty.StringVal(v)
		}
		b.SetAttributeValue("hashes", cty.ObjectVal(hashes))
	}
	tmp, err := os.CreateTemp(filepath.Dir(l.path), LockFile+".*")
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	defer os.Remove(tmp.Name()) // it is gone when all went well
	_, err = tmp.Write(hclwrite.Format(f.Bytes()))
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	return os.Rename(tmp.Name(), l.path)
}
