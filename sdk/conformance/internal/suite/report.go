// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// Status is how a check ended.
type Status string

// The ends.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Why is the kind of reason of a skip.
type Why string

// The kinds.
const (
	SkippedByUser Why = "skipped_by_user"
	NotAsked      Why = "not_asked"
	NotClaimed    Why = "not_claimed"
	NotHere       Why = "not_possible_here"
	// OutOfBudget is a check that was not run, or not to its end: it says nothing of the driver.
	OutOfBudget Why = "out_of_budget"
	// NothingToTest is a check of what a driver does that lacks a feature, and this one has it.
	NothingToTest Why = "nothing_to_test"
)

// Result is what became of a check.
type Result struct {
	Group    string           `json:"group"`
	Check    string           `json:"check"`
	Status   Status           `json:"status"`
	Why      Why              `json:"why,omitempty"`
	Reason   string           `json:"reason,omitempty"` // of a skip
	Proves   []driver.Feature `json:"proves,omitempty"`
	Messages []string         `json:"messages,omitempty"` // what is wrong
	Logs     []string         `json:"logs,omitempty"`
	Took     time.Duration    `json:"took_ns"`
}

// Standing is what a run said of a feature.
type Standing string

// The standings.
const (
	Proven    Standing = "proven"     // claimed, and every check of it that ran passed
	Broken    Standing = "broken"     // claimed, and a check of it failed
	Unproven  Standing = "unproven"   // claimed, and every check of it was skipped: a failure
	Emulated  Standing = "emulated"   // not claimed; the SDK does it, and its checks passed
	NoCheck   Standing = "no_check"   // claimed; this version of the suite has no check of it
	NotTested Standing = "not_tested" // claimed; its checks were not asked for
)

// Feature is one feature in the report.
type Feature struct {
	Feature  driver.Feature `json:"feature"`
	Claimed  bool           `json:"claimed"`
	Standing Standing       `json:"standing"`
	Checks   []string       `json:"checks,omitempty"` // that passed
	Reason   string         `json:"reason,omitempty"` // why it is unproven
}

// Timing is how long one kind of call took.
type Timing struct {
	Call  string        `json:"call"`
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P95   time.Duration `json:"p95_ns"`
}

// Figure is a measurement of the group perf.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Report is the account of a run.
type Report struct {
	Suite    string        `json:"suite"` // version
	Driver   string        `json:"driver"`
	Version  string        `json:"version"`
	SHA256   string        `json:"sha256,omitempty"` // of the program
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took_ns"`
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Skipped  int           `json:"skipped"`
	NotRun   int           `json:"not_run"` // for lack of budget; not among the skipped
	Features []Feature     `json:"features"`
	Results  []Result      `json:"results"`
	Timings  []Timing      `json:"timings"`
	Figures  []Figure      `json:"figures,omitempty"`
	Kept     []string      `json:"kept,omitempty"` // sandboxes that were left for a look
}

// OK says whether the driver passed.
func (r *Report) OK() bool {
	return r.Failed == 0 && !slices.ContainsFunc(r.Features, func(f Feature) bool { return f.Standing == Unproven })
}

// Report gives the account so far.
func (s *Suite) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Report{
		Suite: Version, Driver: s.main.Desc.Name, Version: s.main.Desc.Version, SHA256: s.sum, Began: s.began, Took: time.Since(s.began),
		Results: slices.Clone(s.results), Figures: slices.Clone(s.figures), Kept: slices.Clone(s.kept),
	}
	for _, x := range r.Results {
		switch x.Status {
		case Passed:
			r.Passed++
		case Failed:
			r.Failed++
		case Skipped:
			if x.Why == OutOfBudget {
				r.NotRun++
			} else {
				r.Skipped++
			}
		}
	}
	r.Features = standings(append(slices.Clone(s.main.Desc.Features), Mounts(s.main.Desc)...), r.Results)
	for _, call := range slices.Sorted(maps.Keys(s.times)) {
		t := slices.Sorted(slices.Values(s.times[call]))
		r.Timings = append(r.Timings, Timing{Call: call, Count: len(t), P50: t[len(t)/2], P95: t[len(t)*95/100]})
	}
	return r
}

