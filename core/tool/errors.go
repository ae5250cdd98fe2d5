// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/berth-dev/berth/sdk/errs"
)

// Failed makes the result of a call that failed, from an error of the sandbox or of the tool.
func Failed(err error) Result {
	e := FromError(err)
	return Result{Error: e, Summary: e.Message}
}

// FromError gives an error the shape in which it goes back to the model.
func FromError(err error) *Error {
	var own *errs.Error
	if !errors.As(err, &own) {
		return &Error{Code: string(errs.CodeOf(err)), Message: err.Error()}
	}
	class := own.RetryClass()
	return &Error{
		Code: string(own.Code), Message: own.Error(), Hint: own.Hint,
		Retryable: class == errs.RetrySafe || class == errs.RetryAfterResume,
	}
}

// JSON is the one shape in which failures go to the model.
func (e *Error) JSON() string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct {
		Error *Error `json:"error"`
	}{e}) // texts and a bool
	return string(bytes.TrimSpace(b.Bytes()))
}
