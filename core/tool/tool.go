// SPDX-License-Identifier: Apache-2.0

// Package tool is the contract between the run executor and whatever a model may call.
package tool

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/core/model"
)

// Tool is something that a model may call. It may be called from several goroutines.
type Tool interface {
	// Spec is what the model is told. It does not change during a run.
	Spec() model.ToolSpec
	// Call performs one call. A failure is a Result with Error set. An error that is returned goes to the model too, in a
	// general shape; only one that [EndRun] made, or that says that the sandbox is gone, ends the run.
	//
	// When the context ends, Call returns soon, with what there is or with the context's error.
	Call(ctx context.Context, call Call) (Result, error)
}

// TimeLimited is a Tool with a time limit of its own.
type TimeLimited interface {
	Tool
	// TimeLimit bounds one call; 0 = no bound. With endRun a call that takes longer ends the run, else it is an error
	// for the model.
	TimeLimit() (limit time.Duration, endRun bool)
}

// EndRun marks an error of a call as one that ends the run: a policy, a broken invariant.
func EndRun(err error) error { return &endRun{err} }

// EndsRun reports whether [EndRun] marked an error.
func EndsRun(err error) bool {
	var e *endRun
	return errors.As(err, &e)
}

type endRun struct{ err error }

func (e *endRun) Error() string { return e.err.Error() }
func (e *endRun) Unwrap() error { return e.err }

// Call is one call.
type Call struct {
	ID        string // the model's call id; the idempotency key
	RunID     string
	Agent     string
	Arguments string // as in model.ToolCall; never empty for a function
	// Again says that the call may have been started before, by a process that ended. The ID is the same.
	Again bool
	// Progress may be called with parts of the output while the call runs. It is never nil.
	Progress func(Progress)
}

// Progress is news of a running call.
type Progress struct {
	Output []byte // more output of a command
	Note   string // one line
}

// Result is what a call gave. Exactly one of Text and Error is meant; Images may come with Text.
type Result struct {
	Text   string
	Images []Image
	Error  *Error
	// Summary is one line for people: "exit 0 in 1.2 s", "2 files changed".
	Summary string
	// Detail is for the run log and the event stream, as JSON: exit code, files, dropped bytes.
	Detail map[string]any
}

// Image is a picture for the model.
type Image struct {
	MIME string
	Data []byte
	// Level of detail: low, high, auto or empty.
	Detail string
}

// Error is the stable shape in which a failure goes back to the model.
type Error struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	Hint      string `json:"hint,omitempty"`
}