func standings(claimed []driver.Feature, results []Result) []Feature {
	of := map[driver.Feature][]Result{}
	for _, r := range results {
		for _, f := range r.Proves {
			of[f] = append(of[f], r)
		}
	}
	var out []Feature
	for _, f := range claimed {
		out = append(out, standing(f, of[f]))
	}
	for _, f := range slices.Sorted(maps.Keys(of)) {
		if slices.Contains(claimed, f) {
			continue
		}
		passed := names(of[f], func(r Result) bool { return r.Status == Passed })
		if failed := names(of[f], func(r Result) bool { return r.Status == Failed }); len(passed) > 0 && len(failed) == 0 {
			out = append(out, Feature{Feature: f, Standing: Emulated, Checks: passed})
		}
	}
	return out
}

func standing(f driver.Feature, results []Result) Feature {
	out := Feature{Feature: f, Claimed: true, Checks: names(results, func(r Result) bool { return r.Status == Passed })}
	user := slices.IndexFunc(results, func(r Result) bool { return r.Why == SkippedByUser })
	here := slices.IndexFunc(results, func(r Result) bool { return r.Why == NotHere })
	unpaid := slices.IndexFunc(results, func(r Result) bool { return r.Why == OutOfBudget })
	switch {
	case len(results) == 0:
		out.Standing, out.Reason = NoCheck, "this version of the suite has no check of it"
	case slices.ContainsFunc(results, func(r Result) bool { return r.Status == Failed }):
		out.Standing = Broken
	case user >= 0:
		out.Standing, out.Reason = Unproven, fmt.Sprintf("%s/%s was skipped: %s", results[user].Group, results[user].Check, results[user].Reason)
	case unpaid >= 0:
		out.Standing, out.Reason = NotTested, results[unpaid].Reason
	case len(out.Checks) > 0:
		out.Standing = Proven
	case here >= 0:
		out.Standing, out.Reason = Unproven, results[here].Reason
	default:
		out.Standing = NotTested
	}
	return out
}

func names(results []Result, ok func(Result) bool) []string {
	var out []string
	for _, r := range results {
		if ok(r) {
			out = append(out, r.Group+"/"+r.Check)
		}
	}
	return out
}

type xmlSuite struct {
	XMLName  xml.Name  `xml:"testsuite"`
	Name     string    `xml:"name,attr"`
	Tests    int       `xml:"tests,attr"`
	Failures int       `xml:"failures,attr"`
	Skipped  int       `xml:"skipped,attr"`
	Time     string    `xml:"time,attr"`
	Stamp    string    `xml:"timestamp,attr"`
	Cases    []xmlCase `xml:"testcase"`
}

type xmlCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr"`
	Failure *xmlText `xml:"failure"`
	Skipped *xmlText `xml:"skipped"`
	Out     string   `xml:"system-out,omitempty"`
}

type xmlText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report for programs that read JUnit's format. An unproven feature is a failed case.
func (r *Report) WriteJUnit(w io.Writer) error {
	out := xmlSuite{
		Name: "conformance of " + r.Driver, Skipped: r.Skipped, Failures: r.Failed, Time: seconds(r.Took),
		Stamp: r.Began.UTC().Format("2006-01-02T15:04:05"),
	}
	for _, x := range r.Results {
		c := xmlCase{Class: x.Group, Name: x.Check, Time: seconds(x.Took), Out: printable(strings.Join(x.Logs, "\n"))}
		switch x.Status {
		case Failed:
			first, _, _ := strings.Cut(x.Messages[0], "\n")
			c.Failure = &xmlText{Message: printable(first), Text: printable(strings.Join(x.Messages, "\n"))}
		case Skipped:
			c.Skipped = &xmlText{Message: printable(x.Reason)}
		case Passed:
		}
		out.Cases = append(out.Cases, c)
	}
	for _, f := range r.Features {
		if f.Standing == Unproven {
			out.Failures++
			out.Cases = append(out.Cases, xmlCase{
				Class: "features", Name: string(f.Feature), Time: "0.000",
				Failure: &xmlText{Message: "claimed, and not proven: " + printable(f.Reason)},
			})
		}
	}
	out.Tests = len(out.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// printable drops what XML cannot hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
