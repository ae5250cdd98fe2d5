// SPDX-License-Identifier: Apache-2.0

// Package audit keeps the audit log of a run: what was done to the world outside it, by whom, when, and how it ended.
// Commands, files, ports, mounts, snapshots and sandboxes come from core/ops, on every backend alike; tool calls,
// approvals and handovers from the run's events. It decides nothing, and only one thing depends on it: what cannot be
// written down is not done.
//
// The log is FileName in the run's directory, one JSON object a line, in the order in which things happened. Each record
// carries the hash of the one before it, so that a change, a removal or another order shows ([Verify]). HeadName says how
// far the log is, so that a missing end shows too. Whoever can write both files can make a new, consistent log: to be
// safe from that, the hash of the head is kept elsewhere.
//
// A record is written with one call before what it is about is done, and survives the death of the process. A record
// that is cut off at the end is what a crash leaves: the next process removes it and says so in a record of its own.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/sdk/errs"
)

// The files in a run's directory.
const (
	FileName = "audit.jsonl"
	HeadName = "audit.head"
)

// Log is an open log. It may be used from several goroutines; one process at a time has it, since it has the run's.
type Log struct {
	redact func(string) string
	now    func() time.Time

	mu    sync.Mutex
	log   *os.File          // guarded by mu, as all that follows
	head  *os.File          //
	seq   uint64            //
	hash  string            //
	calls map[string]uint64 // beginnings of tool calls, by run and call
	err   error             // a failed write; the file's end is unknown after it
}

var _ ops.Observer = (*Log)(nil)

