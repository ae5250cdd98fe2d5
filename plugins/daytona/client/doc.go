// SPDX-License-Identifier: Apache-2.0

// Package client speaks with Daytona: the control API that makes, starts, stops and removes sandboxes, and the toolbox of
// each sandbox that runs processes and moves files. It needs nothing else of berth.
//
// A [Client] is made once. It repeats what does no harm to be done twice, and what the vendor refused without having begun
// it; it never runs a command twice. Errors are *errs.Error: what went wrong as a code, and what the vendor said, with its
// status and request id.
//
// # What to know of the vendor
//
// A create that was answered, or not, can be found by the name that was asked for: [Client.Sandbox] takes a name or an id.
// A sandbox that changes its state refuses calls with [StateChanging]. Its own clock stops a sandbox that nobody speaks
// with, whatever runs in it; [Client.Touch] sets that clock back, and so does every call of the toolbox, unless
// [Options.Quiet].
//
// The toolbox's own commands ([Toolbox.Execute], [Session]) merge the outputs or cut them into lines, lose zero bytes and
// take no signals. A terminal ([Toolbox.OpenPTY]) that is set to raw mode is a clean stream of bytes both ways.
package client
