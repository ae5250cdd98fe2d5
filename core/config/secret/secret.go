// SPDX-License-Identifier: Apache-2.0

// Package secret fetches the texts of `secret` blocks: once, when they are needed, several at a time.
package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/diag"
)

// Bounds of fetching.
const (
	maxText        = 1 << 20
	maxAtOnce      = 8
	commandTimeout = 30 * time.Second
)

// Secret is one `secret` block. Exactly one of Env, File, Command and Store is set.
type Secret struct {
	Key      string // "secret.NAME", with the module before it
	Header   hcl.Range
	Source   hcl.Range // of the attribute that says where it is
	Dir      string    // of the file, for relative paths
	Env      string
	File     string
	Command  []string
	Store    string
	Format   string // text, json, dotenv
	Trim     bool
	Optional bool
	TTL      time.Duration // 0 = never again
}

// Unknown is the secret's value before it is fetched.
func (s *Secret) Unknown() cty.Value {
	t := cty.String
	switch s.Format {
	case "json":
		t = cty.DynamicPseudoType
	case "dotenv":
		t = cty.Map(cty.String)
	}
	return s.marked(cty.UnknownVal(t))
}

func (s *Secret) marked(v cty.Value) cty.Value {
	return v.WithMarks(cty.NewValueMarks(mark.Sensitive{Origin: s.Key}, mark.Ephemeral{}))
}

// Config is where secrets come from.
type Config struct {
	Getenv func(string) (string, bool) // nil = os.LookupEnv
	// Store asks a secret store of the host; nil = there is none.
	Store func(ctx context.Context, name string) (string, error)
	Now   func() time.Time // nil = time.Now
	// Learn is told every text that was fetched; may be nil.
	Learn func(string)
}

// Resolver fetches secrets and keeps them for their time.
type Resolver struct {
	cfg  Config
	slot chan struct{}

	mu    sync.Mutex
	cache map[string]*entry // guarded by mu
}

type entry struct {
	done chan struct{} // closed when the fields below are set
	v    cty.Value
	err  error
	at   time.Time
}

// NewResolver makes a resolver.
func NewResolver(cfg Config) *Resolver {
	if cfg.Getenv == nil {
		cfg.Getenv = os.LookupEnv
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Resolver{cfg: cfg, slot: make(chan struct{}, maxAtOnce), cache: map[string]*entry{}}
}

// Value gives the secret's value, marked; null when it is optional and missing. Errors are *diag.Diagnostic.
func (r *Resolver) Value(ctx context.Context, s *Secret) (cty.Value, error) {
	r.mu.Lock()
	e := r.cache[s.Key]
	if e != nil && r.stale(e, s) {
		e = nil
	}
	mine := e == nil
	if mine {
		e = &entry{done: make(chan struct{})}
		r.cache[s.Key] = e
	}
	r.mu.Unlock()
	if mine {
		e.v, e.err = r.fetch(ctx, s)
		e.at = r.cfg.Now()
		if e.err != nil {
			r.mu.Lock()
			delete(r.cache, s.Key)
			r.mu.Unlock()
		}
		close(e.done)
	}
	select {
	case <-e.done:
		return e.v, e.err
	case <-ctx.Done():
		return cty.NilVal, context.Cause(ctx)
	}
}

// stale reports whether a finished entry is older than its secret allows.
func (r *Resolver) stale(e *entry, s *Secret) bool {
	select {
	case <-e.done:
		return s.TTL > 0 && r.cfg.Now().Sub(e.at) > s.TTL
	default:
		return false
	}
}

func (r *Resolver) fetch(ctx context.Context, s *Secret) (cty.Value, error) {
	text, found, err := r.read(ctx, s)
	if err != nil {
		return cty.NilVal, err
	}
	if !found {
		if s.Optional {
			return s.marked(cty.NullVal(cty.DynamicPseudoType)), nil
		}
		return cty.NilVal, s.missing()
	}
	if s.Trim {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	}
	if r.cfg.Learn != nil {
		r.cfg.Learn(text)
	}
	v, err := parse(text, s.Format)
	if err != nil {
		return cty.NilVal, diag.Errorf(diag.SecretMissing, s.Source, "secret %q is not %s", s.Key, s.Format).Labelf("%v", err)
	}
	if r.cfg.Learn != nil && s.Format != "text" {
		_ = cty.Walk(v, func(_ cty.Path, leaf cty.Value) (bool, error) {
			if leaf.Type() == cty.String && !leaf.IsNull() {
				r.cfg.Learn(leaf.AsString())
			}
			return true, nil
		})
	}
	return s.marked(v), nil
}

func (s *Secret) missing() *diag.Diagnostic {
	d := diag.Errorf(diag.SecretMissing, s.Source, "secret %q is missing", s.Key)
	switch {
	case s.Env != "":
		d.Labelf("environment variable %s is not set", s.Env).Helpf("set it, or write optional = true in the secret block")
	case s.File != "":
		d.Labelf("no file %q", s.File)
	default:
		d.Labelf("nothing was found")
	}
	return d
}

func (r *Resolver) read(ctx context.Context, s *Secret) (text string, found bool, err error) {
	switch {
	case s.Env != "":
		text, found = r.cfg.Getenv(s.Env)
		return text, found && text != "", nil
	case s.File != "":
		return s.readFile()
	case len(s.Command) > 0:
		return r.run(ctx, s)
	}
	if r.cfg.Store == nil {
		return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q: no secret store named %q", s.Key, s.Store).
			Labelf("secret stores are configured on the host").Helpf("add secret_store %q to the host configuration", s.Store)
	}
	text, err = r.cfg.Store(ctx, s.Store)
	if err != nil {
		return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q is missing", s.Key).Labelf("%v", err)
	}
	return text, true, nil
}

func (s *Secret) readFile() (string, bool, error) {
	path := s.File
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q: the home directory is not known", s.Key)
		}
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Dir, path)
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q cannot be read", s.Key).Labelf("%v", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q: not a regular file", s.Key)
	case info.Mode().Perm()&0o077 != 0:
		return "", false, diag.Errorf(diag.SecretPermissions, s.Source, "secret %q: others can read its file", s.Key).
			Labelf("its mode is %04o", info.Mode().Perm()).Helpf("run: chmod 600 %s", path)
	case info.Size() > maxText:
		return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q: the file is larger than %d bytes", s.Key, maxText)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", false, diag.Errorf(diag.SecretMissing, s.Source, "secret %q cannot be read", s.Key).Labelf("%v", err)
	}
	return string(raw), true, nil
}

