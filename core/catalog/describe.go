// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/core/semver"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/handshake"
	"github.com/berth-dev/berth/sdk/wire"
)

// Describe gives what a driver says of itself, from the cache when the same file was asked before. What it enforces on
// this machine may have changed since; [Catalog.Ask] asks again.
func (c *Catalog) Describe(ctx context.Context, b Binary) (driver.Description, error) {
	if b.SHA256 == "" || c.cfg.CacheDir == "" {
		return c.Ask(ctx, b)
	}
	text, err := os.ReadFile(c.cacheFile(b))
	if err == nil {
		if d, err := wire.UnmarshalDescription(text); err == nil {
			return d, nil
		}
	}
	return c.Ask(ctx, b)
}

func (c *Catalog) cacheFile(b Binary) string {
	return filepath.Join(c.cfg.CacheDir, "schema", b.SHA256+".json")
}

// Ask runs the driver's describe command, and keeps the answer. A driver that runs already is asked itself.
func (c *Catalog) Ask(ctx context.Context, b Binary) (driver.Description, error) {
	if b.Reattach != nil {
		return askAttached(ctx, b)
	}
	dir, err := os.MkdirTemp("", "berth-describe-")
	if err != nil {
		return driver.Description{}, errs.Wrap(errs.DriverStartFailed, "describe driver "+b.Source, err)
	}
	defer os.RemoveAll(dir) // it is in the temporary directory
	out, err := launch.Describe(ctx, launch.Spec{
		Name: b.Name, Path: b.Path, SHA256: b.SHA256, Dir: dir, Digests: &c.digests, Environ: environment(),
	})
	if err != nil {
		return driver.Description{}, err
	}
	d, err := wire.UnmarshalDescription(out)
	if err != nil {
		return d, errs.New(errs.DriverIncompatible, "driver %s (%s): %v", b.Source, b.Path, err)
	}
	if d.Name != b.Name {
		return d, errs.New(errs.DriverIncompatible, "the file %s is driver %q, not %q", b.Path, d.Name, b.Name)
	}
	c.keep(b, out)
	return d, nil
}

// keep writes the cache. A cache that cannot be written is slow, and nothing else.
func (c *Catalog) keep(b Binary, text []byte) {
	if b.SHA256 == "" || c.cfg.CacheDir == "" {
		return
	}
	file := c.cacheFile(b)
	if os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if os.WriteFile(tmp, text, 0o600) == nil {
		_ = os.Rename(tmp, file)
	}
}

// environment is what a driver gets that is only asked: nothing of the user's.
func environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "TZ", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// newest is the newest version in the plugin directories that fits; empty = there is none.
func (c *Catalog) newest(source string, req spec.DriverRequirement) string {
	var best semver.Version
	name := ""
	for _, v := range c.versions(source) {
		if have, err := semver.Parse(v); err == nil && fits(source, v, req) == nil && (name == "" || have.Compare(best) > 0) {
			best, name = have, v
		}
	}
	return name
}

// versions are those of a driver in the plugin directories, sorted as texts.
func (c *Catalog) versions(source string) []string {
	namespace, base, _ := strings.Cut(source, "/")
	seen := map[string]bool{}
	for _, dir := range c.cfg.Dirs {
		files, err := filepath.Glob(filepath.Join(dir, namespace, base, "*", platform, prefix+base))
		for _, f := range files {
			if err == nil && isFile(f) {
				seen[filepath.Base(filepath.Dir(filepath.Dir(f)))] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// LockOne puts the file that a driver resolves to into a lock, whatever the lock said before.
func (c *Catalog) LockOne(ctx context.Context, lock *Lock, name string, req spec.DriverRequirement) (LockEntry, error) {
	open := &Catalog{cfg: c.cfg}
	open.cfg.Verify = VerifyNone
	open.cfg.Overrides, open.cfg.Attached = nil, nil // what only this developer runs is not for everybody
	b, err := open.Resolve(ctx, "", name, req)
	if version := open.newest(Source(name, req), req); version != "" && err != nil {
		source := Source(name, req)
		b = open.candidates(Binary{Name: filepath.Base(source), Source: source}, &LockEntry{Version: version})[0]
		err = open.take(&b, b.Path)
	}
	if err != nil {
		return LockEntry{}, err
	}
	d, err := c.Ask(ctx, b)
	if err != nil {
		return LockEntry{}, err
	}
	if _, err := semver.Parse(d.Version); err != nil {
		return LockEntry{}, errs.New(errs.DriverIncompatible, "driver %s: %v", b.Source, err)
	}
	if err := fits(b.Source, d.Version, req); err != nil {
		if e, ok := errors.AsType[*errs.Error](err); ok {
			e = errs.New(e.Code, "driver %s at %s has version %s, the project requires %q", b.Source, b.Path, d.Version, req.Version)
			return LockEntry{}, e.WithHint("install a version that fits")
		}
		return LockEntry{}, err
	}
	entry := LockEntry{
		Source: b.Source, Version: d.Version, Constraints: req.Version, Protocol: []int{handshake.ProtocolVersion},
		Hashes: map[string]string{platform: "sha256:" + b.SHA256},
	}
	lock.Set(entry)
	return *lock.Entry(b.Source), nil
}
