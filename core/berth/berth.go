// SPDX-License-Identifier: Apache-2.0

// Package berth puts the parts together: from a project it opens sandboxes and performs runs. The command line is one
// user of it, a program that embeds berth another.
//
// A [Harness] owns the driver processes; a run or a session borrows them. What the language has and this version does
// not do is refused when it would be needed, never passed over.
//
// Size: it is the one place that knows all the parts; what needs only some of them is in packages of its own.
package berth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/core/berth/choose"
	"github.com/berth-dev/berth/core/berth/watch"
	"github.com/berth-dev/berth/core/guard"
	"github.com/berth-dev/berth/core/mcp"
	"github.com/berth-dev/berth/core/memory"
	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/trace"
	"github.com/berth-dev/berth/internal/version"
	"github.com/berth-dev/berth/sdk/errs"
)

// DefaultDriver is the driver of a project that names none.
const DefaultDriver = "unixlocal"

// Config is for [New].
type Config struct {
	Plugins  *plugin.Manager // required; the caller closes it
	Watch    *watch.Watch    // what Plugins tells; nil = sessions are not told
	CacheDir string          // for repositories; required
	Mounts   *mount.Host     // how storage is mounted; nil = not at all
	RunsDir  string          // of run logs; required
	// Store gives the state store; it is asked when a sandbox is wanted, and closed by the caller. Required.
	Store func(context.Context) (state.Store, error)
	// RunStore gives the store of runs and approvals, in the same way; nil = Store.
	RunStore func(context.Context) (state.Store, error)
	// Portable makes the note beside a run good for other machines; nil = it is so already.
	Portable func(json.RawMessage) (json.RawMessage, error)
	KeyFile  string // of the key that seals session states, made when there is none; required
	// DefaultDriver is used where a project names no driver; empty = [DefaultDriver].
	DefaultDriver string
	DefaultModel  string           // where neither agent nor run names one; empty = what the environment says, else [choose.FallbackModel]
	Now           func() time.Time // nil = time.Now
	Confined      string           // see [sandbox.Config]
	Trace         trace.Config     // where the spans of runs go besides their directories
	// Guardrails are those in Go that files name, by that name.
	Guardrails map[string]guard.Func
}

// Harness performs runs. It may be used from several goroutines.
type Harness struct {
	cfg   Config
	lists mcp.Cache
	locks memory.Locks // of the memories in workspaces
}

// New makes a harness.
func New(cfg Config) *Harness {
	if cfg.DefaultDriver == "" {
		cfg.DefaultDriver = DefaultDriver
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Harness{cfg: cfg}
}

// Model makes the model that an agent uses in a run; see [choose.Model].
func (h *Harness) Model(ctx context.Context, p *spec.Project, r *spec.Run, a *spec.Agent, wish string) (choose.Choice, error) {
	return choose.Model(ctx, p, r, a, wish, h.cfg.DefaultModel)
}

// DriverOf is the name of a sandbox's driver.
func (h *Harness) DriverOf(s *spec.Sandbox) string {
	if s == nil || s.Driver == "" {
		return h.cfg.DefaultDriver
	}
	return s.Driver
}

// request finds the driver block and the requirement that belong to a name.
func (h *Harness) request(p *spec.Project, label string) plugin.Request {
	req := plugin.Request{Name: label}
	if p == nil {
		return req
	}
	if d := p.Drivers[label]; d != nil {
		req.Process = d
		if d.Uses != "" {
			req.Name = d.Uses
		}
	}
	req.Requirement = p.RequiredDrivers[req.Name]
	return req
}

// runDir is the directory of a run.
func (h *Harness) runDir(id string) (string, error) {
	dir, err := runlog.Dir(h.cfg.RunsDir, id)
	if err != nil {
		return "", err
	}
	return dir, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// unavailable refuses a part of the language that has no behaviour yet.
func unavailable(pos spec.Pos, format string, args ...any) error {
	at := ""
	if pos.File != "" {
		at = fmt.Sprintf("%s:%d: ", filepath.Base(pos.File), pos.Line)
	}
	return errs.New(errs.Unsupported, "%s%s, which berth %s cannot do yet", at, fmt.Sprintf(format, args...), version.String()).
		WithHint("leave it out for now; berth validate accepts it, so the file stays good for later versions")
}
