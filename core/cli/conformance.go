// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/schema"
)

// exitNotRun is the exit code of a conformance run that could not begin.
const exitNotRun = ExitUsage

type conformanceFlags struct {
	config, sandbox string
	states          string
	skip            []string
	junit, json     string
	list, verbose   bool
	opts            conformance.Options
}

func (a *app) driverConformance() *cobra.Command {
	var f conformanceFlags
	c := &cobra.Command{
		Use:   "conformance FILE",
		Short: "Test a driver program, in whatever language it is written",
		Long: "Starts the driver program FILE (berth-driver-NAME) and proves from outside what it claims: see docs/conformance.md.\n" +
			"Exit code 0: nothing failed. 1: something did. 2: it could not be tested. The last line tells whether it conforms: for\n" +
			"that the whole suite has to run, with --faults and without --only.",
		Args: cobra.RangeArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return conformance.List(a.Out)
			}
			if len(args) != 1 {
				return usage("name the driver program to test")
			}
			if err := a.conformanceOptions(cmd.Context(), args[0], &f); err != nil {
				return exit(exitNotRun, err)
			}
			return a.conformance(cmd.Context(), &f)
		},
	}
	l := c.Flags()
	l.StringVar(&f.config, "config", "", "project `FILE` whose sandbox and driver blocks configure the driver")
	l.StringVar(&f.sandbox, "sandbox", "", "`NAME` of the sandbox block; not needed when there is one")
	l.StringSliceVar(&f.opts.Only, "only", nil, "run these groups, or checks as `GROUP/CHECK`")
	l.StringArrayVar(&f.skip, "skip", nil, "leave out a group or check, as `NAME=REASON`; what it alone proves is then not proven")
	l.IntVar(&f.opts.Repeat, "repeat", 0, "make idempotent calls `N` times (default 10)")
	l.IntVar(&f.opts.Parallel, "parallel", 1, "run `N` checks at a time")
	l.DurationVar(&f.opts.Timeout, "timeout", 2*time.Minute, "time for one check")
	l.IntVar(&f.opts.Budget.Sandboxes, "max-sandboxes", 0, "never more than `N` sandboxes at the same time; what needs more is not run")
	l.IntVar(&f.opts.Budget.Creates, "max-creates", 0, "create `N` sandboxes at most; what needs more is not run")
	l.DurationVar(&f.opts.Budget.Wall, "max-time", 0, "time for the whole run; what does not fit is not run")
	l.StringVar(&f.opts.Small, "small", "", "a `DIRECTORY` inside, on a file system of 64 MiB at most, that may be filled")
	l.StringVar(&f.states, "states", "", "`DIRECTORY` with states of sandboxes that are gone, which have to be understood")
	l.BoolVar(&f.opts.Faults, "faults", false, "also kill the driver at bad moments")
	l.BoolVar(&f.opts.Perf, "perf", false, "also measure")
	l.BoolVar(&f.opts.KeepOnFail, "keep-on-fail", false, "leave the sandboxes of failed checks for a look")
	l.StringVar(&f.junit, "junit", "", "write a JUnit report to `FILE`")
	l.StringVar(&f.json, "json", "", "write the report as JSON to `FILE`, - for standard output")
	l.BoolVar(&f.list, "list", false, "list the checks")
	l.BoolVarP(&f.verbose, "verbose", "v", false, "also show passed and skipped checks, and what the driver logs")
	return c
}

// conformanceOptions completes the options from the command line and the project.
func (a *app) conformanceOptions(ctx context.Context, program string, f *conformanceFlags) error {
	f.opts.Binary = a.path(program)
	if info, err := os.Stat(f.opts.Binary); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", f.opts.Binary)
	}
	f.opts.Skip = map[string]string{}
	for _, s := range f.skip {
		name, reason, ok := strings.Cut(s, "=")
		if !ok || reason == "" {
			return usage("--skip is %q; it is NAME=REASON", s)
		}
		f.opts.Skip[name] = reason
	}
	if f.verbose {
		f.opts.Log = a.Err
	}
	if f.states != "" {
		var err error
		if f.opts.States, err = conformance.ReadStates(a.path(f.states)); err != nil {
			return err
		}
	}
	if f.config == "" {
		return nil
	}
	name, ok := strings.CutPrefix(filepath.Base(program), "berth-driver-")
	if !ok {
		return usage("the program is called %s: for --config it has to be berth-driver-NAME", filepath.Base(program))
	}
	a.flags.driverBinary = append(a.flags.driverBinary, name+"="+f.opts.Binary)
	l, err := a.load(ctx, f.config, &projectFlags{})
	if err != nil {
		return err
	}
	return f.configure(ctx, l.Project, name)
}

