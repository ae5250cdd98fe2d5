// SPDX-License-Identifier: Apache-2.0

// Package tool is the contract between the run executor and whatever a model may call.
package tool

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/core/event"
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

// Subject is what a call is about, as far as approval rules look at it.
type Subject struct {
	Command *Command // that it runs; nil = none
	Paths   []string // of the files that it touches; relative ones start at the workspace's root
}

// Command is a command for a shell.
type Command struct {
	Text  string
	Shell string // that the call wants; empty = the usual one
}

// Clear is a Tool that can say what a call is about. Of any other, rules see the arguments.
type Clear interface {
	Tool
	// About changes nothing. An error says that Call would refuse the call without doing anything.
	About(arguments string) (Subject, error)
}

// Careful is a Tool that wants an approval for some of its calls, where the rules leave it to the tool.
type Careful interface {
	Tool
	// NeedsApproval changes nothing. Of arguments that it cannot read it says yes.
	NeedsApproval(arguments string) bool
}

// Served is a Tool of an MCP server.
type Served interface {
	Tool
	// Server is the server's label.
	Server() string
}

// Recovering is a Tool that can take up a call which a process that ended may have made ([Call.Again]): it finds what
// became of it, or making it again does no harm. Where it cannot know, Call returns [ErrUnsure]. Any other tool is not
// called again before somebody has decided that it should be.
type Recovering interface {
	Tool
	Recovers()
}

// ErrUnsure says that a call may have been made, and that nobody can know.
var ErrUnsure = errors.New("the call may have been made by a process that ended")

// ErrSuspended says that a call cannot go on for now, and that a resume can take it up: the call is made again, with
// [Call.Again], by a [Recovering] tool that keeps by itself how far it came.
var ErrSuspended = errors.New("the call waits, and a resume takes it up")

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
	// Saved is what such a process gave to Save last; nil = nothing.
	Saved []byte
	// Save keeps one JSON value for the case that this process ends during the call. It is on stable storage when Save
	// returns; with an error it is not, and the call must not go on. It is never nil.
	Save func(value []byte) error
	// Left is what the run may still use, as of the start of the call.
	Left Budget
	// Tell puts an event into the run's stream. It is never nil.
	Tell func(event.Data)
	// Progress may be called with parts of the output while the call runs. It is never nil.
	Progress func(Progress)
}

// CommandID names the command of a call in its sandbox. Other runs may work there too, with calls of the same ids.
func (c Call) CommandID() string { return c.RunID + "." + c.ID }

// Budget is what may be used; zero = no bound.
type Budget struct {
	Tokens    int64
	MicroUSD  int64
	ToolCalls int
	Time      time.Duration
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
	// Usage and MicroUSD are what the call itself used of models.
	Usage    model.Usage
	MicroUSD int64
}

// Image is a picture for the model.
type Image struct {
	MIME string
	Data []byte
	// Level of detail: low, high, auto or empty.
	Detail string
}

// MaxImageBytes is the largest picture that is shown to a model.
const MaxImageBytes = 10 << 20

// Picture says whether models take pictures of a type.
func Picture(mime string) bool {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

// Error is the stable shape in which a failure goes back to the model.
type Error struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	Hint      string `json:"hint,omitempty"`
}
