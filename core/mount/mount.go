// SPDX-License-Identifier: Apache-2.0

// Package mount brings remote storage into sandboxes. It starts processes that speak with the storage, gives them the
// credentials, has the driver attach what they serve, watches over them, and sees that every write has reached the storage
// before the session is over. What it cannot store it names.
//
// It never speaks with a storage itself, and a sandbox or driver never learns a credential from it.
package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/core/catalog/digest"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/plugin/launch"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value/redact"
	mounts "github.com/berth-dev/berth/mounts/spec"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Program is the name of the process that speaks with storage. It lies beside berth.
const Program = "berth-mount-rclone"

// Host says how storage is reached from this machine.
type Host struct {
	Program  string // absolute
	RunDir   string // see [launch.OpenRunDir]
	CacheDir string // of what is on its way to a storage, and of what was read
	Environ  []string
	Redact   *redact.Set // gets the credentials; nil = a set of its own
	Log      hclog.Logger

	digests digest.Cache
}

// Session is what mounts belong to.
type Session struct {
	ID      string
	Driver  string
	Sandbox driver.Sandbox
	Mounts  []driver.MountSupport // what the driver has
	Entries []*spec.Entry         // with a mount each
	Emit    func(event.Data)
}

// Set are the mounts of a session.
type Set struct {
	host *Host
	s    Session
	run  *launch.RunDir
	dir  string // of the cache

	servers []*server
	stop    context.CancelCauseFunc
	done    sync.WaitGroup
	turn    chan struct{}
	closed  sync.Once
}

// Of gives the mounts among entries.
func Of(entries []spec.Entry) []*spec.Entry {
	var out []*spec.Entry
	for i := range entries {
		if entries[i].Mount != nil {
			out = append(out, &entries[i])
		}
	}
	return out
}

// Check refuses a mount that this version does not bring into a sandbox. A driver's support is checked when it is known.
func Check(e *spec.Entry) error {
	m := e.Mount
	access, _ := m.Settings["access"].(map[string]any)
	for _, id := range []string{"uid", "gid"} {
		if v, ok := access[id].(string); ok && v != "" && v != "sandbox" {
			return unavailable(e, "access { %s = %q }: files belong to the sandbox's user", id, v)
		}
	}
	cache, _ := m.Settings["cache"].(map[string]any)
	switch {
	case number(cache["streams"], 1) > 1:
		return unavailable(e, "cache { streams } above 1")
	case m.Kind == "host" || m.Kind == "plugin" || m.Kind == mounts.S3Files:
		return unavailable(e, "a mount of the kind %q", m.Kind)
	case m.Strategy != mounts.Auto && m.Strategy != mounts.HostRclone && m.Strategy != mounts.Native:
		return unavailable(e, "the strategy %q", m.Strategy)
	case m.Settings["assume_role"] != nil:
		return unavailable(e, "assume_role")
	case m.Settings["on_failure"] == "skip":
		return unavailable(e, "on_failure = \"skip\"")
	case m.Settings["flush"] == "tool":
		return unavailable(e, "flush = \"tool\"")
	}
	return nil
}

func unavailable(e *spec.Entry, format string, args ...any) error {
	at := ""
	if e.Pos.File != "" {
		at = fmt.Sprintf("%s:%d: ", filepath.Base(e.Pos.File), e.Pos.Line)
	}
	return errs.New(errs.Unsupported, "%smount %q: %s is not available in this version of berth", at, e.Path, fmt.Sprintf(format, args...)).
		WithHint("the reference says which storage can be mounted how")
}

// Attach brings every mount of a session in, or none. Those of [Host.Native] are there already.
func (h *Host) Attach(ctx context.Context, s Session) (_ *Set, err error) {
	if s.Entries, err = served(&s); err != nil {
		return nil, err
	}
	if len(s.Entries) == 0 {
		x := &Set{}
		x.closed.Do(func() {}) // there is nothing to close
		return x, nil
	}
	if h == nil || h.Program == "" {
		return nil, errs.New(errs.MountToolMissing, "there is no program that speaks with storage").
			WithHint("%s has to lie beside berth", Program)
	}
	mounter, ok := s.Sandbox.(driver.Mounter)
	if !ok {
		return nil, errs.New(errs.Unsupported, "driver %q mounts no storage", s.Driver)
	}
	x := &Set{host: h, s: s, dir: filepath.Join(h.CacheDir, s.ID), turn: make(chan struct{}, 1)}
	if x.run, err = launch.OpenRunDir(h.RunDir); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	x.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, x.abandon())
		}
	}()
	// Those above others first.
	entries := slices.SortedStableFunc(slices.Values(s.Entries), func(a, b *spec.Entry) int {
		return strings.Count(target(a), "/") - strings.Count(target(b), "/")
	})
	for _, e := range entries {
		m, err := h.resolve(ctx, s.ID, e)
		if err != nil {
			return nil, err
		}
		s.Emit(event.SandboxProgress{Phase: "mounting", Message: fmt.Sprintf("%s at %s, %s", e.Mount.Kind, target(e), access(e.Mount))})
		v, err := x.serverFor(ctx, m)
		if err == nil {
			err = v.prepare(ctx, m)
		}
		if err == nil {
			err = v.attach(ctx, mounter, m)
		}
		if err != nil {
			return nil, fmt.Errorf("mount %q: %w", e.Path, err)
		}
	}
	for _, v := range x.servers {
		x.done.Go(func() { v.watch(watch, mounter) })
	}
	x.done.Go(func() { x.turns(watch) })
	return x, nil
}

