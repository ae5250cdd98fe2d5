// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner/calling"
	"github.com/berth-dev/berth/core/runner/stream"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/errs"
)

// readiness is what an agent needs for its turns.
type readiness struct {
	tools  calling.Toolbox
	system string
}

// prepare gets tools and instructions, once in a process.
func prepare(ctx context.Context, cfg *Config, st *stream.Stream, s Session) (readiness, error) {
	var tools []tool.Tool
	if cfg.Tools != nil {
		var err error
		if tools, err = cfg.Tools(s); err != nil {
			return readiness{}, fmt.Errorf("prepare the tools: %w", err)
		}
	}
	box, warnings, err := calling.NewToolbox(cfg.Run.Agent.Label, tools, cfg.Run.OnToolCollision == "warn")
	if err != nil {
		return readiness{}, err
	}
	for _, w := range warnings {
		st.Send(w)
	}
	r := readiness{tools: box}
	if cfg.Instructions != nil {
		if r.system, err = cfg.Instructions(ctx, s); err != nil {
			return readiness{}, fmt.Errorf("prepare the instructions: %w", err)
		}
	}
	return r, nil
}

func (x *executor) prepareSandbox(ctx context.Context, ef run.PrepareSandbox) {
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		s, err := x.cfg.OpenSession(ctx, x.stream.Send)
		var r readiness
		if err != nil {
			err = fmt.Errorf("open the sandbox: %w", err)
		} else {
			r, err = prepare(ctx, &x.cfg, x.stream, s)
		}
		end := func() (run.Event, error) {
			x.landed(ef.ID)
			x.session, x.ready = s, r
			if err != nil {
				x.keepCause(err)
				return run.SandboxFailed{Time: x.cfg.Now(), Effect: ef.ID, Error: calling.FailureOf("sandbox", err)}, nil //nolint:nilerr // the event is the failure
			}
			return run.SandboxPrepared{Time: x.cfg.Now(), Effect: ef.ID}, nil
		}
		return result{event: end, drop: func() { x.closeSession(ctx, s, run.Cancelled) }}
	})
}

// closeSession ends the use of the sandbox, also when the run's context has ended.
func (x *executor) closeSession(ctx context.Context, s Session, status run.Status) {
	if s == nil {
		return
	}
	// The session bounds its own end. Only when the run's context is over, or ends meanwhile, there is a bound here.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	release := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(closeTime, func() { cancel(fmt.Errorf("closing the sandbox took longer than %s", closeTime)) })
		context.AfterFunc(work, func() { t.Stop() })
	})
	defer release()
	if err := s.Close(work, status); err != nil {
		w := event.Warning{Message: "the sandbox was not closed cleanly: " + err.Error()}
		if e, ok := errors.AsType[*errs.Error](err); ok {
			w.Hint = e.Hint
		}
		x.stream.Send(w)
	}
}

// keepCause remembers an error that may end the run, so that the caller can look into it.
func (x *executor) keepCause(err error) {
	x.cause, x.causeText = err, err.Error()
}
