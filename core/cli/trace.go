// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/cli/show"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runs"
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

func (a *app) traceCommand() *cobra.Command {
	return group("trace", "Look at where the time of a run went", a.traceShowCommand())
}

// traceReport is what trace show --json prints.
type traceReport struct {
	Run   string       `json:"run_id"`
	Live  bool         `json:"live,omitempty"`
	Lost  int          `json:"lost_lines,omitempty"`
	Spans []trace.Span `json:"spans"`
}

func (a *app) traceShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show [flags] [RUN]", Short: "Draw a run's trace: what was when, how long it took, its tokens and failures",
		Long: `Draws the spans of a run as a tree with bars, also while it goes on. RUN is its id or the beginning of it; without it the
run that was worked on last is meant. Times without any span, such as between a pause and a resume, are left out of the bars.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return just("the name of a run")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			reg, err := a.runs(cmd.Context())
			if err != nil {
				return err
			}
			id, err := traceOf(cmd.Context(), reg, args)
			if err != nil {
				return err
			}
			path, err := runlog.Dir(reg.Dir.Path, id)
			if err != nil {
				return err
			}
			rep := traceReport{Run: id}
			if rep.Spans, rep.Lost, err = trace.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("run %s has no trace: its trace block says disabled = true, it is inside another run, it worked on another machine, or an older berth made it", id)
			}
			if err != nil {
				return err
			}
			if rep.Live, err = runlog.Live(path); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(rep)
			}
			return a.drawTrace(&rep)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the spans as JSON")
	return c
}

func (a *app) drawTrace(rep *traceReport) error {
	o := show.TraceOptions{Color: a.color(a.Out)}
	o.Width, _ = terminal(a.Out)
	if rep.Live {
		o.Live = time.Now()
	}
	if err := show.Trace(a.Out, rep.Spans, o); err != nil {
		return err
	}
	if rep.Lost > 0 {
		fmt.Fprintf(a.Err, "berth: warning: %d lines of the trace were not kept or cannot be read\n", rep.Lost)
	}
	return nil
}

// traceOf is the run that is meant.
func traceOf(ctx context.Context, reg *runs.Register, args []string) (string, error) {
	if len(args) > 0 {
		return reg.Find(ctx, args[0])
	}
	all, err := reg.List(ctx)
	if err != nil {
		return "", err
	}
	if id := runs.Latest(all, func(s *runs.Summary) bool { return s.Error == "" }); id != "" {
		return id, nil
	}
	return "", errors.New("there are no runs")
}
