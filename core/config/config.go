// SPDX-License-Identifier: Apache-2.0

// Package config reads the files of a project: *.berth.hcl and *.berth.json of one directory, or one file.
//
// [Load] does what needs neither network nor secrets: parse, variables, locals, modules, references, `extends`, types,
// the bodies of drivers by their schemas, and checks between blocks. It gives the project as a [spec.Project] with
// every finding. Secrets are fetched later, when somebody reveals them, or all at once by [Loaded.CheckSecrets].
//
// The work is done by the packages below this one: source (files), schema (the language as data), vars, eval
// (expressions), tree (blocks), check (values), drivercfg (drivers), load (order), decode and
// workspace (the specification), cross (between blocks), show (writing it again).
package config

import (
	"context"
	"errors"
	"os"
	"slices"
	"sort"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/cross"
	"github.com/berth-dev/berth/core/config/decode"
	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/load"
	"github.com/berth-dev/berth/core/config/show"
	"github.com/berth-dev/berth/core/config/source"
	"github.com/berth-dev/berth/core/config/vars"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/driver"
)

// Var is one --var ("name=text") or --var-file, in the order of the command line.
type Var = vars.Arg

// HostCommand is a place in the files that makes the host run a program.
type HostCommand = eval.HostCommand

// Options say what to load. Only Path is needed.
type Options struct {
	Path            string // a directory, or one file
	Vars            []Var
	AllowUndeclared bool // names in variable files that are not declared are warnings
	// Env looks up environment variables; nil = those of the process.
	Env func(string) (string, bool)
	// Version is that of berth, for required_version; empty = every requirement is met.
	Version string
	// Untrusted refuses everything that would reach the host, but copies from AllowFiles.
	Untrusted  bool
	AllowFiles []string
	// ReadDirs are directories beside the project that functions may read from.
	ReadDirs []string
	// Schemas describes a driver by its name; nil = the bodies of drivers stay unchecked, with a warning.
	Schemas func(name string) (*driver.Description, error)
	// Drivers are the names of drivers that are installed, for suggestions; nil = not known.
	Drivers []string
	// SecretStore asks a secret store of the host; nil = there is none.
	SecretStore func(ctx context.Context, name string) (string, error)
	// Redact collects every secret that is fetched; nil = a set of its own, see Loaded.Redact.
	Redact *redact.Set
}

// Loaded is a project with what belongs to it.
type Loaded struct {
	Project *spec.Project // nil when it is too broken
	// Diags are sorted by place.
	Diags diag.Diagnostics
	// Files are the sources, for snippets.
	Files diag.Files
	// Redact holds every text that must not be shown.
	Redact *redact.Set
	// FileHashes are the SHA-256 sums of the host files that expressions have read.
	FileHashes map[string]string
	// Public are the uses of nonsensitive.
	Public []hcl.Range
	// HostCommands are what makes the host run programs of the project's choice.
	HostCommands []HostCommand

	res *load.Result
}

// Load loads a project. The error is the diagnostics' when one of them is an error; Loaded is never nil.
func Load(ctx context.Context, opt Options) (*Loaded, error) {
	out := &Loaded{Redact: opt.Redact}
	if out.Redact == nil {
		out.Redact = &redact.Set{}
	}
	src := source.New()
	out.Files = src.Files
	lo := load.Options{
		Path: opt.Path, Vars: opt.Vars, AllowUndeclared: opt.AllowUndeclared, Env: opt.Env, Version: opt.Version,
		Untrusted: opt.Untrusted, AllowFiles: opt.AllowFiles, ReadDirs: opt.ReadDirs, Schemas: opt.Schemas, Drivers: opt.Drivers,
		SecretStore: opt.SecretStore, Redact: out.Redact, Sources: src,
	}
	if lo.Env == nil {
		lo.Env, lo.Environ = vars.OSEnv, os.Environ
	}
	out.res = load.Load(lo)
	out.Diags = out.res.Diags
	if !out.res.Broken {
		dec := decode.Project(out.res, lo.Env)
		out.Project = dec.Project
		out.Diags = append(append(out.Diags, dec.Diags...), cross.Check(out.res, dec)...)
	}
	out.Diags = withoutCascades(out.Diags).Sorted()
	out.Public, out.HostCommands = out.res.World.Open, out.res.World.HostCommands
	if out.res.Files != nil {
		out.FileHashes = out.res.Files.Hashes()
	}
	if err := context.Cause(ctx); err != nil {
		return out, err
	}
	return out, out.Diags.Err()
}

// ShowOptions say what [Loaded.Show] writes.
type ShowOptions = show.Options

// Show writes the project as it will really be used. Reading it back gives the same project.
func (l *Loaded) Show(opt ShowOptions) (string, error) {
	if l.res == nil || l.res.Broken || l.res.Root == nil {
		return "", errors.New("the project could not be read")
	}
	return show.Project(l.res, opt)
}

// SecretState is one secret after [Loaded.CheckSecrets].
type SecretState struct {
	Key string
	Pos spec.Pos
	Err error // nil = it can be had, or is optional
}

// CheckSecrets fetches every secret of the project and says which cannot be had, without showing any.
func (l *Loaded) CheckSecrets(ctx context.Context) []SecretState {
	if l.res == nil || l.res.World == nil {
		return nil
	}
	keys := make([]string, 0, len(l.res.World.Secrets))
	for k := range l.res.World.Secrets {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := make([]SecretState, len(keys))
	done := make(chan struct{})
	for i, k := range keys {
		s := l.res.World.Secrets[k]
		out[i] = SecretState{Key: k, Pos: eval.Pos(s.Header)}
		go func() {
			_, out[i].Err = l.res.World.Resolver.Value(ctx, s)
			done <- struct{}{}
		}()
	}
	for range keys {
		<-done
	}
	return out
}

// withoutCascades drops what may only follow from an error: a block is unused, too, when the reference to it is misspelt.
func withoutCascades(ds diag.Diagnostics) diag.Diagnostics {
	if !ds.HasErrors() {
		return ds
	}
	return slices.DeleteFunc(slices.Clone(ds), func(d *diag.Diagnostic) bool { return d.Code == diag.UnusedBlock })
}
