// SPDX-License-Identifier: Apache-2.0

// Package ops is how those who do something to the world outside a run say so: a command, a file, a port, a mount, a
// sandbox. Whoever keeps account of the run is told before it happens and after. The package keeps nothing and decides
// nothing; the trace and the audit log do the rest.
package ops

import (
	"context"
	"errors"
)

// Kind names an operation: what is worked on, a dot, what is done to it.
type Kind string

// The kinds.
const (
	SandboxCreate  Kind = "sandbox.create"
	SandboxResume  Kind = "sandbox.resume"
	SandboxStop    Kind = "sandbox.stop"
	SandboxPause   Kind = "sandbox.pause"
	SandboxDestroy Kind = "sandbox.destroy"
	Exec           Kind = "sandbox.exec"
	Signal         Kind = "sandbox.signal"
	FileRead       Kind = "sandbox.file_read"
	FileWrite      Kind = "sandbox.file_write"
	FileMkdir      Kind = "sandbox.file_mkdir"
	FileRemove     Kind = "sandbox.file_remove"
	FileMove       Kind = "sandbox.file_move"
	FileMeta       Kind = "sandbox.file_meta"
	TreeImport     Kind = "sandbox.tree_import"
	TreeExport     Kind = "sandbox.tree_export"
	Snapshot       Kind = "sandbox.snapshot"
	PortExpose     Kind = "sandbox.port_expose"
	PortUnexpose   Kind = "sandbox.port_unexpose"
	PortConnect    Kind = "sandbox.port_connect"
	Mount          Kind = "sandbox.mount"
	Unmount        Kind = "sandbox.unmount"
	Credentials    Kind = "sandbox.mount_credentials"
	Accounts       Kind = "sandbox.accounts"
	Deadline       Kind = "sandbox.deadline"
	HostExec       Kind = "host.exec"
	Guardrail      Kind = "guardrail"
)

// Op is one operation.
type Op struct {
	Kind    Kind
	Sandbox string // that it is done to; empty = none
	Driver  string // of that sandbox
	Name    string // what a trace may show of its target: a guardrail, a port, a kind of storage; never a path or a command
	// Detail is all of it, for the audit log only.
	Detail map[string]any
}

// End is how an operation ended.
type End struct {
	Err     error
	Detail  map[string]any // for the audit log
	Code    *int           // exit code of a command
	Tripped bool           // a guardrail did not let the text through
}

// Observer is told of operations. It may be used from several goroutines, and must not wait for anything slow.
type Observer interface {
	// Begin is called before the operation, which happens under the context that it gives. With an error the operation
	// must not happen. The function is called once, when it has ended.
	Begin(ctx context.Context, op Op) (context.Context, func(End), error)
}

// Who says in whose name something is done.
type Who struct {
	To    Observer // nil = nobody
	Run   string
	Agent string
	Call  string // id of a tool call
}

type key struct{}

// With gives a context in which things are done in a name.
func With(ctx context.Context, w Who) context.Context { return context.WithValue(ctx, key{}, w) }

// ByCall is [With] for a tool call of the run that the context names.
func ByCall(ctx context.Context, agent, call string) context.Context {
	w := Of(ctx)
	w.Agent, w.Call = agent, call
	return With(ctx, w)
}

// Of says in whose name things are done in a context.
func Of(ctx context.Context) Who {
	w, _ := ctx.Value(key{}).(Who) // none = nobody
	return w
}

// Begin tells the context's observer, or where there is none the given one, which may be nil.
func Begin(ctx context.Context, other Observer, op Op) (context.Context, func(End), error) {
	if to := Of(ctx).To; to != nil {
		other = to
	}
	if other == nil {
		return ctx, func(End) {}, nil
	}
	return other.Begin(ctx, op)
}

// Quiet is [With] for the parts of an operation that was told as a whole.
func Quiet(ctx context.Context) context.Context {
	w := Of(ctx)
	w.To = All(nil)
	return With(ctx, w)
}

// All tells several observers, in order.
type All []Observer

// Begin tells each; when one refuses, those before it are told that the operation failed.
func (a All) Begin(ctx context.Context, op Op) (context.Context, func(End), error) {
	ends := make([]func(End), 0, len(a))
	end := func(e End) {
		for _, f := range ends {
			f(e)
		}
	}
	for _, o := range a {
		next, f, err := o.Begin(ctx, op)
		if err != nil {
			end(End{Err: errors.Join(errors.New("it was not begun"), err)})
			return ctx, nil, err
		}
		ctx, ends = next, append(ends, f)
	}
	return ctx, end, nil
}
