// SPDX-License-Identifier: Apache-2.0

// Package catalog finds drivers: which file is meant by a name, whether it may be run, and what it says of itself.
//
// Nothing is run to discover a driver; a description comes from a cache that is bound to the file's SHA-256, and from
// asking the driver once. A file or directory that somebody else could change is refused. Neither PATH nor the working directory is searched, and nothing is downloaded.
//
// The first rule that finds a file wins:
//
//  1. a driver that a debugger started: no version check, no lock, no file;
//  2. an override, from a flag or a dev_override block: no version check, no lock;
//  3. the directory of the running berth: drivers that were built or installed with it are trusted as berth is;
//  4. DIR/namespace/name/version/os_arch/berth-driver-name in the plugin directories, with the lock file's version;
//  5. DIR/berth-driver-name in the plugin directories, when the lock file has its hash or verification is off.
//
// A lock entry for a driver holds in rules 3 to 5: the first file that has its hash is taken, and when there is none it
// is an error under Verify "lock".
package catalog

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/core/catalog/digest"
	"github.com/berth-dev/berth/core/semver"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
)

// DefaultNamespace is the namespace of a driver that names none.
const DefaultNamespace = "berth"

const prefix = "berth-driver-"

// platform names the files that run here.
const platform = runtime.GOOS + "_" + runtime.GOARCH