// Open opens the log of a run's directory, and makes it when there is none. A log that was tampered with is an error.
// Redact takes secrets out; nil = nothing is known to be one.
func Open(dir string, redact func(string) string, now func() time.Time) (_ *Log, err error) {
	if redact == nil {
		redact = func(s string) string { return s }
	}
	if now == nil {
		now = time.Now
	}
	l := &Log{redact: redact, now: now, hash: first, calls: map[string]uint64{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the audit log: %w", err), l.Close())
		}
	}()
	rep, verr := Verify(dir, "", func(r Record, _ error) { l.seq = r.Seq })
	switch {
	case errors.Is(verr, fs.ErrNotExist):
		rep = &Report{}
	case verr != nil:
		return nil, verr
	case !rep.OK():
		f := rep.Findings[0]
		return nil, errs.New(errs.InvalidArgument, "%s line %d: %s", filepath.Join(dir, FileName), f.Line, f.Problem).
			WithHint("berth audit verify %s names all places; to go on with a new log, move %s and %s away", filepath.Base(dir), FileName, HeadName)
	case rep.Records > 0:
		l.hash = rep.Head
	}
	if l.log, err = os.OpenFile(filepath.Join(dir, FileName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	if l.head, err = os.OpenFile(filepath.Join(dir, HeadName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if rep.Torn > 0 {
		info, err := l.log.Stat()
		if err != nil {
			return nil, err
		}
		if err := l.log.Truncate(info.Size() - int64(rep.Torn)); err != nil {
			return nil, err
		}
		_, err = l.append(Record{Op: "log.recovered", Phase: Note, More: map[string]any{"torn_bytes": rep.Torn}})
		return l, err
	}
	return l, nil
}

// Close puts the log on stable storage and ends its use.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, f := range []*os.File{l.log, l.head} {
		if f != nil {
			err = errors.Join(err, f.Sync(), f.Close())
		}
	}
	l.log, l.head = nil, nil
	if l.err == nil {
		l.err = errs.New(errs.Canceled, "the audit log is closed")
	}
	return err
}

// Head is the hash of the last record, and how many there are.
func (l *Log) Head() (hash string, records uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hash, l.seq
}

func (l *Log) append(r Record) (seq uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appendLocked(r)
}

func (l *Log) appendLocked(r Record) (uint64, error) {
	if l.err != nil {
		return 0, l.err
	}
	r.Seq, r.Prev, r.Time = l.seq+1, l.hash, l.now().UTC()
	r.Error = l.redact(r.Error)
	r.More, _ = l.clean(r.More).(map[string]any) // it gives what it gets
	line, hash, err := encode(&r)
	if err != nil {
		return 0, fmt.Errorf("the audit log: %w", err) // what cannot be written down, such as NaN, is not done
	}
	if _, err = l.log.Write(line); err == nil {
		_, err = l.head.WriteAt(head{r.Seq, hash}.encode(), 0)
	}
	if err != nil {
		l.err = errs.New(errs.Internal, "the audit log cannot be written, and nothing is done without it: %v", err).
			WithHint("make room in the directory of runs, and resume the run")
		return 0, l.err
	}
	l.seq, l.hash = r.Seq, hash
	return r.Seq, nil
}

// clean takes secrets out of a value.
func (l *Log) clean(v any) any {
	switch v := v.(type) {
	case string:
		return l.redact(v)
	case []string:
		out := make([]string, len(v))
		for i, s := range v {
			out[i] = l.redact(s)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, m := range v {
			out[k] = l.clean(m)
		}
		return out
	}
	return v
}

// Begin writes down that an operation begins.
func (l *Log) Begin(ctx context.Context, op ops.Op) (context.Context, func(ops.End), error) {
	w := ops.Of(ctx)
	r := Record{Op: string(op.Kind), Phase: Begin, Run: w.Run, Agent: w.Agent, Call: w.Call, Box: op.Sandbox, Kind: op.Driver, More: op.Detail}
	if r.More == nil && op.Name != "" {
		r.More = map[string]any{"name": op.Name}
	}
	began := l.now()
	seq, err := l.append(r)
	if err != nil {
		return ctx, nil, err
	}
	var once sync.Once
	return ctx, func(e ops.End) {
		once.Do(func() {
			ok := e.Err == nil && !e.Tripped
			end := r
			end.Phase, end.Of, end.OK, end.Took, end.More = End, seq, &ok, int64(l.now().Sub(began)), e.Detail
			if e.Code != nil {
				end.More = map[string]any{"exit_code": *e.Code}
				maps.Copy(end.More, e.Detail)
			}
			if e.Err != nil {
				end.Error = e.Err.Error()
			}
			_, _ = l.append(end) // the error stays, and keeps everything else from being done
		})
	}, nil
}

// Of gives who writes down the events of a run.
func (l *Log) Of(run string) func(event.Event) {
	return func(ev event.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = l.eventLocked(run, ev) // the error stays, and keeps operations from being begun
	}
}

func (l *Log) eventLocked(run string, ev event.Event) error {
	r := Record{Op: string(ev.Kind), Phase: Note, Run: run, Agent: ev.Agent}
	switch d := ev.Data.(type) {
	case event.RunStarted:
		r.More = map[string]any{"resumed": d.Resumed, "model": d.Model}
	case event.RunFinished:
		ok := d.Status == "completed"
		r.OK, r.Error, r.More = &ok, d.Error, map[string]any{"status": d.Status, "turns": d.Turns, "tokens": d.Usage.TotalTokens}
	case event.ToolStarted:
		r.Op, r.Phase, r.Call = "tool.call", Begin, d.CallID
		r.More = map[string]any{"tool": d.Tool, "arguments": d.Arguments}
		seq, err := l.appendLocked(r)
		l.calls[run+"\x00"+d.CallID] = seq
		return err
	case event.ToolFinished:
		key := run + "\x00" + d.CallID
		r.Op, r.Phase, r.Call, r.Of, r.Took = "tool.call", End, d.CallID, l.calls[key], int64(d.Duration)
		delete(l.calls, key)
		r.OK, r.More = &d.OK, map[string]any{"tool": d.Tool}
		if d.Code != "" {
			r.More["code"] = d.Code
		}
	case event.ApprovalWanted:
		r.Call, r.More = d.CallID, map[string]any{"tool": d.Tool, "arguments": string(d.Arguments), "reason": d.Reason, "unsure": d.Unsure}
	case event.ApprovalDecided:
		r.Call, r.More = d.CallID, map[string]any{"tool": d.Tool, "allow": d.Allow, "by": d.By, "message": d.Message, "covers": d.Covers}
	case event.AgentChanged:
		r.More = map[string]any{"from": d.From, "to": d.To}
	case event.SandboxLost:
		r.Box, r.More = d.SandboxID, map[string]any{"reason": d.Reason}
	default:
		return nil
	}
	_, err := l.appendLocked(r)
	return err
}
