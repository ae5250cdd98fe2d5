// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/berth-dev/berth/core/trace"
)

// traceConfig says where spans go besides the directories of runs.
func (a *app) traceConfig() trace.Config {
	cfg := trace.Config{
		Redact: a.redact, Getenv: a.Getenv,
		Warn: func(message, hint string) {
			fmt.Fprintf(a.Err, "berth: warning: %s\nhint: %s\n", a.redact(message), hint)
		},
	}
	if o := a.host.Telemetry.OTLP; o != nil {
		cfg.OTLP = &trace.OTLP{Endpoint: o.Endpoint, Protocol: o.Protocol, Headers: o.Headers}
	}
	return cfg
}