var goodName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,38}$`) })

// Verify says what a missing or different hash in the lock file means.
type Verify string

// The ways to verify.
const (
	VerifyLock Verify = "lock" // an error
	VerifyWarn Verify = "warn" // the Reason of the Binary tells it
	VerifyNone Verify = "none"
)

// Config says where to look.
type Config struct {
	Dirs      []string                      // plugin directories
	Bundle    string                        // directory of the running berth; empty = rule 3 is off
	Attached  map[string]handshake.Reattach // by source (namespace/name)
	Overrides map[string]string             // source to path
	Verify    Verify                        // empty = lock
	CacheDir  string                        // of descriptions; empty = every description asks the driver
}

// Catalog finds drivers. It may be used from several goroutines.
type Catalog struct {
	cfg     Config
	digests digest.Cache
}

// Open makes a catalog.
func Open(cfg Config) (*Catalog, error) {
	switch cfg.Verify {
	case "":
		cfg.Verify = VerifyLock
	case VerifyLock, VerifyWarn, VerifyNone:
	default:
		return nil, fmt.Errorf("verify is %q; it is lock, warn or none", cfg.Verify)
	}
	return &Catalog{cfg: cfg}, nil
}

// Source is the address of a driver: what the requirement says, else the name in the default namespace.
func Source(name string, req spec.DriverRequirement) string {
	switch {
	case req.Source == "":
		return DefaultNamespace + "/" + name
	case strings.Contains(req.Source, "/"):
		return req.Source
	default:
		return DefaultNamespace + "/" + req.Source
	}
}

// Resolve finds the file of a driver. The lock file is the one in lockDir.
func (c *Catalog) Resolve(ctx context.Context, lockDir, name string, req spec.DriverRequirement) (Binary, error) {
	source := Source(name, req)
	namespace, base, _ := strings.Cut(source, "/")
	if !goodName().MatchString(base) || !goodName().MatchString(namespace) {
		return Binary{}, errs.New(errs.DriverUnknown, "%q is no name of a driver: small letters, digits and dashes", source)
	}
	lock, err := ReadLock(lockDir)
	if err != nil {
		return Binary{}, err
	}
	b := Binary{Name: base, Source: source}
	if at, ok := c.cfg.Attached[source]; ok {
		b.How, b.Path, b.Reattach = Attached, at.Addr, &at
		b.Reason = handshake.EnvReattach + " names this running driver; version and lock are not checked"
		return b, nil
	}
	entry := lock.Entry(source)
	if path := c.cfg.Overrides[source]; path != "" {
		b.How, b.Reason = Override, "a flag or a dev_override block names this file; version and lock are not checked"
		return b, c.take(&b, path)
	}
	if entry != nil {
		b.Version = entry.Version
		if err := fits(source, entry.Version, req); err != nil {
			return Binary{}, err
		}
	}
	found := c.candidates(b, entry)
	switch {
	case len(found) == 0:
		return Binary{}, c.unknown(source, entry)
	case entry != nil:
		return c.locked(found, entry, lock)
	case found[0].How == Unlocked && c.cfg.Verify == VerifyLock:
		return Binary{}, errs.New(errs.DriverChecksum, "driver %s is installed at %s, and the lock file %s does not know it",
			source, found[0].Path, lock.path).With("path", found[0].Path).WithHint("look at the file, then accept it: berth driver lock %s", base)
	}
	b = found[0]
	if err := c.take(&b, b.Path); err != nil {
		return Binary{}, err
	}
	return b, c.required(ctx, b, req)
}

// candidates are the files that a name may mean, in the order of the rules.
func (c *Catalog) candidates(b Binary, entry *LockEntry) []Binary {
	var out []Binary
	add := func(how How, reason string, elem ...string) {
		if path := filepath.Join(elem...); isFile(path) {
			found := b
			found.How, found.Reason, found.Path = how, reason, path
			out = append(out, found)
		}
	}
	namespace, _, _ := strings.Cut(b.Source, "/")
	if c.cfg.Bundle != "" && namespace == DefaultNamespace {
		add(Bundled, "it lies beside the running berth", c.cfg.Bundle, prefix+b.Name)
	}
	if entry != nil {
		for _, dir := range c.cfg.Dirs {
			add(Locked, "the lock file names version "+entry.Version, dir, namespace, b.Name, entry.Version, platform, prefix+b.Name)
		}
	}
	for _, dir := range c.cfg.Dirs {
		add(Unlocked, "it is the first in the plugin directories", dir, prefix+b.Name)
	}
	return out
}

// locked chooses the first file that has the hash of the lock entry, else judges the first as the file that was meant.
func (c *Catalog) locked(found []Binary, entry *LockEntry, lock *Lock) (Binary, error) {
	want := entry.Hashes[platform]
	for _, b := range found {
		if err := c.take(&b, b.Path); err == nil && want == "sha256:"+b.SHA256 {
			if b.How != Locked {
				b.Reason += ", and has the hash of the lock file"
			}
			return b, nil
		}
	}
	return c.check(found[0], found[0].Path, entry, lock)
}

// required holds a driver that the lock file does not know against the version that the project requires.
func (c *Catalog) required(ctx context.Context, b Binary, req spec.DriverRequirement) error {
	if req.Version == "" {
		return nil
	}
	d, err := c.Describe(ctx, b)
	if err != nil {
		return err
	}
	if err := fits(b.Source, d.Version, req); errs.CodeOf(err) == errs.DriverIncompatible {
		return errs.New(errs.DriverIncompatible, "driver %s at %s has version %s, the project requires %q", b.Source, b.Path, d.Version, req.Version).
			WithHint("install a version that fits, or change required_drivers")
	} else if err != nil {
		return err
	}
	return nil
}

func fits(source, version string, req spec.DriverRequirement) error {
	if req.Version == "" {
		return nil
	}
	want, err := semver.ParseConstraint(req.Version)
	if err != nil {
		return errs.New(errs.ConfigInvalid, "driver %s: version %q: %v", source, req.Version, err)
	}
	have, err := semver.Parse(version)
	if err != nil {
		return errs.New(errs.ConfigInvalid, "driver %s: the lock file has version %q: %v", source, version, err)
	}
	if !want.Allows(have) {
		return errs.New(errs.DriverIncompatible, "driver %s is locked at version %s, the project requires %q", source, version, req.Version).
			WithHint("install a version that fits, then: berth driver lock %s", source)
	}
	return nil
}

// unknown says that a driver is not there, and which are.
func (c *Catalog) unknown(source string, entry *LockEntry) error {
	versions := strings.Join(c.versions(source), ", ")
	e := errs.New(errs.DriverUnknown, "there is no driver %s on this machine; installed: %s", source, strings.Join(c.names(), ", "))
	switch {
	case entry != nil && versions != "":
		e = errs.New(errs.DriverUnknown, "driver %s %s of the lock file is not installed; other versions are: %s", source, entry.Version, versions)
	case entry != nil:
		e = errs.New(errs.DriverUnknown, "driver %s %s of the lock file is not installed", source, entry.Version)
	case versions != "":
		return errs.New(errs.DriverChecksum, "driver %s is installed in version %s, and the lock file names none", source, versions).
			With("driver", source).WithHint("accept it: berth driver lock %s", source)
	}
	where := slices.Clone(c.cfg.Dirs)
	if c.cfg.Bundle != "" {
		where = append([]string{c.cfg.Bundle}, where...)
	}
	return e.With("driver", source).WithHint("put %s into one of: %s", prefix+filepath.Base(source), strings.Join(where, ", "))
}

// check takes the file, and holds it against the lock file.
func (c *Catalog) check(b Binary, path string, entry *LockEntry, lock *Lock) (Binary, error) {
	if err := c.take(&b, path); err != nil {
		return Binary{}, err
	}
	want := entry.Hashes[platform]
	if want == "sha256:"+b.SHA256 {
		return b, nil
	}
	if c.cfg.Verify != VerifyLock {
		b.Reason += "; its hash is not that of the lock file, and verify is " + string(c.cfg.Verify)
		if b.How != Locked {
			b.Version = "" // that is the other file's
		}
		return b, nil
	}
	if want == "" {
		want = "none for " + platform
	}
	size, changed := "?", "?"
	if fi, err := os.Stat(b.Path); err == nil {
		size, changed = fmt.Sprint(fi.Size()), fi.ModTime().UTC().Format("2006-01-02 15:04:05Z")
	}
	return Binary{}, errs.New(errs.DriverChecksum,
		"driver %s is not the file that was locked\n  file      %s (%s bytes, changed %s)\n  found     sha256:%s\n  expected  %s\n  lock file %s, version %s",
		b.Source, b.Path, size, changed, b.SHA256, want, lock.path, entry.Version).With("path", b.Path).
		WithHint("if the new file is wanted: berth driver lock %s", b.Name)
}

// take fills in path and hash, after the file's rights were found fit.
func (c *Catalog) take(b *Binary, path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return errs.New(errs.DriverUnknown, "driver %s: %v", b.Source, err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return err
	}
	if err := trusted(real); err != nil {
		return err
	}
	if b.SHA256, err = c.digests.SumPath(real); err != nil {
		return errs.New(errs.DriverStartFailed, "driver %s: %v", b.Source, err)
	}
	b.Path = real
	return nil
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0
}

// Names are the drivers that are installed, sorted, as a project names them.
func (c *Catalog) Names() []string {
	var out []string
	for _, source := range c.Sources() {
		out = append(out, filepath.Base(source))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Sources are the drivers that are installed, sorted, by namespace and name.
func (c *Catalog) Sources() []string {
	seen := map[string]bool{}
	for source := range c.cfg.Attached {
		seen[source] = true
	}
	for source := range c.cfg.Overrides {
		seen[source] = true
	}
	flat := slices.Clone(c.cfg.Dirs)
	if c.cfg.Bundle != "" {
		flat = append(flat, c.cfg.Bundle)
	}
	for _, dir := range flat {
		files, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		for _, f := range files {
			if name := strings.TrimPrefix(filepath.Base(f), prefix); err == nil && goodName().MatchString(name) && isFile(f) {
				seen[DefaultNamespace+"/"+name] = true
			}
		}
	}
	for _, dir := range c.cfg.Dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*", "*", "*", platform, prefix+"*"))
		for _, f := range files {
			rel, relErr := filepath.Rel(dir, f)
			parts := strings.Split(rel, string(filepath.Separator))
			if err == nil && relErr == nil && parts[4] == prefix+parts[1] && isFile(f) {
				seen[parts[0]+"/"+parts[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func (c *Catalog) names() []string {
	if n := c.Names(); len(n) > 0 {
		return n
	}
	return []string{"none"}
}
