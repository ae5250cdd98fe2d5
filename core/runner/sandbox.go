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
	"github.com/berth-dev/berth/sdk/errs"
)

func (x *executor) prepareSandbox(ctx context.Context, ef run.PrepareSandbox) {
	m := x.team[ef.Agent]
	was := m.session
	x.launch(ctx, ef.ID, func(ctx context.Context) result {
		var err error
		if m.session == nil {
			if m.session, err = m.OpenSession(ctx, ef.Workspace, x.stream.Send); err != nil {
				err = fmt.Errorf("open the sandbox: %w", err)
			}
		}
		if err == nil {
			err = x.prepare(ctx, m)
		}
		end := func() (run.Event, error) {
			x.landed(ef.ID)
			if was == nil && m.session != nil {
				x.opened = append(x.opened, m)
			}
			if err != nil {
				x.keepCause(err)
				return run.SandboxFailed{Time: x.cfg.Now(), Effect: ef.ID, Error: calling.FailureOf("sandbox", err)}, nil //nolint:nilerr // the event is the failure
			}
			return run.SandboxPrepared{Time: x.cfg.Now(), Effect: ef.ID}, nil
		}
		return result{event: end, drop: func() {
			if was == nil {
				x.closeSession(ctx, m.session, run.Cancelled)
			}
		}}
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