func access(m *spec.MountEntry) string {
	if m.ReadOnly {
		return "read-only"
	}
	return "read and write"
}

// target is where a mount appears, relative to the workspace or absolute.
func target(e *spec.Entry) string {
	if e.Mount.MountPath != "" {
		return path.Clean(e.Mount.MountPath)
	}
	return e.Path
}

// supported refuses what the driver has no strategy for.
func supported(s *Session, e *spec.Entry) error {
	can := strategies(s, e)
	allow, _ := e.Mount.Options["allow"].([]string)
	if _, ok := mounts.Choose(e.Mount.Strategy, allow, can); ok {
		return nil
	}
	err := errs.New(errs.Unsupported, "driver %q cannot mount %s at %q with strategy %q", s.Driver, e.Mount.Kind, target(e), e.Mount.Strategy)
	if len(can) > 0 {
		return err.WithHint("for %s it has: %s", e.Mount.Kind, strings.Join(can, ", "))
	}
	return err.WithHint("the reference says which drivers can")
}

// serverFor gives the process for a mount: rclone has its time limits once in a process.
func (x *Set) serverFor(ctx context.Context, m *one) (*server, error) {
	for _, v := range x.servers {
		if v.limits == m.limits() {
			return v, nil
		}
	}
	v := &server{x: x, limits: m.limits(), ambient: m.req.GetRemote().GetAmbient()}
	v.dir = filepath.Join(x.dir, fmt.Sprintf("%d-%d", v.limits.io.Milliseconds(), v.limits.connect.Milliseconds()))
	if err := v.start(ctx); err != nil {
		return nil, err
	}
	x.servers = append(x.servers, v)
	return v, nil
}

// abandon ends what a failed Attach has begun: nothing was written yet.
func (x *Set) abandon() error {
	x.stop(errEnding)
	for _, v := range x.servers {
		v.kill()
	}
	return errors.Join(x.run.Close(), x.tidy())
}

var errEnding = errors.New("the session ends")

// Turn tells that a turn is over: what it wrote is sent to the storage while the model thinks about the next.
func (x *Set) Turn() {
	select {
	case x.turn <- struct{}{}:
	default: // it is going to be sent already
	}
}

func (x *Set) turns(ctx context.Context) {
	for {
		select {
		case <-x.turn:
			if err := x.drain(ctx, func(m *one) bool { return m.flush == "turn" }); err != nil && ctx.Err() == nil {
				x.warn(err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (x *Set) warn(err error) {
	w := event.Warning{Message: err.Error()}
	if e, ok := errors.AsType[*errs.Error](err); ok {
		w.Hint = e.Hint
	}
	x.s.Emit(w)
}

// Drain waits until every write has reached the storage. An error names those that have not.
func (x *Set) Drain(ctx context.Context) error {
	return x.drain(ctx, func(m *one) bool { return m.flush != "none" })
}

func (x *Set) drain(ctx context.Context, which func(*one) bool) error {
	var all []error
	for _, v := range x.servers {
		all = append(all, v.drain(ctx, which))
	}
	return errors.Join(all...)
}

// Close sends the last writes and ends the processes. It comes after the sandbox's processes have ended, or they find an
// error where storage was. An error names the files that the storage does not have, and where they are.
func (x *Set) Close(ctx context.Context) (err error) {
	x.closed.Do(func() {
		x.stop(errEnding)
		x.done.Wait()
		err = x.drain(ctx, func(*one) bool { return true })
		for _, v := range x.servers {
			v.kill()
		}
		err = errors.Join(err, x.run.Close())
		if err == nil {
			err = x.tidy()
		}
	})
	return err
}

// tidy removes the cache, unless it holds files that were put aside.
func (x *Set) tidy() error {
	kept, err := filepath.Glob(filepath.Join(x.dir, "*", "lost+found"))
	if err != nil || len(kept) > 0 {
		return err
	}
	return os.RemoveAll(x.dir)
}

// healthTime is how often a server is looked at, and patience how long it may take to say how it is.
const (
	healthTime = 10 * time.Second
	patience   = 3 * time.Second
)
