// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// outcomeOf turns an error of a stage into what the driver gets.
func outcomeOf(err error) outcome {
	if err == nil {
		return outcome{OK: true}
	}
	o := outcome{Text: err.Error()}
	if s, ok := errors.AsType[*step.Error](err); ok {
		o.Step = s.Step
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		o.Errno = int(errno)
	}
	return o
}