var errTooLong = errors.New("no answer after 30 seconds")

// run starts the command of a secret. What it prints is never shown; its error output is, when it fails.
func (r *Resolver) run(ctx context.Context, s *Secret) (string, bool, error) {
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
	case <-ctx.Done():
		return "", false, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, errTooLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir = s.Dir
	cmd.WaitDelay = time.Second
	var out, errOut limited
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	switch {
	case err != nil && s.Optional && ctx.Err() == nil:
		return "", false, nil
	case err != nil:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		d := diag.Errorf(diag.SecretCommand, s.Source, "command of secret %q failed", s.Key).Labelf("%v", err)
		if text := strings.TrimSpace(errOut.String()); text != "" {
			d.Notef("it said: %s", diag.Printable(text))
		}
		return "", false, d
	}
	return out.String(), out.Len() > 0, nil
}

// limited keeps the first bytes of an output and reads on.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if left := maxText - l.Len(); left > 0 {
		l.Buffer.Write(p[:min(left, len(p))])
	}
	return len(p), nil
}

func parse(text, format string) (cty.Value, error) {
	switch format {
	case "json":
		t, err := ctyjson.ImpliedType([]byte(text))
		if err != nil {
			return cty.NilVal, errors.New("the text is no JSON")
		}
		v, err := ctyjson.Unmarshal([]byte(text), t)
		if err != nil {
			return cty.NilVal, errors.New("the text is no JSON")
		}
		return v, nil
	case "dotenv":
		return dotenv(text)
	}
	return cty.StringVal(text), nil
}

// dotenv reads lines NAME=VALUE; values may be in quotes, "#" starts a comment line, "export" before a name is skipped.
func dotenv(text string) (cty.Value, error) {
	vals := map[string]cty.Value{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, val, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok {
			return cty.NilVal, fmt.Errorf("line %d has no NAME=VALUE", i+1)
		}
		val = strings.TrimSpace(val)
		switch {
		case len(val) > 1 && val[0] == '"' && val[len(val)-1] == '"':
			var s string
			if err := json.Unmarshal([]byte(val), &s); err != nil {
				return cty.NilVal, fmt.Errorf("line %d: bad quotes", i+1)
			}
			val = s
		case len(val) > 1 && val[0] == '\'' && val[len(val)-1] == '\'':
			val = val[1 : len(val)-1]
		}
		vals[strings.TrimSpace(name)] = cty.StringVal(val)
	}
	if len(vals) == 0 {
		return cty.MapValEmpty(cty.String), nil
	}
	return cty.MapVal(vals), nil
}