// configure takes what the project says of the driver and the sandbox.
func (f *conformanceFlags) configure(ctx context.Context, p *spec.Project, name string) error {
	of := func(label string) string {
		if d := p.Drivers[label]; d != nil && d.Uses != "" {
			return d.Uses
		}
		return label
	}
	var labels []string
	for label, s := range p.Sandboxes {
		if of(s.Driver) == name && (f.sandbox == "" || f.sandbox == label) {
			labels = append(labels, label)
		}
	}
	slices.Sort(labels)
	if len(labels) != 1 {
		return usage("%s has %d sandboxes with driver %q %v: one is needed, see --sandbox", f.config, len(labels), name, labels)
	}
	box := p.Sandboxes[labels[0]]
	var err error
	if f.opts.SandboxConfig, err = encoded(box.Config); err != nil {
		return err
	}
	d := p.Drivers[box.Driver]
	if d == nil {
		return nil
	}
	if f.opts.ProcessConfig, err = encoded(d.Config); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		text, err := d.Env[name].Reveal(ctx)
		if err != nil {
			return fmt.Errorf("environment variable %s of driver %s: %w", name, d.Label, err)
		}
		f.opts.Env = append(f.opts.Env, name+"="+text)
		f.opts.Secrets = append(f.opts.Secrets, text)
	}
	return nil
}

func encoded(c spec.DriverConfig) (schema.Value, error) {
	if c == nil {
		return schema.Value{}, nil
	}
	v, err := c.Encode()
	return schema.Value{MsgPack: v.MsgPack, JSON: v.JSON}, err
}

func (a *app) conformance(ctx context.Context, f *conformanceFlags) error {
	report, err := conformance.Execute(ctx, f.opts, func(r conformance.Result) {
		if r.Status != conformance.Failed && !f.verbose {
			return
		}
		fmt.Fprintf(a.Err, "%-7s %s/%s (%.2f s)", r.Status, r.Group, r.Check, r.Took.Seconds())
		if r.Reason != "" {
			fmt.Fprintf(a.Err, ": %s", r.Reason)
		}
		fmt.Fprintln(a.Err)
		for _, line := range append(r.Messages, r.Logs...) {
			fmt.Fprintln(a.Err, "        "+strings.ReplaceAll(line, "\n", "\n        "))
		}
	})
	if report == nil {
		return exit(exitNotRun, fmt.Errorf("the driver cannot be tested: %w", err))
	}
	if werr := a.writeReports(report, f); werr != nil {
		return exit(exitNotRun, werr)
	}
	if err == nil && report.OK() {
		return nil
	}
	return exit(ExitFailure, err)
}

func (a *app) writeReports(r *conformance.Report, f *conformanceFlags) error {
	writeJSON := func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if f.junit != "" {
		if err := writeTo(a.path(f.junit), r.WriteJUnit); err != nil {
			return err
		}
	}
	switch f.json {
	case "":
	case "-":
		return writeJSON(a.Out)
	default:
		if err := writeTo(a.path(f.json), writeJSON); err != nil {
			return err
		}
	}
	return a.showReport(r)
}

func writeTo(path string, write func(io.Writer) error) error {
	w, err := os.Create(path) //nolint:forbidigo // the user named the file
	if err != nil {
		return err
	}
	if err := write(w); err != nil {
		w.Close() // the first error is the one to tell
		return err
	}
	return w.Close()
}

func (a *app) showReport(r *conformance.Report) error {
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	for _, f := range r.Features {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Feature, f.Standing, f.Reason)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range r.Figures {
		fmt.Fprintf(a.Out, "%s: %.4g %s\n", f.Name, f.Value, f.Unit)
	}
	for _, id := range r.Kept {
		fmt.Fprintf(a.Out, "kept: sandbox %s\n", id)
	}
	for _, x := range r.Results {
		if x.Why == conformance.NotHere || x.Why == conformance.SkippedByUser {
			fmt.Fprintf(a.Out, "skipped: %s/%s: %s\n", x.Group, x.Check, x.Reason)
		}
	}
	left := r.LeftOut()
	for _, why := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(a.Out, "left out: %d checks, %s\n", left[why], why)
	}
	verdict := map[conformance.Verdict]string{
		conformance.Conforms: "conforms", conformance.DoesNotConform: "does not conform",
		conformance.Partial: "passed what was run, which is only a part of the suite and no verdict",
	}[r.Verdict]
	_, err := fmt.Fprintf(a.Out, "%s %s %s: %d checks passed, %d failed, %d skipped, %d not run, in %.1f s (suite %s)\n",
		r.Driver, r.Version, verdict, r.Passed, r.Failed, r.Skipped, r.NotRun, r.Took.Seconds(), r.Suite)
	return err
}
