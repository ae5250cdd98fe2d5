// SPDX-License-Identifier: Apache-2.0

package berth

import (
	"context"

	"github.com/berth-dev/berth/core/audit"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/core/trace"
)

// traceparent is what a run's trace is called in what leaves this machine.
const traceparent = "traceparent"

// openTrace begins the trace of a run, or goes on with the one that it had. A run inside another one is in its trace.
func (r *live) openTrace(ctx context.Context) error {
	block := r.o.Run.Trace
	if block == nil {
		block = &spec.Trace{}
	}
	if r.traced != nil || block.Disabled || r.o.call != "" {
		return nil
	}
	key := ""
	if !block.APIKey.IsZero() {
		var err error
		if key, err = block.APIKey.Reveal(ctx); err != nil {
			return err
		}
	}
	t, err := trace.Open(ctx, r.h.cfg.Trace, trace.Options{
		Dir: r.dir, ID: block.ID, Parent: r.record.Trace, APIKey: key, Workflow: r.o.Run.WorkflowName, GroupID: block.GroupID,
		Metadata: block.Metadata, Sensitive: block.IncludeSensitiveData,
		NoTurns: block.IncludeTurnSpans != nil && !*block.IncludeTurnSpans, Now: r.h.cfg.Now,
	})
	if err != nil {
		return err
	}
	r.trace, r.traced = t, t.Run(r.o.ID)
	r.record.Trace = t.Parent()
	return r.save()
}

// openAudit opens the run's audit log. A run inside another one is in that one's.
func (r *live) openAudit() (err error) {
	if r.audit == nil {
		r.audit, err = audit.Open(r.dir, r.h.cfg.Trace.Redact, r.h.cfg.Now)
	}
	return err
}

// endWatch ends trace and audit log of an outermost run.
func (r *live) endWatch(ctx context.Context) {
	if r.trace != nil {
		r.trace.Close(ctx)
	}
	if r.audit != nil && r.o.call == "" {
		_ = r.audit.Close() // every record was written; only a power failure could still take the last ones
	}
}

// watch is who looks at the run's events as they come.
func (r *live) watch() func(event.Event) {
	written := r.audit.Of(r.o.ID)
	return func(ev event.Event) {
		written(ev)
		if r.traced != nil {
			r.traced.Event(ev)
		}
	}
}

// named gives a context in which things are done in the name of the run: they are written down first, then traced.
func (r *live) named(ctx context.Context) context.Context {
	to := ops.All{r.audit}
	if r.traced != nil {
		to = append(to, r.traced)
	}
	return ops.With(ctx, ops.Who{To: to, Run: r.o.ID, Agent: r.o.Run.Agent.Label})
}

// served tells the trace which tools are those of a server.
func (r *live) served(tools []tool.Tool, err error) ([]tool.Tool, error) {
	for _, t := range tools {
		if of, ok := t.(tool.Served); ok && r.traced != nil {
			r.traced.Server(t.Spec().Name, of.Server())
		}
	}
	return tools, err
}
