// SPDX-License-Identifier: Apache-2.0

// Package conformance is the suite that every berth driver passes. It looks at a driver from outside, through the
// protocol, as the core does: nothing in it knows how a driver is built, or in which language.
//
// A driver author runs it as a test of the driver's package,
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Options{Driver: func() driver.Driver { return New(hclog.NewNullLogger()) }})
//	}
//
// or over the program: berth driver conformance ./berth-driver-acme.
//
// What a driver claims in its description is what is tested. A feature that is claimed and whose checks do not run is a
// failure, unless nobody asked for them; what is not claimed and works because the SDK does it is reported as emulated.
// An error without a code, or with the code internal, fails the check in which it came.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks"
	"github.com/berth-dev/berth/sdk/conformance/internal/suite"
)

type (
	// Options say which driver is tested and how.
	Options = suite.Options
	// Storage is storage that a driver is to attach.
	Storage = suite.Storage
	// Report is the account of a run.
	Report = suite.Report
	// Budget bounds what a run may cost.
	Budget = suite.Budget
	// SavedState is the state of a sandbox as the core keeps it.
	SavedState = suite.SavedState
	// Result is what became of one check.
	Result = suite.Result
	// Feature is what a run said of a feature.
	Feature = suite.Feature
	// Verdict is what a run said of the driver.
	Verdict = suite.Verdict
)

// The ends of a check, for [Result.Status].
const (
	Passed  = suite.Passed
	Failed  = suite.Failed
	Skipped = suite.Skipped

	// OutOfBudget is why a check was not run, for [Result.Why].
	OutOfBudget = suite.OutOfBudget

	// NotHere and SkippedByUser are why a check was skipped that the driver could have been given, for [Result.Why].
	NotHere       = suite.NotHere
	SkippedByUser = suite.SkippedByUser

	// Conforms, DoesNotConform and Partial are what a run says, for [Report.Verdict].
	Conforms       = suite.Conforms
	DoesNotConform = suite.DoesNotConform
	Partial        = suite.Partial
)

// T is what the suite needs of a test. *testing.T is T[*testing.T].
type T[Self any] interface {
	Helper()
	Run(name string, f func(Self)) bool
	Parallel()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Run runs the suite as subtests, one for each check, in one subtest for each group, and gives the report. A driver that
// cannot be tested at all is fatal.
func Run[Self T[Self]](t Self, opts Options) *Report {
	t.Helper()
	ctx := context.Background()
	if c, ok := any(t).(interface{ Context() context.Context }); ok {
		ctx = c.Context()
	}
	s, err := suite.Open(ctx, opts, checks.Groups())
	if err != nil {
		t.Fatalf("the driver cannot be tested: %v", err)
		return nil
	}
	for _, g := range s.Groups() {
		t.Run(g.Name, func(t Self) {
			for i := range g.Checks {
				t.Run(g.Checks[i].Name, func(t Self) {
					if opts.Parallel > 1 {
						t.Parallel()
					}
					tell(t, s.Run(ctx, &g, &g.Checks[i]))
				})
			}
		})
	}
	report := s.Report()
	for _, f := range report.Features {
		if f.Standing == suite.Unproven {
			t.Errorf("the driver claims %s, and nothing proves it: %s", f.Feature, f.Reason)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("end of the driver: %v", err)
	}
	return report
}

func tell[Self T[Self]](t Self, r Result) {
	for _, l := range r.Logs {
		t.Logf("%s", l)
	}
	for _, m := range r.Messages {
		t.Errorf("%s", m)
	}
	if r.Status == suite.Skipped {
		t.Skipf("%s", r.Reason)
	}
}

// Execute runs the suite without a test framework. Each result is told as it comes; tell may be nil, and is never called
// twice at the same time. An error means that the driver could not be tested at all, or did not end well.
func Execute(ctx context.Context, opts Options, told func(Result)) (*Report, error) {
	s, err := suite.Open(ctx, opts, checks.Groups())
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	for _, g := range s.Groups() {
		room := make(chan struct{}, max(1, opts.Parallel))
		var all sync.WaitGroup
		for i := range g.Checks {
			room <- struct{}{}
			all.Go(func() {
				defer func() { <-room }()
				if ctx.Err() != nil {
					return
				}
				r := s.Run(ctx, &g, &g.Checks[i])
				mu.Lock()
				defer mu.Unlock()
				if told != nil {
					told(r)
				}
			})
		}
		all.Wait()
	}
	report := s.Report()
	if err := s.Close(); err != nil {
		return report, fmt.Errorf("end of the driver: %w", err)
	}
	if ctx.Err() != nil {
		return report, context.Cause(ctx)
	}
	return report, nil
}

// ReadStates reads the kept states in a directory, one in each file NAME.json; see [Options].
func ReadStates(dir string) ([]SavedState, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s holds no state: there is no file *.json", dir)
	}
	var out []SavedState
	for _, name := range files {
		b, rerr := os.ReadFile(name)
		var s SavedState
		if rerr == nil {
			rerr = json.Unmarshal(b, &s)
		}
		if rerr == nil && (s.SandboxID == "" || s.State.Version == 0) {
			rerr = errors.New(`it is {"sandbox_id": ID, "state": {"version": N, "data": BASE64}}`)
		}
		if rerr != nil {
			return nil, fmt.Errorf("kept state %s: %w", name, rerr)
		}
		out = append(out, s)
	}
	return out, err
}

// List writes the names of all checks, as group/check, with what each group proves.
func List(w io.Writer) error {
	var b strings.Builder
	for _, g := range checks.Groups() {
		fmt.Fprintf(&b, "%s: %s\n", g.Name, g.Doc)
		for _, c := range g.Checks {
			fmt.Fprintf(&b, "  %s/%s\n", g.Name, c.Name)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
