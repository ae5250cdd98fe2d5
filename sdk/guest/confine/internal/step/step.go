// SPDX-License-Identifier: Apache-2.0

// Package step names what the kernel refused, so that a driver can say it.
package step

import "fmt"

// Error is a refusal.
type Error struct {
	Step string
	Err  error
}

// Error gives step and cause.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// At says at which step an error came. Nil stays nil.
func At(name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Step: name, Err: err}
}
