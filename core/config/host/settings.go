// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/value"
)

// Setting is an attribute that flags and the environment can set, too.
type Setting struct {
	Key string // such as "telemetry.log_level"
	Env string // such as "BERTH_TELEMETRY_LOG_LEVEL"
	Doc string
	set func(l *loader, text string) error
}

// Settings lists them.
func Settings() []Setting {
	all := []Setting{
		{Key: "plugins.dirs", Doc: "directories with drivers", set: func(l *loader, s string) error {
			var dirs []string
			for d := range strings.SplitSeq(s, string(os.PathListSeparator)) {
				if d != "" {
					dirs = append(dirs, d)
				}
			}
			l.cfg.Plugins.Dirs = dirs
			return nil
		}},
		{Key: "plugins.verify", Doc: "how drivers are verified: " + strings.Join(verifies, ", "), set: word(verifies,
			func(c *Config) *string { return &c.Plugins.Verify })},
		{Key: "plugins.start_timeout", Doc: "how long a driver may take to start", set: span(
			func(c *Config) *time.Duration { return &c.Plugins.StartTimeout })},
		{Key: "plugins.idle_timeout", Doc: "when an unused driver ends", set: span(
			func(c *Config) *time.Duration { return &c.Plugins.IdleTimeout })},
		{Key: "plugins.env_passthrough", Doc: "variables that drivers see, with commas between", set: func(l *loader, s string) error {
			l.cfg.Plugins.EnvPassthrough = strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		}},
		{Key: "telemetry.log_level", Doc: "what is logged: " + strings.Join(logLevels, ", "), set: word(logLevels,
			func(c *Config) *string { return &c.Telemetry.LogLevel })},
		{Key: "telemetry.log_format", Doc: "how it is logged: " + strings.Join(logFormats, ", "), set: word(logFormats,
			func(c *Config) *string { return &c.Telemetry.LogFormat })},
		{Key: "telemetry.log_file", Doc: "where it is logged", set: plain(func(c *Config) *string { return &c.Telemetry.LogFile })},
		{Key: "state_store.dir", Doc: "where runs are kept", set: func(l *loader, s string) error {
			if s == "" {
				return fmt.Errorf("a directory is needed")
			}
			l.cfg.StateStore.Dir = s
			return nil
		}},
		{Key: "state_store.path", Doc: "SQLite file of the sessions", set: func(l *loader, s string) error {
			if !filepath.IsAbs(s) {
				return fmt.Errorf("an absolute path is needed")
			}
			st := &l.cfg.StateStore
			st.Kind, st.Path, st.URL = "sqlite", s, value.Secret{}
			return nil
		}},
		{Key: "state_store.url", Doc: "PostgreSQL database of the sessions", set: func(l *loader, s string) error {
			st := &l.cfg.StateStore
			st.Kind, st.Path = "postgres", ""
			st.URL = value.NewSecret("state_store.url", func(context.Context) (string, error) { return s, nil })
			return nil
		}},
		{Key: "defaults.sandbox_driver", Doc: "the driver of sandboxes that name none", set: plain(
			func(c *Config) *string { return &c.Defaults.SandboxDriver })},
		{Key: "defaults.model", Doc: "the model of agents that name none", set: plain(func(c *Config) *string { return &c.Defaults.Model })},
	}
	for i := range all {
		all[i].Env = "BERTH_" + strings.ToUpper(strings.ReplaceAll(all[i].Key, ".", "_"))
	}
	return all
}

func plain(at func(*Config) *string) func(*loader, string) error {
	return func(l *loader, s string) error {
		*at(l.cfg) = s
		return nil
	}
}

func word(allowed []string, at func(*Config) *string) func(*loader, string) error {
	return func(l *loader, s string) error {
		if !slices.Contains(allowed, s) {
			return fmt.Errorf("%q is not one of %s", diag.Printable(s), strings.Join(allowed, ", "))
		}
		*at(l.cfg) = s
		return nil
	}
}

func span(at func(*Config) *time.Duration) func(*loader, string) error {
	return func(l *loader, s string) error {
		d, err := parseDuration(s)
		if err == nil {
			*at(l.cfg) = d
		}
		return err
	}
}

func (l *loader) environment() {
	for _, s := range Settings() {
		if text, ok := l.opt.Getenv(s.Env); ok && text != "" {
			l.set(s, text, s.Env, "the environment variable "+s.Env)
		}
	}
}

func (l *loader) flags() {
	known := map[string]Setting{}
	for _, s := range Settings() {
		known[s.Key] = s
	}
	for _, key := range sortedKeys(l.opt.Flags) {
		s, ok := known[key]
		if !ok {
			l.add(diag.Errorf(diag.UnsupportedArgument, hcl.Range{}, "no setting of the host named %q", key))
			continue
		}
		l.set(s, l.opt.Flags[key], "flag", "the flag for "+key)
	}
}

func (l *loader) set(s Setting, text, origin, who string) {
	if err := s.set(l, text); err != nil {
		l.add(diag.Errorf(diag.NotOneOf, hcl.Range{}, "%s cannot be used", who).Notef("%v", err))
		return
	}
	l.cfg.Origins[s.Key] = origin
	delete(l.places, s.Key)
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
